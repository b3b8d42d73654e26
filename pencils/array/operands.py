"""Checks of fields and pencils, and the local parts of the operands of elementwise operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Key, plain_array
from pencils.array.base import Field
from pencils.comm.mpi import PerProcess
from pencils.comm.topology import Topology, default_topology
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.pencil import Pencil

_KEPT = 64  # pairs of pencils: those of one program whose fields are mixed
_SCALARS = (int, float, complex, str, bytes, np.generic)


def check_type(name: str, value: object, kind: type) -> None:
    """Raise a TypeError if an argument is not of a type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")


def check_field(name: str, value: object) -> None:
    """Raise a TypeError if an argument is not a field."""
    if not isinstance(value, Field):
        raise TypeError(f"{name} must be a PencilArray, not {type(value).__name__}")


def topology_among(*arguments: object) -> Topology:
    """Return the topology on which ranks agree about these arguments, valid or not.

    It is that of the first pencil or field with more than one rank, else that of the first one,
    else the default. Lists and tuples are searched, too.
    """
    known = pencils_among(*arguments)
    for pencil in known:
        if pencil.size > 1:
            return pencil.topology
    return known[0].topology if known else default_topology()


def pencils_among(*arguments: object, search: bool = True) -> list[Pencil]:
    """List the pencils of arguments, which may be anything; never raises.

    `search`: also in lists and tuples.
    """
    known: list[Pencil] = []
    for argument in arguments:
        with suppress(Exception):  # even the class of an object may be a property that raises
            if search and isinstance(argument, list | tuple):
                known += pencils_among(*argument, search=False)
            pencil = argument.pencil if isinstance(argument, Field) else argument
            if isinstance(pencil, Pencil):
                known.append(pencil)
    return known


def as_pencils(pencils: object) -> list[Pencil]:
    """Check a sequence of pencils, which must use the same processes."""
    if not isinstance(pencils, Sequence):
        raise TypeError(f"pencils must be a sequence of pencils, not {type(pencils).__name__}")
    if not pencils:
        raise ArgumentError("pencils must hold at least one pencil")
    for number, pen in enumerate(pencils):
        check_type(f"pencils[{number}]", pen, Pencil)
        if not pen.same_ranks(pencils[0]):
            raise PencilMismatchError(
                f"pencils[{number}] uses other processes than pencils[0]:\n{pen!r}\n{pencils[0]!r}"
            )
    return list(pencils)


def signature(field: Field) -> dict[str, object]:
    """Return what all ranks must agree on about a field before they communicate."""
    return {
        "pencil": field.pencil,
        "shape": field.shape,
        "dtype": field.dtype,
        "singletons": sorted(field.singletons),
    }


class FieldSpec(NamedTuple):
    """Element type, components and singleton dimensions of fields, without their pencil."""

    dtype: np.dtype[Any]
    components: tuple[int, ...]
    singletons: frozenset[int]

    @classmethod
    def of(cls, u: Field) -> FieldSpec:
        """Return the spec of a field."""
        return cls(u.dtype, u.components, u.singletons)

    @property
    def signature(self) -> dict[str, object]:
        """The same by name, in a form on which ranks can agree."""
        return {
            "dtype": self.dtype,
            "components": self.components,
            "singletons": sorted(self.singletons),
        }


def check_source(
    u: Field | None, pencil: Pencil | None, spec: FieldSpec, name: str = "u", place: str = ""
) -> None:
    """Check a field to be moved, or that there is none where the pencil has no part.

    The pencil is the attribute `place` of what the user calls.
    """
    if u is None and pencil is None:
        return
    check_field(name, u)
    assert u is not None
    if pencil is None:
        raise ArgumentError(f"{name} must be None on a process that has no part in the pencil")
    if u.pencil is not pencil and not (
        u.pencil.same_blocks(pencil)
        or (spec.singletons and matching(u.pencil, pencil, spec.singletons))
    ):
        raise PencilMismatchError(
            f"{name} lies on\n{u.pencil!r}\nbut should lie on{place and f' {place}'}\n{pencil!r}"
        )
    if FieldSpec.of(u) != spec:
        raise ArgumentError(
            f"{name} has dtype {u.dtype}, components {u.components} and singleton dimensions "
            f"{sorted(u.singletons)}; it must have {spec[0]}, {spec[1]} and {sorted(spec[2])}"
        )


def check_place(u: Field, pencil: Pencil, singletons: frozenset[int]) -> None:
    """Check that a field lies on a pencil, whatever its type and components."""
    check_field("u", u)
    check_source(u, pencil, FieldSpec(u.dtype, u.components, singletons))


def check_writeable(u: Field, name: str = "u") -> None:
    """Check that the own points of a field may be written."""
    if not u.local.flags.writeable:
        raise ArgumentError(f"{name} is read-only; pass a writable field")


def check_out(out: Field | None, pencil: Pencil | None, spec: FieldSpec, place: str = "") -> None:
    """Check a field to be filled, if there is one."""
    if out is not None:
        check_source(out, pencil, spec, "out", place)
        check_writeable(out, "out")


def fields_among(*operands: object) -> list[Field]:
    """List the operands that are fields."""
    return [operand for operand in operands if isinstance(operand, Field)]


def common_pencil(fields: Sequence[Field], *, assigned: bool = False) -> Pencil:
    """Return the pencil of a result of all fields.

    Along each dimension where fields vary, they must give every rank the same points of the whole:
    the pencil is theirs there, and that of the first field elsewhere. `assigned`: the second field
    is assigned to the first one.
    """
    pencil = fields[0].pencil
    for number, field in enumerate(fields[1:], 1):
        other = field.pencil
        if other is not pencil and not other.same_blocks(pencil):
            fixed = frozenset.intersection(*(known.singletons for known in fields[:number]))
            joined = _joined()(pencil, fixed, other, field.singletons)
            if joined is None:
                cure = _cure(fields[0], pencil, field, fixed | field.singletons, assigned=assigned)
                raise PencilMismatchError(
                    f"fields of different pencils cannot be mixed; {cure}:\n{pencil!r}\n{other!r}"
                )
            pencil = joined
    return pencil


def mixes(u: Field, v: Field) -> bool:
    """Whether two fields have the same points on every rank, along dimensions where both vary."""
    if u.frame.bare is v.frame.bare or u.pencil is v.pencil:
        return True
    return _joined()(u.pencil, u.singletons, v.pencil, v.singletons) is not None


def _join(
    pencil: Pencil, fixed: frozenset[int], other: Pencil, also: frozenset[int]
) -> Pencil | None:
    """Return the pencil of a result of two fields, which have singletons `fixed` and `also`."""
    if other.same_blocks(pencil):
        return pencil
    if pencil.ndim != other.ndim or not matching(pencil, other, fixed | also):
        return None
    return pencil.along(fixed - also, other) if fixed - also else pencil


_joined = PerProcess(lambda: lru_cache(_KEPT)(_join))  # keeps pencils alive


def matching(pencil: Pencil, other: Pencil, singletons: frozenset[int]) -> bool:
    """Whether both give every rank the same block of fields with these singletons."""
    one, two = pencil.extent(singletons).layout, other.extent(singletons).layout
    return one.same_blocks(two) and pencil.same_ranks(other)


class _Points(NamedTuple):
    """The points of a field, among those of the whole field that a program has."""

    name: str
    kept: tuple[range, ...]
    whole: tuple[int, ...]
    key: str  # what selects the points: ``[:, 1:]``; empty if it selects all

    @property
    def text(self) -> str:
        """The text of the section: ``u[:, 1:]``."""
        return self.name + self.key


def _part(name: str, u: Field, pencil: Pencil, fixed: frozenset[int]) -> _Points:
    """Find the points of a field; `fixed` are the dimensions in which they do not matter."""
    kept, whole, keys = [], [], []
    for dim, split in enumerate(pencil.layout.splits):
        points, n = range(split.points), split.points
        if split.base is not None and not pencil.layout.coarsened:
            points, n = split.kept, split.base.points
        if dim in fixed:
            points, n = range(pencil.shape[dim]), 1
        kept.append(points)
        whole.append(n)
        keys.append(_as_text(points, n))
    key = ""
    if any(each != ":" for each in keys):
        while keys[-1] == ":" and not u.components:
            keys.pop()
        key = f"[{', '.join(['...'] * bool(u.components) + keys)}]"
    return _Points(name, tuple(kept), tuple(whole), key)


def key_of(u: Field) -> str:
    """Write the key of a section."""
    return _part("u", u, u.pencil, u.singletons).key


def _as_text(kept: range, n: int) -> str:
    """Write what selects some points of `n`: a slice, or the index of a single one."""
    if len(kept) == 1 < n:
        return str(kept[0])
    if not kept:
        return "0:0"
    first, after, step = kept[0], kept[-1] + kept.step, kept.step
    begin = "" if first == (0 if step > 0 else n - 1) else str(first)
    end = kept[-1] + (1 if step > 0 else -1)
    shown = str(end - n if 2 * end > n and step > 0 else end)
    return f"{begin}:{'' if not 0 <= after < n else shown}{f':{step}' if step != 1 else ''}"


def _cure(u: Field, pencil: Pencil, v: Field, fixed: frozenset[int], *, assigned: bool) -> str:
    """Explain what to write instead of mixing fields, of which the first lies on `pencil`."""
    other, base = v.pencil, getattr(u, "base", u)
    if not pencil.same_ranks(other):
        return (
            "they use different processes, or the same in another order; create both with the "
            "same comm"
        )
    if pencil.ndim != other.ndim:
        return (
            "they have different numbers of dimensions; for a field that varies along some "
            "dimensions only, pass dims= and the pencil of the other field"
        )
    one = _part("u", u, pencil, fixed)
    two = _part("u" if base is getattr(v, "base", v) else "v", v, other, fixed)
    free = [dim for dim in range(pencil.ndim) if dim not in fixed]
    differing = [dim for dim in free if pencil.shape[dim] != other.shape[dim]]
    if differing:
        cure = _cure_of_shapes(one, pencil, two, other, differing, assigned=assigned)
        return f"their global shapes differ; {cure}"
    here, there = pencil.layout.all_origins, other.layout.all_origins
    moved = [dim for dim in free if here[dim] != there[dim]]
    cure = f"pencils.transpose({two.text}, {one.text}.pencil) moves the second to the blocks of "
    cure += "the first"
    if not moved:
        return cure
    if all(pencil.shape[dim] == 1 for dim in moved):
        cure = f"{two.text}.replicate() gives its plane to all ranks"
    elif not assigned and one.whole == two.whole and all(here[d][1] == there[d][1] for d in moved):
        steps = tuple((here[d][0] - there[d][0]) * (d in moved) for d in range(pencil.ndim))
        wide = all(abs(n) <= min(pair) for n, pair in zip(steps, base.halo, strict=True))
        made = "" if wide else f"make u with halo={max(map(abs, steps))}, "
        cure = (
            f"for neighbours {made}call u.exchange_halo() and write "
            f"(u.shift({steps}) - {two.name}){two.key}; {cure}"
        )
    return f"they are sections of different points: {cure}"


def _cure_of_shapes(
    one: _Points,
    pencil: Pencil,
    two: _Points,
    other: Pencil,
    differing: list[int],
    *,
    assigned: bool,
) -> str:
    for part, shape in ((one, pencil.shape), (two, other.shape)):
        if any(shape[dim] == 1 for dim in differing):
            return f"{part.text}.replicate() gives its plane to all ranks"
    if one.whole == two.whole:
        part, key = (two, one.key) if one.key else (one, two.key)
        return f"take the same section of both, as in {part.name}{key}"
    few, many = (one, two) if sum(pencil.shape) < sum(other.shape) else (two, one)
    if pencil.shares_blocks(other):
        moved, target = (two, one) if assigned else (many, few)
        return (
            "they share their blocks: "
            f"{moved.text}.shift({(0,) * pencil.ndim}, onto={target.text}.pencil) moves one"
        )
    halved = [len(many.kept[dim]) // 2 + 1 for dim in differing]
    if [len(few.kept[dim]) for dim in differing] == halved:
        return f"if {few.name} has the waves of {many.name}, transform it: fft.backward({few.text})"
    return "transpose() cannot help; take sections with the same numbers of points"


def local_part(operand: Any, pencil: Pencil) -> tuple[Any, frozenset[int]]:
    """Local part of an operand, and the dimensions along which it is a singleton.

    An array is a singleton where it has extent 1, even if this is the extent of the pencil.
    """
    if isinstance(operand, Field):
        return operand.local, operand.singletons
    if isinstance(operand, _SCALARS):
        return operand, everywhere(pencil.ndim)
    array = plain_array(operand)
    if array.ndim == 0:
        return array[()], everywhere(pencil.ndim)
    key, singletons = key_of_data(array.shape, pencil)
    return array[key], singletons


def key_of_data(shape: tuple[int, ...], pencil: Pencil) -> tuple[Key, frozenset[int]]:
    """Index of the local part of replicated data, and their singleton dimensions."""
    missing, box = pencil.ndim - len(shape), pencil.box()
    key: list[Any] = []
    singletons = set(range(missing))
    for dim in range(max(0, missing), pencil.ndim):
        extent = shape[dim - pencil.ndim]
        if extent == 1:
            key.append(slice(None))
            singletons.add(dim)
        elif extent == pencil.shape[dim]:
            key.append(slice(box.start[dim], box.stop[dim]))
        else:
            raise ArgumentError(does_not_broadcast(shape, pencil.shape, box.shape))
    return (Ellipsis, *key), frozenset(singletons)


def local_parts(
    operands: Iterable[Any],
    pencil: Pencil,
    part_of: Callable[[Any, Pencil], tuple[Any, frozenset[int]]] = local_part,
) -> tuple[list[Any], frozenset[int]]:
    """Local parts of operands, and the dimensions along which all are singletons."""
    parts, singletons = [], everywhere(pencil.ndim)
    for operand in operands:
        part, along = part_of(operand, pencil)
        parts.append(part)
        singletons &= along
    return parts, singletons


def check_fits(singletons: frozenset[int], out: Field, pencil: Pencil) -> None:
    """Check that values are singletons along every dimension along which `out` is replicated."""
    replicated = sorted(out.singletons - singletons)
    hint = "write u = u * v for a new field instead of u *= v or out=u, or reduce the values first"
    if any(pencil.shape[dim] != 1 for dim in replicated):
        shape = (*out.components, *pencil.extent(singletons).shape)
        raise ArgumentError(
            f"values of shape {shape} do not fit into a field of shape {out.shape}, which is "
            f"replicated along dimensions {replicated}; {hint}"
        )
    apart = [dim for dim in replicated if dim in pencil.decomp]
    if apart:
        raise ArgumentError(
            f"the values exist only on the ranks that own their point along dimensions {apart}, "
            f"but all ranks store the field of shape {out.shape}; {hint}, or call .replicate() on "
            "the values first"
        )


@cache
def everywhere(ndim: int) -> frozenset[int]:
    """All dimensions: a scalar is a singleton along each."""
    return frozenset(range(ndim))


def does_not_broadcast(
    given: tuple[int, ...], shape: tuple[int, ...], local: tuple[int, ...]
) -> str:
    """Explain that data do not broadcast, and whether they fit the own block."""
    hint = f"pass data of shape {shape}, or of extent 1 along axes where they do not vary"
    if given[max(0, len(given) - len(local)) :] == local:
        hint = "it fits the own block: write u.local on both sides"
    elif given == shape[::-1]:
        hint = "write values.T for data whose axes are in the other order"
    elif len(given) == 1 and given[0] in shape:
        axis = shape.index(given[0])
        after = ", ".join([":", *["numpy.newaxis"] * (len(shape) - 1 - axis)])
        hint = f"write values[{after}] for data along axis {axis}"
    return (
        f"NumPy data of shape {given} are taken as global and do not broadcast to the global shape "
        f"{shape}; {hint}"
    )
