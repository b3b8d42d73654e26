"""Elliptic equations on pencils: grid levels, direct, multigrid and Krylov solvers."""

from pencils.solvers.poisson import Poisson

__all__ = ["Poisson"]
