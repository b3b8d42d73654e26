"""GlobalMultiIndexer: several lists of global indices on every process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm.combining import ReduceOp
from pencils.comm.exchange import Handle
from pencils.indexer import buffers, objects, variable
from pencils.indexer.access import Access, Names
from pencils.indexer.base import Indexer, VariableBuffer

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

_NAMES = Names("GlobalMultiIndexer", "g_idx_l", "local_data_l", several=True)


class GlobalMultiIndexer(Indexer):
    """Read and write the items of a distributed collection by several lists of global indices.

    As `GlobalIndexer`, but every process comes with any number of lists, and what belongs to the
    indices (outputs of the take methods, inputs of the put methods) is a list with an entry for
    each of them. Making one and all methods are *Collective*.

    Parameters
    ----------
    distri : sequence of int
        Process ``j`` holds the items ``distri[j] .. distri[j + 1] - 1``: one entry more than there
        are processes, the same on all of them, from 0 to the size of the collection.
    g_idx_l : sequence of sequences of int
        Lists of indices in ``[0, distri[-1])``. Both the number of lists and their lengths may
        differ between processes and be 0; an index may come again.
    comm : mpi4py.MPI.Intracomm
        The processes.
    check : bool, optional
        Whether every call agrees on its arguments over all processes, so that a mistake on one of
        them raises everywhere. Without it, buffers without values must have the right type, too,
        outputs must be given where there are no lists, and the last few arrays that were passed are
        held on to.

    Raises
    ------
    IndexError, TypeError, ArgumentError
        On every process, if an argument does not fit on any of them.
    RankDisagreementError
        On every process, if `distri` differs.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> indexer = GlobalMultiIndexer([0, 5], [[4, 0], [], [1]], MPI.COMM_SELF)
    >>> indexer.Take(np.array([3.0, 5.0, 7.0, 11.0, 13.0]))
    [array([13.,  3.]), array([], dtype=float64), array([5.])]
    >>> indexer.access_counts
    array([1, 1, 0, 0, 1])
    """

    def __init__(
        self,
        distri: Sequence[int] | NDArray[np.integer[Any]],
        g_idx_l: Sequence[Any],
        comm: MPI.Intracomm | None,
        *,
        check: bool = True,
    ) -> None:
        super().__init__(Access(_NAMES, distri, g_idx_l, comm, check=check))

    def take(
        self, dist_data: Sequence[Any], local_data_l: Sequence[list[Any]] | None = None, /
    ) -> Any:
        """Read Python objects. *Collective*.

        Parameters
        ----------
        dist_data : list
            The own section.
        local_data_l : list of lists, optional
            Lists to fill, one for each list of indices.

        Returns
        -------
        list of lists
            `local_data_l`, or new ones.
        """
        return objects.take(self._access, dist_data, local_data_l)

    def put(
        self, local_data_l: Sequence[Sequence[Any]], dist_data: list[Any] | None = None, /
    ) -> list[Any]:
        """Write Python objects; the last one for an index stays. *Collective*.

        Parameters
        ----------
        local_data_l : list of lists
            Objects for each list of indices.
        dist_data : list, optional
            The own section, to be written to.

        Returns
        -------
        list
            `dist_data`, or a new list, with None where nothing was written.
        """
        return objects.put(self._access, local_data_l, dist_data)

    def Take(  # noqa: N802 - capitals stand for buffers, as in mpi4py
        self,
        dist_data: Any,
        local_data_l: Sequence[Any] | None = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Any:
        """Read values, the same number of them for every index. *Collective*.

        Parameters
        ----------
        dist_data : buffer
            The own section.
        local_data_l : list of buffers, optional
            Buffers to fill, one for each list of indices.
        count : int, optional
            Number of values that an index stands for.
        reduce : ReduceOp, optional
            How values are combined with those that are in the buffer, which may then also have the
            type that `ReduceOp` names. Default: they replace them.

        Returns
        -------
        list of buffers
            `local_data_l`, or new arrays.
        """
        transfer = buffers.take(
            self._access, "Take", dist_data, local_data_l, count=count, reduce=reduce
        )
        return transfer.run()

    def Take_start(  # noqa: N802
        self,
        dist_data: Any,
        local_data_l: Sequence[Any] | None = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Handle[Any]:
        """Start what `Take` does; `wait` of the handle returns the buffers. *Collective*."""
        transfer = buffers.take(
            self._access, "Take_start", dist_data, local_data_l, count=count, reduce=reduce
        )
        return transfer.start()

    def Put(  # noqa: N802
        self,
        local_data_l: Sequence[Any],
        dist_data: Any = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Any:
        """Write values, the same number of them for every index. *Collective*.

        Parameters
        ----------
        local_data_l : list of buffers
            Values for each list of indices.
        dist_data : buffer, optional
            The own section, to be written to.
        count : int, optional
            Number of values that an index stands for.
        reduce : ReduceOp, optional
            How values for one index, and the one that is there, are combined. `dist_data` has the
            type of the values, or the one that `ReduceOp` names. Default: the last one stays.

        Returns
        -------
        buffer
            `dist_data`, or a new array.
        """
        return buffers.put(
            self._access, "Put", local_data_l, dist_data, count=count, reduce=reduce
        ).run()

    def Put_start(  # noqa: N802
        self,
        local_data_l: Sequence[Any],
        dist_data: Any = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Handle[Any]:
        """Start what `Put` does; `wait` of the handle returns the buffer. *Collective*."""
        call = "Put_start"
        return buffers.put(
            self._access, call, local_data_l, dist_data, count=count, reduce=reduce
        ).start()

    def Take_v(  # noqa: N802
        self,
        dist_data: VariableBuffer,
        local_data_l: Sequence[VariableBuffer] | None = None,
        /,
    ) -> Any:
        """Read values, another number of them for every index. *Collective*.

        Parameters
        ----------
        dist_data : (sequence of int, buffer)
            Counts and values of the own section.
        local_data_l : list of (sequence of int, buffer), optional
            For each list of indices, the right counts and a buffer to fill.

        Returns
        -------
        list of (sequence of int, buffer)
            `local_data_l`, or pairs of new arrays.
        """
        return variable.take(self._access, dist_data, local_data_l)

    def Put_v(  # noqa: N802
        self,
        local_data_l: Sequence[VariableBuffer],
        dist_data: VariableBuffer | None = None,
        /,
        *,
        extend: bool = False,
    ) -> VariableBuffer:
        """Write values, another number of them for every index. *Collective*.

        Parameters
        ----------
        local_data_l : list of (sequence of int, buffer)
            Counts and values for each list of indices.
        dist_data : (sequence of int, buffer), optional
            What the own section holds before; it is only read.
        extend : bool, optional
            Whether values are appended to those that are there, instead of replacing them.

        Returns
        -------
        (numpy.ndarray, numpy.ndarray)
            Counts and values of the own section, in new arrays.
        """
        return variable.put(self._access, local_data_l, dist_data, extend=extend)
