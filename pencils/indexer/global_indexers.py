"""GlobalIndexer and GlobalMultiIndexer: distributed collections by global indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pencils.comm.exchange import Handle
from pencils.comm.reduce import ReduceOp
from pencils.indexer.arguments import as_items
from pencils.indexer.collection import CollectionPlan

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

VariableBuffer = tuple[Any, Any]


class GlobalIndexer(CollectionPlan):
    """Read and write the items of a distributed collection by global indices.

    The collection is divided into sections, one for each process. Every process passes a list of
    indices, and may then read those items of any number of collections with the same sections, or
    write to them. Items are Python objects (`take`, `put`), a fixed number of values (`Take`,
    `Put`), or any number of values (`Take_v`, `Put_v`).

    Several writes to the same index are done in the order of ranks, and on each of them in that of
    its list. Making an indexer and all methods are *Collective*.

    Parameters
    ----------
    distri : sequence of int
        Process ``j`` holds the items ``distri[j] .. distri[j + 1] - 1``: one entry more than there
        are processes, the same on all of them, from 0 to the size of the collection.
    g_idx : sequence of int
        Indices in ``[0, distri[-1])``, different ones on every process, perhaps none; an index may
        be repeated.
    comm : mpi4py.MPI.Intracomm
        The processes.
    check : bool, optional
        Whether every call agrees on its arguments over all processes, so that a mistake on one of
        them raises everywhere. Without it, buffers without values must have the right type, too,
        outputs must be given where there are no lists, and the last few arrays that were passed
        stay in memory.

    Raises
    ------
    IndexError, TypeError, ArgumentError
        On every process, if an argument does not fit on any of them.
    RankDisagreementError
        On every process, if `distri` differs.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> indexer = GlobalIndexer([0, 5], [4, 0, 4], MPI.COMM_SELF)
    >>> indexer.Take(np.array([3.0, 5.0, 7.0, 11.0, 13.0]))
    array([13.,  3., 13.])
    >>> indexer.take(["a", None, 2, [3], {4}])
    [{4}, 'a', {4}]
    """

    def __init__(
        self,
        distri: Sequence[int] | NDArray[np.integer[Any]],
        g_idx: Sequence[int] | NDArray[Any],
        comm: MPI.Intracomm | None,
        *,
        check: bool = True,
    ) -> None:
        super().__init__(distri, g_idx, comm, check=check)

    @property
    def access_counts(self) -> NDArray[np.int64]:
        """How often each item of the own section is in the lists of all processes; local."""
        return self._rows.request_counts

    def take(self, dist_data: Sequence[Any], local_data: Any = None, /) -> Any:
        """Read Python objects, which are pickled: the results are copies. *Collective*.

        Parameters
        ----------
        dist_data : list
            The own section.
        local_data : list, optional
            List to fill, with an entry for each index. `GlobalMultiIndexer`: a list of such lists.

        Returns
        -------
        list
            `local_data`, or a new one.

        Raises
        ------
        TypeError, ArgumentError, RankDisagreementError
            On every process, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> GlobalIndexer([0, 3], [2, 0], MPI.COMM_SELF).take(["a", None, {2}])
        [{2}, 'a']
        """
        return self._take_objects(dist_data, local_data)

    def put(self, local_data: Sequence[Any], dist_data: list[Any] | None = None, /) -> list[Any]:
        """Write Python objects; the last one for an index stays. *Collective*.

        Parameters
        ----------
        local_data : list
            An object for each index. `GlobalMultiIndexer`: a list of such lists.
        dist_data : list, optional
            The own section, to be written to.

        Returns
        -------
        list
            `dist_data`, or a new list, with None where nothing was written.

        Raises
        ------
        TypeError, ArgumentError, RankDisagreementError
            On every process, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> GlobalIndexer([0, 4], [2, 0, 2], MPI.COMM_SELF).put(["a", "b", "c"])
        ['b', None, 'c', None]
        """
        return self._put_objects(local_data, dist_data)

    def Take(  # noqa: N802 - capitals mean buffers, as in mpi4py
        self,
        dist_data: Any,
        local_data: Any = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Any:
        """Read values, the same number of them for every index. *Collective*.

        Parameters
        ----------
        dist_data : buffer
            The own section, contiguous, in any shape: item ``i`` of it is the values ``i * count
            .. (i + 1) * count - 1``. Any type of fixed size, the same on all processes; a buffer
            without values may be of any.
        local_data : buffer, optional
            Buffer of that type to fill. `GlobalMultiIndexer`: a list of buffers.
        count : int, optional
            Number of values of each item.
        reduce : ReduceOp, optional
            How values are combined with those that are in the buffer, which may then also have the
            type that `ReduceOp` names. Default: they replace them.

        Returns
        -------
        buffer
            `local_data`, or a new one-dimensional array.

        Raises
        ------
        TypeError, ArgumentError, RankDisagreementError
            On every process, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> indexer = GlobalIndexer([0, 3], [2, 0], MPI.COMM_SELF)
        >>> indexer.Take(np.array([[3, 5], [5, 7], [11, 13]]), count=2)
        array([11, 13,  3,  5])
        """
        return self._run(self._take, "Take", dist_data, local_data, count=count, reduce=reduce)

    def Take_start(  # noqa: N802
        self,
        dist_data: Any,
        local_data: Any = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Handle[Any]:
        """Start a `Take`; `wait` of the handle returns the buffer. *Collective*.

        No buffer may be used before. Several calls may be under way; see `Handle`.
        """
        call = "Take_start"
        request = self._take(call, dist_data, local_data, count=count, reduce=reduce)
        return request.start()

    def Put(  # noqa: N802
        self,
        local_data: Any,
        dist_data: Any = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Any:
        """Write values, the same number of them for every index. *Collective*.

        Parameters
        ----------
        local_data : buffer
            Values for each index, as `Take` returns them. `GlobalMultiIndexer`: a list of buffers.
        dist_data : buffer, optional
            The own section, to be written to: items without index keep their values.
        count : int, optional
            Number of values of each item.
        reduce : ReduceOp, optional
            How values for one index, and the one that is there, are combined, each of the `count`
            by itself. `dist_data` has the type of the values, or the one that `ReduceOp` names.
            Default: the last one stays.

        Returns
        -------
        buffer
            `dist_data`, or a new array. There, items without index are not set, or neutral for
            `reduce`.

        Raises
        ------
        TypeError, ArgumentError, RankDisagreementError
            On every process, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> indexer = GlobalIndexer([0, 3], [2, 0, 2], MPI.COMM_SELF)
        >>> indexer.Put(np.array([1, 2, 3]), np.zeros(3, int))
        array([2, 0, 3])
        >>> indexer.Put(np.array([1, 2, 3]), reduce=ReduceOp.SUM)
        array([2, 0, 4])
        """
        return self._run(self._put, "Put", local_data, dist_data, count=count, reduce=reduce)

    def Put_start(  # noqa: N802
        self,
        local_data: Any,
        dist_data: Any = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Handle[Any]:
        """Start a `Put`; `wait` of the handle returns the buffer. *Collective*.

        No buffer may be used before. Several calls may be under way; see `Handle`.
        """
        call = "Put_start"
        request = self._put(call, local_data, dist_data, count=count, reduce=reduce)
        return request.start()

    def Take_v(  # noqa: N802
        self, dist_data: VariableBuffer, local_data: Any = None, /
    ) -> Any:
        """Read values, any number of them for every index. *Collective*.

        Parameters
        ----------
        dist_data : (sequence of int, buffer)
            The number of values of every item of the own section, and the values.
        local_data : (sequence of int, buffer), optional
            The right numbers for each index, and a buffer to fill. `GlobalMultiIndexer`: a list of
            such pairs.

        Returns
        -------
        (sequence of int, buffer)
            `local_data`, or new arrays.

        Raises
        ------
        TypeError, ArgumentError, RankDisagreementError
            On every process, before anything is written, if an argument does not fit on any.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> indexer = GlobalIndexer([0, 3], [2, 1, 2], MPI.COMM_SELF)
        >>> indexer.Take_v(([1, 0, 2], np.array([5, 6, 7])))
        (array([2, 0, 2]), array([6, 7, 6, 7]))
        """
        return self._take_ragged(dist_data, local_data)

    def Put_v(  # noqa: N802
        self,
        local_data: Any,
        dist_data: VariableBuffer | None = None,
        /,
        *,
        extend: bool = False,
    ) -> VariableBuffer:
        """Write values, any number of them for every index. *Collective*.

        Parameters
        ----------
        local_data : (sequence of int, buffer)
            The number of values for every index, and the values. `GlobalMultiIndexer`: a list of
            such pairs.
        dist_data : (sequence of int, buffer), optional
            What the own section holds before; it is only read. Default: no values.
        extend : bool, optional
            Whether values are appended to those that are there, instead of replacing them.

        Returns
        -------
        (numpy.ndarray, numpy.ndarray)
            Numbers and values of the own section, in new arrays.

        Raises
        ------
        TypeError, ArgumentError, RankDisagreementError
            On every process, if an argument does not fit on any.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> indexer = GlobalIndexer([0, 3], [2, 1, 2], MPI.COMM_SELF)
        >>> indexer.Put_v(([1, 0, 2], np.array([5, 6, 7])))
        (array([0, 0, 2]), array([6, 7]))
        >>> indexer.Put_v(([1, 0, 2], np.array([5, 6, 7])), extend=True)
        (array([0, 0, 3]), array([5, 6, 7]))
        """
        return self._put_ragged(local_data, dist_data, extend=extend)


class GlobalMultiIndexer(GlobalIndexer):
    """Read and write the items of a distributed collection by several lists of global indices.

    Like `GlobalIndexer`, but every process passes any number of lists, and outputs of the take
    methods and inputs of the put methods are lists with an entry for each of them. Making an
    indexer and all methods are *Collective*.

    Parameters
    ----------
    distri : sequence of int
        Process ``j`` holds the items ``distri[j] .. distri[j + 1] - 1``: one entry more than there
        are processes, the same on all of them, from 0 to the size of the collection.
    g_idx_l : sequence of sequences of int
        Lists of indices in ``[0, distri[-1])``. Both the number of lists and their lengths may
        differ between processes and be 0; an index may be repeated.
    comm : mpi4py.MPI.Intracomm
        The processes.
    check : bool, optional
        As for `GlobalIndexer`.

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

    _indices_name, _data_name = "g_idx_l", "local_data_l"

    def __init__(
        self,
        distri: Sequence[int] | NDArray[np.integer[Any]],
        g_idx_l: Sequence[Any],
        comm: MPI.Intracomm | None,
        *,
        check: bool = True,
    ) -> None:
        super().__init__(distri, g_idx_l, comm, check=check)

    def _entries(self, name: str, value: Any, count: int | None = None) -> Sequence[Any]:
        return as_items(name, value, count)

    def _entry_names(self, name: str, count: int) -> Sequence[str]:
        return [f"{name}[{number}]" for number in range(count)]

    def _result(self, entries: list[Any]) -> Any:
        return entries
