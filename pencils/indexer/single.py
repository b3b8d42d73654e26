"""GlobalIndexer: one list of global indices on every process."""

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
from pencils.indexer.route import Errand

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

_NAMES = Names("GlobalIndexer", "g_idx", "local_data", several=False)


class GlobalIndexer(Indexer):
    """Read and write the items of a distributed collection by global indices.

    The collection is cut into sections, one for each process. Every process comes with a list of
    indices, and may then read those items of any number of collections that are cut in this way,
    or write to them. They are Python objects (`take`, `put`), a fixed number of values (`Take`,
    `Put`), or another number for every index (`Take_v`, `Put_v`).

    What is written to the same index comes in the order of ranks, and on each of them in that of
    its list. Making one and all methods are *Collective*.

    Parameters
    ----------
    distri : sequence of int
        Process ``j`` holds the items ``distri[j] .. distri[j + 1] - 1``: one entry more than there
        are processes, the same on all of them, from 0 to the size of the collection.
    g_idx : sequence of int
        Indices in ``[0, distri[-1])``, others on every process, perhaps none; an index may come
        again.
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
        super().__init__(Access(_NAMES, distri, [g_idx], comm, check=check))

    def take(self, dist_data: Sequence[Any], local_data: list[Any] | None = None, /) -> list[Any]:
        """Read Python objects, which are pickled: what arrives are copies. *Collective*.

        Parameters
        ----------
        dist_data : list
            The own section.
        local_data : list, optional
            List to fill, with an entry for each index.

        Returns
        -------
        list
            `local_data`, or a new one.
        """
        found: list[Any] = objects.take(self._access, dist_data, _one(local_data))[0]
        return found

    def put(self, local_data: Sequence[Any], dist_data: list[Any] | None = None, /) -> list[Any]:
        """Write Python objects; the last one for an index stays. *Collective*.

        Parameters
        ----------
        local_data : list
            An object for each index.
        dist_data : list, optional
            The own section, to be written to.

        Returns
        -------
        list
            `dist_data`, or a new list, with None where nothing was written.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> GlobalIndexer([0, 4], [2, 0, 2], MPI.COMM_SELF).put(["a", "b", "c"])
        ['b', None, 'c', None]
        """
        return objects.put(self._access, [local_data], dist_data)

    def Take(  # noqa: N802 - capitals stand for buffers, as in mpi4py
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
            Buffer of that type to fill.
        count : int, optional
            Number of values that an index stands for.
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
        run = self._access.run
        return run(self._take, "Take", dist_data, local_data, count=count, reduce=reduce)

    def Take_start(  # noqa: N802
        self,
        dist_data: Any,
        local_data: Any = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Handle[Any]:
        """Start what `Take` does; `wait` of the handle returns the buffer. *Collective*.

        Meanwhile no buffer may be touched. Several may be under way; see `Handle`.
        """
        call = "Take_start"
        return self._take(call, dist_data, local_data, count=count, reduce=reduce).start()

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
            Values for each index, as `Take` returns them.
        dist_data : buffer, optional
            The own section, to be written to: items without index keep their values.
        count : int, optional
            Number of values that an index stands for.
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
        run = self._access.run
        return run(self._put, "Put", local_data, dist_data, count=count, reduce=reduce)

    def Put_start(  # noqa: N802
        self,
        local_data: Any,
        dist_data: Any = None,
        /,
        count: int = 1,
        *,
        reduce: ReduceOp | None = None,
    ) -> Handle[Any]:
        """Start what `Put` does; `wait` of the handle returns the buffer. *Collective*.

        Meanwhile no buffer may be touched. Several may be under way; see `Handle`.
        """
        call = "Put_start"
        return self._put(call, local_data, dist_data, count=count, reduce=reduce).start()

    def Take_v(  # noqa: N802
        self, dist_data: VariableBuffer, local_data: VariableBuffer | None = None, /
    ) -> VariableBuffer:
        """Read values, another number of them for every index. *Collective*.

        Parameters
        ----------
        dist_data : (sequence of int, buffer)
            The number of values of every item of the own section, and the values.
        local_data : (sequence of int, buffer), optional
            The right numbers for each index, and a buffer to fill.

        Returns
        -------
        (sequence of int, buffer)
            `local_data`, or new arrays.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> indexer = GlobalIndexer([0, 3], [2, 1, 2], MPI.COMM_SELF)
        >>> indexer.Take_v(([1, 0, 2], np.array([5, 6, 7])))
        (array([2, 0, 2]), array([6, 7, 6, 7]))
        """
        found: VariableBuffer = variable.take(self._access, dist_data, _one(local_data))[0]
        return found

    def Put_v(  # noqa: N802
        self,
        local_data: VariableBuffer,
        dist_data: VariableBuffer | None = None,
        /,
        *,
        extend: bool = False,
    ) -> VariableBuffer:
        """Write values, another number of them for every index. *Collective*.

        Parameters
        ----------
        local_data : (sequence of int, buffer)
            The number of values for every index, and the values.
        dist_data : (sequence of int, buffer), optional
            What the own section holds before; it is only read. Default: no values.
        extend : bool, optional
            Whether values are appended to those that are there, instead of replacing them.

        Returns
        -------
        (numpy.ndarray, numpy.ndarray)
            Numbers and values of the own section, in new arrays.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> indexer = GlobalIndexer([0, 3], [2, 1, 2], MPI.COMM_SELF)
        >>> indexer.Put_v(([1, 0, 2], np.array([5, 6, 7])))
        (array([0, 0, 2]), array([6, 7]))
        >>> indexer.Put_v(([1, 0, 2], np.array([5, 6, 7])), extend=True)
        (array([0, 0, 3]), array([5, 6, 7]))
        """
        return variable.put(self._access, [local_data], dist_data, extend=extend)

    def _take(self, call: str, dist_data: Any, local_data: Any, **options: Any) -> Errand[Any]:
        return buffers.take(self._access, call, dist_data, _one(local_data), **options).only()

    def _put(self, call: str, local_data: Any, dist_data: Any, **options: Any) -> Errand[Any]:
        return buffers.put(self._access, call, [local_data], dist_data, **options)


def _one(value: Any) -> list[Any] | None:
    """Make the list of one entry of what was given for the only list of indices."""
    return None if value is None else [value]
