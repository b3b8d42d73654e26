"""Elliptic equations on pencils: grid levels, direct, multigrid and Krylov solvers."""

from pencils.solvers.transfer import prolong, restrict

__all__ = ["prolong", "restrict"]
