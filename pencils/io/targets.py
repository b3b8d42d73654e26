"""Where the fields of a file go, and whether they fit there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pencils.array.allocation import Widths
from pencils.array.normalize import HaloLike, as_halo
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError
from pencils.io.boundary import boundary_widths
from pencils.io.dataset_info import DatasetInfo
from pencils.io.options import read_name
from pencils.io.values import encode
from pencils.pencil import Pencil

_NUMBERS = "biufc"  # kinds of element types that can be converted into each other


@dataclass(frozen=True, slots=True)
class Target:
    """What becomes of a field of a file.

    Parameters
    ----------
    pencil : Pencil
        Where its points go.
    halo : tuple of (int, int)
        Halo widths of the new field.
    like : PencilArray or None
        What it must be like.
    filled : bool
        Whether `like` is to be filled, and no new field made.
    """

    pencil: Pencil
    halo: Widths
    like: PencilArray | None = None
    filled: bool = False

    def __repr__(self) -> str:
        """Text that is the same on ranks that agree."""
        text = f"{self.pencil!r} halo={self.halo}"
        if self.like is None:
            return text
        kind = f"{self.like.dtype}{self.like.shape} {sorted(self.like.singletons)}"
        return f"{text} like {kind} {boundary_widths(self.like)} into={self.filled}"


class Targets:
    """Targets by name, or one for all.

    Parameters
    ----------
    named : mapping of str to Target
        Targets of single fields.
    default : Target or None
        That of all others.
    """

    def __init__(self, named: Mapping[str, Target], default: Target | None) -> None:
        self._named = dict(named)
        self._default = default

    @property
    def names(self) -> list[str] | None:
        """Fields that have a place; None if all have."""
        return None if self._default else sorted(self._named)

    def make(self, entry: DatasetInfo, dtype: np.dtype[Any] | None, path: str) -> PencilArray:
        """Return the field to hold what an entry describes.

        Raises
        ------
        ArgumentError, CheckpointError
            If there is none, or it does not fit.
        """
        place = self._named.get(entry.name, self._default)
        if place is None:
            msg = f"there is no place for {entry.name!r}: it is neither in template nor in into"
            raise ArgumentError(msg)
        singletons = _match(place.pencil, entry, path)
        kind = entry.dtype if dtype is None else _converted(entry, dtype, path)
        if place.like is not None:
            _compare(place.like, entry, singletons, kind, path)
        if place.like is not None and place.filled:
            return place.like
        widths = enumerate(place.halo)
        halo = tuple((0, 0) if dim in singletons else width for dim, width in widths)
        components = entry.shape[: len(entry.shape) - place.pencil.ndim]
        return PencilArray.allocated(
            place.pencil, kind, components, singletons, halo, zero=any(map(any, halo))
        )

    def __repr__(self) -> str:
        return f"{sorted(self._named.items())} {self._default}"


def read_targets(
    template: object, into: object, names: list[str] | None, halo: HaloLike | None, size: int
) -> Targets:
    """Read where fields are to go, over `size` processes.

    Raises
    ------
    ArgumentError, PencilMismatchError, TypeError
        If that is neither a pencil nor given by name, or lies over different processes.
    """
    named = _read_template(template, halo, given=into is not None)
    for name, u in _read_into(into, names).items():
        named[name] = Target(u.pencil, u.halo, u, filled=True)
    default = None
    if isinstance(template, Pencil):
        default = Target(template, _read_widths(halo, template))
    pencils = [place.pencil for place in (*named.values(), *filter(None, [default]))]
    for pencil in pencils:
        if pencil.size != size or not pencil.same_ranks(pencils[0]):
            msg = (
                f"template and into lie over different processes:\n{pencil!r}\n{pencils[0]!r}\n"
                "load them in calls of their own"
            )
            raise PencilMismatchError(msg)
    return Targets(named, default)


def _read_template(template: object, halo: HaloLike | None, *, given: bool) -> dict[str, Target]:
    if isinstance(template, Pencil) or (template is None and given):
        return {}
    if not isinstance(template, Mapping):
        msg = (
            "template must be a Pencil, or a mapping like {'u': u} of fields like those to load, "
            f"not {type(template).__name__}"
        )
        raise TypeError(msg)
    places = {}
    for name, thing in template.items():
        read_name(name)
        if isinstance(thing, Pencil):
            places[name] = Target(thing, _read_widths(halo, thing))
        elif isinstance(thing, PencilArray):
            widths = thing.halo if halo is None else _read_widths(halo, thing.pencil)
            places[name] = Target(thing.pencil, widths, thing)
        else:
            encode(thing)  # a value like those that are saved beside fields; it has no place
    return places


def _read_widths(halo: HaloLike | None, pencil: Pencil) -> Widths:
    return as_halo(0 if halo is None else halo, pencil.ndim)


def _read_into(into: object, names: list[str] | None) -> dict[str, PencilArray]:
    if into is None:
        return {}
    if isinstance(into, PencilArray):
        if names is None or len(names) != 1:
            msg = "to load into one field, name it: load(path, names='u', into=u)"
            raise ArgumentError(msg)
        into = {names[0]: into}
    if not isinstance(into, Mapping) or not all(
        isinstance(one, PencilArray) for one in into.values()
    ):
        msg = f"into must be a PencilArray or a mapping like {{'u': u}}, not {into!r:.80}"
        raise TypeError(msg)
    for name, u in into.items():
        read_name(name)
        if not u.local.flags.writeable:
            msg = f"into[{name!r}] is read-only, like the data it views"
            raise ArgumentError(msg)
    return dict(into)


def _match(pencil: Pencil, entry: DatasetInfo, path: str) -> frozenset[int]:
    """Find the dimensions along which an entry is a singleton, or say why it does not fit."""
    points = entry.points
    lead = len(points) - pencil.ndim
    if lead < 0 or lead != (entry.components if entry.components is not None else lead):
        axes = len(points) - (entry.components or 0)
        msg = (
            f"{entry.name!r} in {path} has shape {points}, {axes} dimensions without "
            f"components; the pencil has {pencil.ndim}: load it onto one with {axes} dimensions"
        )
        raise CheckpointError(msg)
    flags = entry.singletons or (False,) * pencil.ndim
    singletons = set()
    for dim, (extent, there) in enumerate(zip(points[lead:], pencil.shape, strict=True)):
        if extent == 1 and (there != 1 or flags[dim]):
            singletons.add(dim)
        elif extent != there:
            msg = (
                f"{entry.name!r} in {path} has shape {points}; on a pencil of shape "
                f"{pencil.shape} dimension {dim} must have extent {there}, or 1 for a singleton"
            )
            raise CheckpointError(msg)
    return frozenset(singletons)


def _converted(entry: DatasetInfo, dtype: np.dtype[Any], path: str) -> np.dtype[Any]:
    numbers = entry.dtype.kind in _NUMBERS and dtype.kind in _NUMBERS
    if entry.dtype != dtype and not (numbers and np.can_cast(entry.dtype, dtype, "same_kind")):
        msg = f"{entry.name!r} in {path} has dtype {entry.dtype}, which {dtype} cannot hold"
        raise CheckpointError(msg)
    return dtype


def _compare(
    like: PencilArray,
    entry: DatasetInfo,
    singletons: Iterable[int],
    dtype: np.dtype[Any],
    path: str,
) -> None:
    """Raise if a field is not like the entry in all that counts."""
    hint = "" if dtype == like.dtype else f"; dtype={str(like.dtype)!r} would convert it"
    lead = len(entry.shape) - like.pencil.ndim
    pairs = {
        "components": (entry.shape[:lead], like.components),
        "singleton dimensions": (sorted(singletons), sorted(like.singletons)),
        "dtype": (dtype, like.dtype),
        "periodic dimensions": (entry.periodic or like.pencil.periodic, like.pencil.periodic),
    }
    for what, (found, wanted) in pairs.items():
        if found != wanted:
            msg = (
                f"{entry.name!r} in {path} has {what} {found}, the field to be like has {wanted}"
                f"{hint if what == 'dtype' else ''}"
            )
            raise CheckpointError(msg)
