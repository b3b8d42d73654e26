"""Choose where the fields of a file go, and check that they fit there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import HaloLike, Widths, as_halo
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError, CheckpointError, PencilMismatchError
from pencils.io.file_info import DatasetInfo, encode
from pencils.io.options import read_name
from pencils.io.slabs import boundary_widths
from pencils.pencil import Pencil

_NUMBERS = "biufc"  # kinds of dtypes that can be converted into each other


@dataclass(frozen=True, slots=True)
class Target:
    """Where one field goes.

    Parameters
    ----------
    pencil : Pencil
        The distribution of its points.
    halo : tuple of (int, int)
        Halo widths of a new field.
    like : PencilArray or None
        A field whose components, dtype and so on it must have.
    filled : bool
        Whether to fill `like` instead of a new field.
    """

    pencil: Pencil
    halo: Widths
    like: PencilArray | None = None
    filled: bool = False

    def make(self, dataset: DatasetInfo, dtype: np.dtype[Any] | None, path: str) -> PencilArray:
        """Return the field that a dataset is read into. Local.

        Raises
        ------
        CheckpointError
            If the dataset does not fit.
        """
        singletons = _match(self.pencil, dataset, path)
        kind = dataset.dtype if dtype is None else _converted(dataset, dtype, path)
        if self.like is not None:
            _compare(self.like, dataset, singletons, kind, path)
            if self.filled:
                return self.like
        widths = enumerate(self.halo)
        halo = tuple((0, 0) if dim in singletons else width for dim, width in widths)
        components = dataset.shape[: len(dataset.shape) - self.pencil.ndim]
        return PencilArray.allocated(
            self.pencil, kind, components, singletons, halo, zero=any(map(any, halo))
        )

    def canonical_form(self) -> object:
        """Return what must be the same on all ranks: of `like` shape and dtype, not data."""
        return repr(self)

    def __repr__(self) -> str:
        text = f"{self.pencil!r} halo={self.halo}"
        if self.like is None:
            return text
        kind = f"{self.like.dtype}{self.like.shape} {sorted(self.like.singletons)}"
        return f"{text} like {kind} {boundary_widths(self.like)} into={self.filled}"


class Targets(NamedTuple):
    """Targets by name, sorted, and one for all other fields, or None."""

    named: Mapping[str, Target]
    default: Target | None

    @property
    def names(self) -> list[str] | None:
        """Fields that have a target; None if all have."""
        return None if self.default else list(self.named)

    def find(self, name: str) -> Target:
        """Return the target of a field; raise ArgumentError if it has none."""
        target = self.named.get(name, self.default)
        if target is None:
            msg = f"there is no place for {name!r}: it is neither in template nor in into; add it"
            raise ArgumentError(msg)
        return target


def read_targets(
    template: object, into: object, names: list[str] | None, halo: HaloLike | None, size: int
) -> Targets:
    """Make targets of arguments of `load`, on `size` processes.

    Raises
    ------
    ArgumentError, PencilMismatchError, TypeError
        If `template` is neither a pencil nor a mapping, `into` not a field or a mapping of fields,
        or they are on different processes.
    """
    named = _read_template(template, halo, given=into is not None)
    for name, u in _read_into(into, names).items():
        named[name] = Target(u.pencil, u.halo, u, filled=True)
    default = None
    if isinstance(template, Pencil):
        default = Target(template, _read_widths(halo, template))
    pencils = [target.pencil for target in (*named.values(), *filter(None, [default]))]
    for pencil in pencils:
        if pencil.size != size or not pencil.same_ranks(pencils[0]):
            msg = (
                f"template and into are on different processes:\n{pencil!r}\n{pencils[0]!r}\n"
                "load them in calls of their own"
            )
            raise PencilMismatchError(msg)
    return Targets(dict(sorted(named.items())), default)


def _read_template(template: object, halo: HaloLike | None, *, given: bool) -> dict[str, Target]:
    if isinstance(template, Pencil) or (template is None and given):
        return {}
    if not isinstance(template, Mapping):
        msg = (
            "template must be a Pencil, or a mapping like {'u': u} of fields like those to load, "
            f"not {type(template).__name__}"
        )
        raise TypeError(msg)
    targets = {}
    for name, thing in template.items():
        read_name(name)
        if isinstance(thing, Pencil):
            targets[name] = Target(thing, _read_widths(halo, thing))
        elif isinstance(thing, PencilArray):
            widths = thing.halo if halo is None else _read_widths(halo, thing.pencil)
            targets[name] = Target(thing.pencil, widths, thing)
        else:
            encode(thing)  # raises TypeError unless it is a value, which needs no target
    return targets


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
            msg = f"into[{name!r}] is read-only, like the data it views; pass a copy"
            raise ArgumentError(msg)
    return dict(into)


def _match(pencil: Pencil, dataset: DatasetInfo, path: str) -> frozenset[int]:
    """Return the singleton dimensions of a dataset; raise CheckpointError if it does not fit."""
    points = dataset.points
    lead = len(points) - pencil.ndim
    if lead < 0 or lead != (dataset.components if dataset.components is not None else lead):
        axes = len(points) - (dataset.components or 0)
        msg = (
            f"{dataset.name!r} in {path} has shape {points}, {axes} dimensions without "
            f"components; the pencil has {pencil.ndim}: load it onto one with {axes} dimensions"
        )
        raise CheckpointError(msg)
    flags = dataset.singletons or (False,) * pencil.ndim
    singletons = set()
    for dim, (extent, wanted) in enumerate(zip(points[lead:], pencil.shape, strict=True)):
        if extent == 1 and (wanted != 1 or flags[dim]):
            singletons.add(dim)
        elif extent != wanted:
            msg = (
                f"{dataset.name!r} in {path} has shape {points}; on a pencil of shape "
                f"{pencil.shape} dimension {dim} must have extent {wanted}, or 1 for a singleton"
            )
            raise CheckpointError(msg)
    return frozenset(singletons)


def _converted(dataset: DatasetInfo, dtype: np.dtype[Any], path: str) -> np.dtype[Any]:
    numbers = dataset.dtype.kind in _NUMBERS and dtype.kind in _NUMBERS
    if dataset.dtype != dtype and not (numbers and np.can_cast(dataset.dtype, dtype, "same_kind")):
        msg = (
            f"{dataset.name!r} in {path} has dtype {dataset.dtype}, which {dtype} cannot hold; "
            "leave out dtype, or pass a wider one"
        )
        raise CheckpointError(msg)
    return dtype


def _compare(
    like: PencilArray,
    dataset: DatasetInfo,
    singletons: Iterable[int],
    dtype: np.dtype[Any],
    path: str,
) -> None:
    """Raise CheckpointError if a dataset differs from the field that it must be like."""
    hint = "" if dtype == like.dtype else f"; dtype={str(like.dtype)!r} would convert it"
    lead = len(dataset.shape) - like.pencil.ndim
    pairs = {
        "components": (dataset.shape[:lead], like.components),
        "singleton dimensions": (sorted(singletons), sorted(like.singletons)),
        "dtype": (dtype, like.dtype),
        "periodic dimensions": (dataset.periodic or like.pencil.periodic, like.pencil.periodic),
    }
    for what, (found, wanted) in pairs.items():
        if found != wanted:
            msg = (
                f"{dataset.name!r} in {path} has {what} {found}, the field to be like has {wanted}"
                f"{hint if what == 'dtype' else ''}"
            )
            raise CheckpointError(msg)
