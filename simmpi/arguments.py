"""Checks of the arguments of `simulate`, and of what its function takes from outside."""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from simmpi.communicators import COMM_NULL, COMM_SELF, COMM_WORLD, Comm
from simmpi.ranks import Fault


def positive(number: int, name: str) -> int:
    """Return an integer that is 1 or more."""
    found = integer(number, name)
    if found < 1:
        raise ValueError(f"{name}={found} must be 1 or more")
    return found


def integer(number: int, name: str) -> int:
    """Return an integer."""
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"{name}={number!r} must be an integer") from None


def nodes_of_ranks(nodes: int | Sequence[int] | None, size: int) -> list[int]:
    """Return the node of each rank."""
    if nodes is None:
        return [0] * size
    if not isinstance(nodes, Iterable):
        number = positive(nodes, "nodes")
        return [rank * number // size for rank in range(size)]
    found = [integer(node, "entry of nodes") for node in nodes]
    if len(found) != size:
        raise ValueError(
            f"nodes={found} has {len(found)} entries for {size} ranks; pass the node of each rank, "
            "or the number of nodes"
        )
    return found


def faults_of_ranks(faults: Iterable[Fault] | None, size: int) -> list[Fault]:
    """Return a list of faults, each of an existing rank."""
    error = TypeError(f"faults={faults!r} must be a sequence of Fault")
    try:
        found = list(() if faults is None else faults)
    except TypeError:
        raise error from None
    if not all(isinstance(fault, Fault) for fault in found):
        raise error
    for fault in found:
        if not 0 <= fault.rank < size:
            raise ValueError(f"{fault}: there are ranks 0 to {size - 1}")
    return found


def check_program(function: Callable[..., object], args: Sequence[object]) -> None:
    """Raise if a function uses a communicator, a pencil or a field that was made outside of it.

    These are of other ranks. Only names are looked at that the function, and functions of the same
    file that it uses, refer to.
    """
    for name, value in [*_names_of(function), *((f"args[{i}]", a) for i, a in enumerate(args))]:
        what = _made_outside(value)
        if what:
            raise ValueError(
                f"{getattr(function, '__qualname__', function)} uses {name}, {what} that was made "
                "outside of the simulated ranks; make it inside the function, with "
                "MPI.COMM_WORLD of the simulated ranks"
            )


def _made_outside(value: object) -> str:
    """Describe a value that belongs to other ranks: a communicator, or what is made with one."""
    real = sys.modules.get("mpi4py.MPI")
    kinds = (Comm,) if real is None else (Comm, real.Comm)
    if isinstance(value, kinds):
        everywhere = any(value is one for one in (COMM_WORLD, COMM_SELF, COMM_NULL))
        return "" if everywhere else "a communicator"
    if any(isinstance(getattr(one, "comm", None), kinds) for one in (value, *_parts(value))):
        return f"a {type(value).__name__}"
    return ""


def _parts(value: object) -> Iterator[object]:
    """Yield the objects that an instance holds as attributes."""
    if isinstance(value, type | ModuleType | FunctionType):
        return
    yield from getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            yield getattr(value, name, None)


def _names_of(function: Any) -> Iterator[tuple[str, object]]:
    """Find global names and variables of outer functions that a function refers to."""
    owner = getattr(function, "__self__", None)
    yield "its object", owner
    yield from getattr(owner, "__dict__", {}).items()
    function = getattr(function, "__func__", function)
    todo, seen = [function], set()
    while todo:
        each = todo.pop()
        if not isinstance(each, FunctionType) or each in seen:
            continue
        seen.add(each)
        for name, value in _references(each):
            yield name, value
            if getattr(value, "__globals__", None) is function.__globals__:
                todo.append(value)


def _references(function: FunctionType) -> Iterator[tuple[str, object]]:
    codes = [function.__code__]
    for code in codes:
        codes.extend(const for const in code.co_consts if isinstance(const, CodeType))
        for name in code.co_names:
            value = function.__globals__.get(name)
            if value is not None and (not _made_outside(value) or _reads(code, name)):
                yield name, value
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield from (function.__kwdefaults__ or {}).items()
    yield from (("a default", value) for value in function.__defaults__ or ())


def _reads(code: CodeType, name: str) -> bool:
    """Whether a name is a global variable in some code, and not only an attribute."""
    return any(
        each.opname in {"LOAD_GLOBAL", "LOAD_NAME"} and each.argval == name
        for each in dis.get_instructions(code)
    )
