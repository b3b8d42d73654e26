"""Elliptic equations on pencils: grid levels, direct, multigrid and Krylov solvers."""

from pencils.solvers.krylov import bicgstab, cg, minres
from pencils.solvers.multigrid import Multigrid
from pencils.solvers.poisson import Poisson
from pencils.solvers.result import SolverResult
from pencils.solvers.transfer import prolong, restrict

__all__ = [
    "Multigrid",
    "Poisson",
    "SolverResult",
    "bicgstab",
    "cg",
    "minres",
    "prolong",
    "restrict",
]
