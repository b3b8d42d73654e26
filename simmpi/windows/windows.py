"""Windows: memory that other ranks read, write and update without a call of its own rank."""

from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from simmpi.attributes import Attributes
from simmpi.collectives.slots import Call, Collective, Slot, nothing
from simmpi.communicators import COMM_SELF, Comm
from simmpi.constants import (
    PROC_NULL,
    WIN_BASE,
    WIN_CREATE_FLAVOR,
    WIN_DISP_UNIT,
    WIN_FLAVOR_ALLOCATE,
    WIN_FLAVOR_CREATE,
    WIN_FLAVOR_DYNAMIC,
    WIN_FLAVOR_SHARED,
    WIN_MODEL,
    WIN_SIZE,
    WIN_UNIFIED,
)
from simmpi.exceptions import (
    ERR_DISP,
    ERR_RMA_ATTACH,
    ERR_RMA_FLAVOR,
    ERR_RMA_SHARED,
    ERR_SIZE,
    ERR_WIN,
    MPIError,
)
from simmpi.handles import INFO_NULL, Info
from simmpi.types.buffers import as_buffer, is_bottom
from simmpi.types.datatypes import BYTE
from simmpi.windows.epochs import Region, Window, allocate
from simmpi.windows.one_sided import OneSided
from simmpi.windows.synchronization import Synchronization

if TYPE_CHECKING:
    from simmpi.types.memory import buffer
    from simmpi.world import Context


class Win(OneSided, Synchronization, Attributes):
    """A window as one rank sees it; null if the rank has freed it."""

    def __init__(self, win: Win | None = None) -> None:
        self._window: Window | None = None if win is None else win._window
        self._number: int = -1 if win is None else win._number
        self._name = ""

    # ---- whether it can be used ----

    @property
    def _me(self) -> int:  # type: ignore[override]
        """Number of the running rank here."""
        return self._number

    def __bool__(self) -> bool:
        window = self._window
        return (
            window is not None
            and not window.scheduler.ended
            and self._number in window.context.left
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Win):
            return NotImplemented
        if not (self and other):
            return bool(self) == bool(other)
        return self._window is other._window

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        raise ValueError("a window cannot be pickled")

    def __buffer__(self, flags: int, /) -> memoryview:  # from Python 3.12 on
        return self.tomemory().data

    def _living(self) -> Window:
        window = self._window
        if window is None or self._number not in window.context.left:
            raise MPIError(ERR_WIN, "the window is null, or this rank has freed it")
        if window.scheduler.ended:
            window.scheduler.unwind_rank()
            raise MPIError(ERR_WIN, "the simulation of this window has ended")
        return window

    def _alive(self) -> Context:
        return self._living().context

    def _enter(self, call: str, *, progress: bool = True) -> Window:
        """Begin a call."""
        window = self._living()
        rank = window.scheduler.step(call, progress=progress)
        mine = window.context.ranks[self._me]
        if mine != rank.number:
            raise MPIError(
                ERR_WIN,
                f"{call}: rank {rank.number} uses the handle that rank {mine} has of "
                f"{window.name}; each rank needs its own",
            )
        return window

    # ---- making and freeing ----

    @classmethod
    def Create(
        cls,
        memory: Any,
        disp_unit: int = 1,
        info: Info = INFO_NULL,  # noqa: ARG003
        comm: Comm = COMM_SELF,
    ) -> Self:
        """Make a window of memory of the program."""
        given = None
        if not is_bottom(memory):
            given = as_buffer([memory, BYTE], writes=True)
        region = Region(_unit(disp_unit), given)
        return cls._make("Win.Create", WIN_FLAVOR_CREATE, comm, region)

    @classmethod
    def Allocate(
        cls,
        size: int,
        disp_unit: int = 1,
        info: Info = INFO_NULL,  # noqa: ARG003
        comm: Comm = COMM_SELF,
    ) -> Self:
        """Make a window of new memory."""
        region = Region(_unit(disp_unit), allocate(_size(size)))
        return cls._make("Win.Allocate", WIN_FLAVOR_ALLOCATE, comm, region)

    @classmethod
    def Allocate_shared(
        cls,
        size: int,
        disp_unit: int = 1,
        info: Info = INFO_NULL,  # noqa: ARG003
        comm: Comm = COMM_SELF,
    ) -> Self:
        """Make a window of new memory that all ranks can use directly; all are on one node."""
        given = _size(size), _unit(disp_unit)
        return cls._make("Win.Allocate_shared", WIN_FLAVOR_SHARED, comm, given)

    @classmethod
    def Create_dynamic(
        cls,
        info: Info = INFO_NULL,  # noqa: ARG003
        comm: Comm = COMM_SELF,
    ) -> Self:
        """Make a window without memory, to which ranks attach some."""
        return cls._make("Win.Create_dynamic", WIN_FLAVOR_DYNAMIC, comm, Region(1))

    @classmethod
    def _make(cls, call: str, flavor: int, comm: Comm, given: Any) -> Self:
        if not isinstance(comm, Comm):
            raise TypeError(f"comm={comm!r} must be a communicator of the simulated ranks")
        window = comm._collective(call, partial(_finish, flavor=flavor), contribution=given)
        win = cls()
        win._window, win._number = window, comm._me
        return win

    def Free(self) -> None:
        """Wait for all ranks, and make this handle null."""
        window = self._enter("Win.Free")
        epochs = window.epochs[self._me]
        if epochs.passive or epochs.pending or epochs.started is not None or epochs.posted:
            window.refuse("Win.Free", f"rank {self._me} is in an epoch; end it first")
        self._drop_attributes()
        Collective(window.context, Call("Win.Free", nothing)).wait()
        window.context.left.discard(self._me)
        if not window.context.left:
            window.context.world.windows.pop(window, None)
        self._window = None

    def free(self) -> None:
        """Call `Free` if the handle is not null."""
        if self:
            self.Free()

    # ---- memory ----

    def _region(self) -> Region:
        return self._living().regions[self._me]

    def tomemory(self) -> buffer:
        """Export the memory of this rank."""
        return self._region().exported()

    def Shared_query(self, rank: int) -> tuple[buffer, int]:
        """Return the memory of a rank, and its unit of displacements."""
        window = self._living()
        if window.flavor != WIN_FLAVOR_SHARED:
            raise MPIError(ERR_RMA_FLAVOR, f"{window.name} has no shared memory")
        if rank == PROC_NULL:
            filled = (each for each in window.regions if each.nbytes)
            region = next(filled, window.regions[0])
        else:
            region = window.regions[window.context.check_rank(rank, "rank")]
        return region.exported(), region.unit

    def Attach(self, memory: Any) -> None:
        """Let other ranks access memory."""
        window = self._dynamic("Win.Attach")
        window.regions[self._me].attached.append(as_buffer([memory, BYTE], writes=True))

    def Detach(self, memory: Any) -> None:
        """End what `Attach` has begun."""
        window = self._dynamic("Win.Detach")
        attached = window.regions[self._me].attached
        address = as_buffer([memory, BYTE], writes=True).address
        found = [each for each in attached if each.address == address]
        if not found:
            raise MPIError(ERR_RMA_ATTACH, f"the memory was not attached to {window.name}")
        attached.remove(found[-1])

    def _dynamic(self, call: str) -> Window:
        window = self._enter(call)
        if window.flavor != WIN_FLAVOR_DYNAMIC:
            raise MPIError(ERR_RMA_FLAVOR, f"{call}: {window.name} is not of Create_dynamic")
        return window

    # ---- properties ----

    def _predefined(self) -> dict[int, Any]:
        region = self._region()
        return {
            WIN_BASE: region.address,
            WIN_SIZE: region.nbytes,
            WIN_DISP_UNIT: region.unit,
            WIN_CREATE_FLAVOR: self._living().flavor,
            WIN_MODEL: WIN_UNIFIED,
        }

    @property
    def attrs(self) -> tuple[int, int, int]:
        """Address and size of the memory of this rank, and its unit of displacements."""
        region = self._region()
        return region.address, region.nbytes, region.unit

    @property
    def flavor(self) -> int:
        """Which method has made the window."""
        return self._living().flavor

    @property
    def model(self) -> int:
        """How memory of the window and of the program are related: they are the same."""
        self._living()
        return WIN_UNIFIED

    group_size = property(lambda self: self.Get_group().size)
    group_rank = property(lambda self: self.Get_group().rank)

    def Get_name(self) -> str:
        """Name of the window."""
        self._living()
        return self._name

    def Set_name(self, name: str) -> None:
        """Name the window; errors show the name."""
        self._living().name = self._name = name

    name = property(Get_name, Set_name)


WIN_NULL = Win()


def _finish(slot: Slot, number: int, *, flavor: int) -> Window:  # noqa: ARG001
    return slot.once(lambda: _window(slot, flavor))


def _window(slot: Slot, flavor: int) -> Window:
    context = slot.context
    given = [slot.given[rank] for rank in range(context.size)]
    if flavor != WIN_FLAVOR_SHARED:
        return Window(context, flavor, given)
    nodes = {context.world.nodes[rank] for rank in context.ranks}
    if len(nodes) > 1:
        raise MPIError(
            ERR_RMA_SHARED,
            f"ranks of {context.name} are on nodes {sorted(nodes)}; memory is shared on one node: "
            "use Split_type(COMM_TYPE_SHARED)",
        )
    whole = allocate(sum(size for size, _ in given))
    regions, start = [], 0
    for size, unit in given:
        regions.append(Region(unit, whole[start : start + size]))
        start += size
    return Window(context, flavor, regions)


def _size(size: int) -> int:
    found = operator.index(size)
    if found < 0:
        raise MPIError(ERR_SIZE, f"size={found}; allowed are 0 or more bytes")
    return found


def _unit(unit: int) -> int:
    found = operator.index(unit)
    if found < 1:
        raise MPIError(ERR_DISP, f"disp_unit={found}; allowed are 1 or more bytes")
    return found
