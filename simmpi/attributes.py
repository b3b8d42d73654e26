"""What handles of communicators and of windows have alike: attributes, group, hints, handlers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from simmpi.constants import (
    APPNUM,
    KEYVAL_INVALID,
    LARGEST_TAG,
    TAG_UB,
    UNIVERSE_SIZE,
    WTIME_IS_GLOBAL,
)
from simmpi.groups import Group
from simmpi.handles import ERRORS_ARE_FATAL, Errhandler, Info
from simmpi.process import PerProcess

if TYPE_CHECKING:
    from simmpi.world import Context

_keys = count(0x10000000)
# By key: whether duplicates get the value, or a function that makes it; and what is called before
# the value is dropped.
_Keyvals = dict[int, tuple[Any, Callable[..., Any] | None]]
_keyvals: PerProcess[_Keyvals] = PerProcess(dict)


class Attributes:
    """Methods of a communicator or a window; attributes are values that a rank keeps, by key."""

    _errhandler: Errhandler = ERRORS_ARE_FATAL

    @property
    @abstractmethod
    def _me(self) -> int:
        """Return the number of the rank."""

    @abstractmethod
    def _alive(self) -> Context:
        """Return what the ranks share, or raise."""

    @classmethod
    def Create_keyval(
        cls,
        copy_fn: Any = None,
        delete_fn: Callable[..., Any] | None = None,
        nopython: bool = False,  # noqa: ARG003 - as in mpi4py
    ) -> int:
        """Make a key for attributes."""
        key = next(_keys)
        _keyvals()[key] = copy_fn, delete_fn
        return key

    @classmethod
    def Free_keyval(cls, keyval: int) -> int:
        """Drop a key."""
        _keyvals().pop(keyval, None)
        return KEYVAL_INVALID

    def _attributes(self) -> dict[int, Any]:
        context = self._alive()
        rank = context.world.scheduler.ranks[context.ranks[self._me]]
        return rank.attributes.setdefault(context, {})

    def Get_attr(self, keyval: int) -> Any:
        """Return the value of a key; None if there is none."""
        found = self._attributes().get(keyval)
        return self._predefined().get(keyval) if found is None else found

    def _predefined(self) -> dict[int, Any]:
        """Return the values of the keys that MPI defines."""
        size = self._alive().world.scheduler.size
        return {TAG_UB: LARGEST_TAG, WTIME_IS_GLOBAL: True, UNIVERSE_SIZE: size, APPNUM: 0}

    def Set_attr(self, keyval: int, attrval: Any) -> None:
        """Set the value of a key."""
        self.Delete_attr(keyval)
        self._attributes()[keyval] = attrval

    def Delete_attr(self, keyval: int) -> None:
        """Drop the value of a key."""
        found = self._attributes()
        if keyval in found:
            _, delete = _keyvals().get(keyval, (None, None))
            if delete is not None:
                delete(self, keyval, found[keyval])
            del found[keyval]

    def _drop_attributes(self) -> None:
        found = self._attributes()
        while found:
            self.Delete_attr(next(reversed(found)))

    def _copy_attributes(self, to: Attributes) -> None:
        for keyval, value in list(self._attributes().items()):
            copy, _ = _keyvals().get(keyval, (None, None))
            made = copy(self, keyval, value) if callable(copy) else value
            if copy is True or (callable(copy) and made is not NotImplemented):
                to.Set_attr(keyval, made)

    def Get_group(self) -> Group:
        """Group of the ranks."""
        context = self._alive()
        return Group.of(context.ranks, context.ranks[self._me])

    group = property(Get_group)

    # ---- handlers of errors, and hints: kept, without effect ----

    def Set_errhandler(self, errhandler: Errhandler) -> None:
        """Set what happens at errors; simulated ranks always raise."""
        self._errhandler = errhandler

    def Get_errhandler(self) -> Errhandler:
        """Return what `Set_errhandler` has set."""
        return self._errhandler

    def Set_info(self, info: Info) -> None:
        """Give hints, which have no effect."""

    def Get_info(self) -> Info:
        """Return no hints."""
        return Info.Create()

    info = property(Get_info, Set_info)
