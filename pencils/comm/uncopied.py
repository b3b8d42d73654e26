"""What holds communicators, requests, shared memory or files is neither pickled nor copied."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class Uncopied:
    """Refuses `pickle`, `copy.copy` and `copy.deepcopy`, all of which ask for a reduced value."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        msg = (
            f"a {type(self).__name__} can be neither pickled nor copied: what it holds lives in "
            "this process, and once; make another one from the same arguments"
        )
        raise TypeError(msg)
