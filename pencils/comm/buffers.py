"""Memory that plans pack into, used again and again."""

from __future__ import annotations

from itertools import chain

from pencils.comm.memory import Bytes, aligned_empty
from pencils.comm.shared import SharedPool


class Buffers:
    """Idle buffers of plans that are used together, as a plan and the way back.

    As many exist as were ever in use at once.
    """

    def __init__(self) -> None:
        self._private: list[Bytes] = []
        self._shared: dict[SharedPool, list[Bytes]] = {}

    def take(self, nbytes: int, wanted: Bytes | None = None) -> Bytes:
        """Return a private buffer of at least `nbytes`, if possible `wanted`; `give` it back."""
        for number, buffer in enumerate(self._private):
            if buffer is wanted:
                return self._private.pop(number)
        found = _fitting(self._private, nbytes)
        return aligned_empty(nbytes) if found is None else found

    def give(self, buffer: Bytes) -> None:
        """Take back a private buffer."""
        self._private.append(buffer)

    def take_shared(self, pool: SharedPool, nbytes: int) -> Bytes | None:
        """Return a buffer in shared memory. *Collective* over the ranks of the pool.

        Parameters
        ----------
        pool : SharedPool
            Where to allocate.
        nbytes : int
            Least size, the same on all these ranks, so that they decide alike.

        Returns
        -------
        numpy.ndarray or None
            None on every rank if there is no room.
        """
        found = _fitting(self._shared.get(pool, []), nbytes)
        return pool.allocate(nbytes) if found is None else found

    def give_shared(self, pool: SharedPool, buffer: Bytes) -> None:
        """Take back a buffer in shared memory."""
        self._shared.setdefault(pool, []).append(buffer)

    def has(self, buffer: Bytes) -> bool:
        """Whether a private buffer is idle."""
        return any(idle is buffer for idle in self._private)

    @property
    def nbytes(self) -> int:
        """Bytes held and not in use."""
        return sum(buffer.nbytes for buffer in (*self._private, *chain(*self._shared.values())))

    def clear(self) -> None:
        """Release what is not in use."""
        self._private.clear()
        self._shared.clear()


def _fitting(idle: list[Bytes], nbytes: int) -> Bytes | None:
    """Take the smallest buffer that is large enough: larger ones are left for what needs them."""
    sizes = [(buffer.nbytes, number) for number, buffer in enumerate(idle)]
    large = [size for size in sizes if size[0] >= nbytes]
    if large:
        return idle.pop(min(large)[1])
    if idle:
        idle.pop(min(sizes)[1])  # too small for what is done now; a larger one takes its place
    return None
