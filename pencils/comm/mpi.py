"""The one import of MPI: every other file imports it from here.

`pencils.run` is the exception, because it starts the processes of a job.
"""

from mpi4py import MPI

__all__ = ["MPI"]
