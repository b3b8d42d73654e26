"""Log messages of rank 0 only, and the rank in the text of messages."""

from __future__ import annotations

import logging

from pencils.comm.mpi import MPI
from pencils.layout.integers import as_rank


class RootFilter(logging.Filter):
    """A filter for handlers or loggers that lets records of one rank through; local.

    It also sets ``rank`` and ``size`` of records, for formats such as
    ``"[%(rank)d/%(size)d] %(message)s"``. The library logs under the name ``pencils``.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        The communicator in which ranks count; default: the world.
    root : int or None, optional
        The rank whose records pass; None lets those of all ranks pass.

    Raises
    ------
    ArgumentError, TypeError
        If `root` is no rank of the communicator.

    Examples
    --------
    >>> import logging, pencils
    >>> handler = logging.StreamHandler()
    >>> handler.addFilter(pencils.logs.RootFilter())
    >>> logging.getLogger("pencils").addHandler(handler)
    >>> logging.getLogger("pencils").removeHandler(handler)
    """

    def __init__(self, comm: MPI.Intracomm | None = None, *, root: int | None = 0) -> None:
        super().__init__()
        among = MPI.COMM_WORLD if comm is None else comm
        self.rank, self.size = among.rank, among.size  # known after the communicator was freed
        self.root = None if root is None else as_rank("root", root, self.size)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record passes."""
        record.rank, record.size = self.rank, self.size
        return self.root is None or self.rank == self.root
