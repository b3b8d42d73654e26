"""Elliptic equations on pencils: grid levels, direct, multigrid and Krylov solvers."""

from pencils.solvers.krylov import bicgstab, cg, minres
from pencils.solvers.poisson import Poisson
from pencils.solvers.result import SolverResult

__all__ = ["Poisson", "SolverResult", "bicgstab", "cg", "minres"]
