"""The names of the simulated MPI: a module like ``mpi4py.MPI``.

While a simulation is installed, these names replace those of the module that programs have
imported, and constants of that module that a program has taken before are translated.
"""

from __future__ import annotations

import pickle as _pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

from simmpi import constants, exceptions, groups, handles
from simmpi.communicators import COMM_NULL, COMM_SELF, COMM_WORLD, Comm, Intracomm
from simmpi.groups import Group
from simmpi.handles import Errhandler, Info
from simmpi.messages.generalized import Grequest
from simmpi.messages.matched import Message
from simmpi.messages.operation import Status
from simmpi.messages.requests import Prequest, Request
from simmpi.topologies import Cartcomm, Distgraphcomm, Graphcomm, Topocomm
from simmpi.types import buffers, datatypes, memory
from simmpi.types.datatypes import COMBINERS, Datatype, by_code, by_name
from simmpi.types.operations import Op, by_operation
from simmpi.windows.windows import WIN_NULL, Win
from simmpi.world import active, running_world


class Pickle:
    """Pickles objects, as the lowercase methods do."""

    PROTOCOL = _pickle.HIGHEST_PROTOCOL

    def dumps(self, obj: object) -> bytes:
        """Pickle an object."""
        return _pickle.dumps(obj, self.PROTOCOL)

    def loads(self, data: bytes) -> Any:
        """Unpickle an object."""
        return _pickle.loads(data)  # noqa: S301 - of the program itself


class Intercomm(Comm):
    """A communicator of two groups, which simulated ranks do not have."""


def Is_initialized() -> bool:
    """Whether MPI has started: always."""
    return True


def Is_finalized() -> bool:
    """Whether the simulation has ended."""
    world = active()
    return world is None or world.finalized


def Init() -> None:
    """Start MPI, which has been done."""


def Init_thread(required: int = constants.THREAD_MULTIPLE) -> int:  # noqa: ARG001
    """Start MPI, which has been done."""
    return constants.THREAD_SERIALIZED


def Finalize() -> None:
    """End MPI, which the end of the simulation does."""


def Query_thread() -> int:
    """Return which threads may call MPI: one at a time."""
    return constants.THREAD_SERIALIZED


def Is_thread_main() -> bool:
    """Whether this is the thread of the rank."""
    return True


def Get_version() -> tuple[int, int]:
    """Version of the standard."""
    return constants.VERSION, constants.SUBVERSION


def Get_library_version() -> str:
    """Name of this implementation."""
    return "simmpi"


def Get_processor_name() -> str:
    """Name of the node of this rank."""
    world = running_world()
    return f"node{world.nodes[world.rank.number]}"


def Wtime() -> float:
    """Seconds since some time in the past."""
    return time.perf_counter()


def Wtick() -> float:
    """Resolution of `Wtime`."""
    return time.get_clock_info("perf_counter").resolution


def Compute_dims(nnodes: int, dims: int | Sequence[int]) -> list[int]:
    """Distribute ranks over the dimensions of a grid; extents that are not 0 stay."""
    found = [0] * dims if isinstance(dims, int) else list(dims)
    left = nnodes
    for extent in found:
        if extent:
            left, rest = divmod(left, extent)
            if rest:
                raise exceptions.MPIError(
                    exceptions.ERR_DIMS, f"{nnodes} ranks do not divide into {found}"
                )
    free = [place for place, extent in enumerate(found) if not extent]
    if not free and left != 1:
        raise exceptions.MPIError(exceptions.ERR_DIMS, f"{nnodes} ranks are not {found}")
    for place, extent in zip(free, _balanced(left, len(free)), strict=True):
        found[place] = extent
    return found


def _balanced(number: int, parts: int) -> list[int]:
    """Divide a number into factors that differ little, the largest first."""
    if parts == 0:
        return []
    best = [number] + [1] * (parts - 1)

    def search(left: int, chosen: list[int]) -> None:
        nonlocal best
        if len(chosen) == parts - 1:
            factors = sorted([*chosen, left], reverse=True)
            if (factors[0], factors) < (best[0], best):
                best = factors
            return
        for factor in range(1, left + 1):
            if left % factor == 0:
                search(left // factor, [*chosen, factor])

    search(number, [])
    return best


def Get_address(location: Any) -> int:
    """Address of a buffer."""
    return buffers.as_buffer([location, by_name["BYTE"]]).address


def Aint_add(base: int, disp: int) -> int:
    """Add a displacement to an address."""
    return base + disp


def Aint_diff(addr1: int, addr2: int) -> int:
    """Difference of two addresses."""
    return addr1 - addr2


def Attach_buffer(buf: Any) -> None:
    """Give memory to buffered sends, which do not need it here."""
    world = running_world()
    if world.rank.number in world.attached:
        raise exceptions.MPIError(exceptions.ERR_BUFFER, "a buffer is attached; detach it first")
    world.attached[world.rank.number] = buf


def Detach_buffer() -> Any:
    """Return the memory of `Attach_buffer`."""
    world = running_world()
    return world.attached.pop(world.rank.number, None)


def Flush_buffer() -> None:
    """Wait until no buffered send needs the memory, which none does."""


def Iflush_buffer() -> Request:
    """Start `Flush_buffer`, which is complete."""
    return Request()


def Pcontrol(level: int) -> None:
    """Control profiling, of which there is none."""


def Get_error_class(errorcode: int) -> int:
    """Class of an error code, which is the code."""
    return errorcode


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    """Name and version of this implementation."""
    return "simmpi", (1, 0, 0)


_CLASSES = (
    *(Comm, Intracomm, Intercomm, Topocomm, Cartcomm, Graphcomm, Distgraphcomm, Datatype, Group),
    *(Errhandler, Info, Status, Op, Message, Request, Prequest, Grequest, Win, Pickle),
)
_FUNCTIONS = (
    *(Is_initialized, Is_finalized, Init, Init_thread, Finalize, Query_thread, Is_thread_main),
    *(Get_version, Get_library_version, Get_processor_name, Get_error_class, get_vendor),
    *(Attach_buffer, Detach_buffer, Flush_buffer, Iflush_buffer),
    *(Wtime, Wtick, Compute_dims, Get_address, Aint_add, Aint_diff, Pcontrol),
)


def _namespace() -> dict[str, Any]:
    """Collect all names."""
    here: dict[str, Any] = {value.__name__: value for value in (*_CLASSES, *_FUNCTIONS)}
    for module in (constants, exceptions, groups, handles):
        here |= {name: value for name, value in vars(module).items() if name.isupper()}
    here |= {f"COMBINER_{name}": number for number, name in enumerate(COMBINERS, 1)}
    here |= {name: value for name, value in vars(datatypes).items() if isinstance(value, Datatype)}
    here |= by_name | by_operation | {"_typedict": by_code}
    here |= {
        "COMM_NULL": COMM_NULL,
        "WIN_NULL": WIN_NULL,
        "COMM_SELF": COMM_SELF,
        "COMM_WORLD": COMM_WORLD,
        "REQUEST_NULL": Request(),
        "MESSAGE_NULL": Message(),
        "MESSAGE_NO_PROC": Message.of(None, None),
        "Exception": exceptions.MPIError,
        "Get_error_string": exceptions.error_string,
        "pickle": Pickle(),
        "buffer": memory.buffer,
        "memory": memory.buffer,
        "Alloc_mem": memory.Alloc_mem,
        "Free_mem": memory.Free_mem,
        "BOTTOM": buffers.BOTTOM,
        "IN_PLACE": buffers.IN_PLACE,
    }
    return here


# ---- what mpi4py has and simulated ranks do not: each name raises an error that says so ----

_HANDLES = "fromhandle fromint toint f2py py2f"
_METHODS = {
    "Comm": f"""
        {_HANDLES} handle Spawn Spawn_multiple Accept Connect Join Create_intercomm
        Create_from_group Create_from_groups Psend_init Precv_init Revoke Is_revoked Shrink Ishrink
        Agree Iagree Get_failed Ack_failed Attach_buffer Detach_buffer Flush_buffer Iflush_buffer
        Create_errhandler Call_errhandler
    """,
    "Intracomm": "Cart_map Graph_map",
    "Intercomm": "Get_remote_group Get_remote_size Merge remote_group remote_size",
    "Datatype": f"""
        {_HANDLES} Create_darray Create_f90_complex Create_f90_integer Create_f90_real Match_size
        Create_keyval Free_keyval Get_attr Set_attr Delete_attr Get_contents Get_envelope contents
        envelope Get_value_index Pack_external Pack_external_size Unpack_external
    """,
    "Group": f"{_HANDLES} handle Create_from_session_pset",
    "Info": f"{_HANDLES} handle Create_env",
    "Errhandler": f"{_HANDLES} handle",
    "Message": f"{_HANDLES} handle free",
    "Op": f"{_HANDLES} handle",
    "Request": f"""
        {_HANDLES} handle Parrived Pready Pready_list Pready_range
        Get_status_all Get_status_any Get_status_some
        get_status_all get_status_any get_status_some
    """,
    "Status": "f2py py2f tomemory",
    "Win": f"{_HANDLES} handle Create_errhandler Call_errhandler",
    "Pickle": "dumps_oob loads_oob",
}


def refuse(name: str) -> NoReturn:
    """Raise for a name that is not simulated."""
    raise NotImplementedError(f"{name} is not simulated; run this program with mpiexec")


class AbsentMethod:
    """A method or property of a class; taking it from an object of the class raises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Callable[..., Any]:
        return Absent(self._name) if instance is None else refuse(self._name)


class Absent:
    """A function or class of the module; using it raises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raise."""
        refuse(self._name)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # which Python looks up by itself
            raise AttributeError(attribute)
        return refuse(self._name)

    def __instancecheck__(self, instance: object) -> bool:
        return False  # there are no objects of it

    def __bool__(self) -> bool:
        return False  # as null handles


def _absent_names(real: ModuleType, names: dict[str, Any]) -> dict[str, Absent]:
    """Stand-ins for what a module like ``mpi4py.MPI`` has besides some names, but for numbers."""
    return {
        name: Absent(f"MPI.{name}")
        for name, value in vars(real).items()
        if not name.startswith("__") and name not in names and not isinstance(value, int)
    }


NAMES = _namespace()
for _class, _methods in _METHODS.items():
    for _method in _methods.split():
        setattr(NAMES[_class], _method, AbsentMethod(f"MPI.{_class}.{_method}"))
MODULE = ModuleType("mpi4py.MPI", "A simulated MPI, with the names of mpi4py.")
vars(MODULE).update(NAMES)


@contextmanager
def names_replaced() -> Iterator[None]:
    """Replace the names of the module ``mpi4py.MPI``, if it is there, in the block."""
    real = sys.modules.get("mpi4py.MPI")
    if real is None or real is MODULE or vars(real).get("COMM_WORLD") is COMM_WORLD:
        yield
        return
    names = NAMES | _absent_names(real, NAMES)
    before = {name: vars(real)[name] for name in names if name in vars(real)}
    for name, value in before.items():  # a program may have taken these constants before
        if name in by_name or name in by_operation or name in {"IN_PLACE", "BOTTOM"}:
            buffers.foreign[id(value)] = NAMES[name]
    vars(real).update(names)
    try:
        yield
    finally:
        for name in names:
            if name in before:
                setattr(real, name, before[name])
            else:
                delattr(real, name)
