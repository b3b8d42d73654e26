"""What functions of fields have in common: axes, checks of arguments, warnings of all ranks."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array, plain_array
from pencils.array.base import Field
from pencils.array.global_reduction import Reduction, own_part
from pencils.array.operands import check_field, signature, topology_among
from pencils.comm.agree import agreed
from pencils.errors import ArgumentError
from pencils.layout.integers import as_dim
from pencils.layout.layout import Layout
from pencils.layout.split import Split

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI


class Line(NamedTuple):
    """One axis of a field: in one part if it is not decomposed, or replicated."""

    split: Split
    part: int  # of this rank
    stride: int  # in rank to the next part; 0 if there is one only

    @classmethod
    def of(cls, u: Field, axis: int) -> Line:
        """Return an axis of a field; local."""
        dim = axis - len(u.components)
        if dim < 0:
            return cls.whole(u.components[axis])
        return cls.along(u.extent.layout, u.pencil.rank, dim)

    @classmethod
    def along(cls, layout: Layout, rank: int, dim: int) -> Line:
        """Return a dimension of a layout."""
        split = layout.splits[dim]
        if split.parts == 1 or split.replicated:
            return cls.whole(split.points)
        return cls(split, layout.parts(rank)[dim], layout.strides[dim])

    @classmethod
    def whole(cls, points: int) -> Line:
        """Return an axis that is not cut."""
        return cls(Split(points, 1), 0, 0)

    @property
    def is_cut(self) -> bool:
        """Whether there is more than one part."""
        return self.split.parts > 1

    @property
    def bounds(self) -> tuple[int, int]:
        """First own index and the one after the last."""
        return self.split.bounds(self.part)

    @property
    def filled(self) -> list[int]:
        """Parts that have points."""
        return [part for part in range(self.split.parts) if range(*self.split.bounds(part))]


def decomposed_axes(u: Field) -> set[int]:
    """Axes that are decomposed: the same on any number of ranks, one included."""
    lead = len(u.components)
    return {lead + dim for dim in u.pencil.decomp if dim not in u.singletons}


def comm_along(u: Field, axis: int) -> MPI.Intracomm:
    """Communicator of the ranks along a decomposed axis; their ranks are the parts.

    *Collective* over all ranks of the field the first time.
    """
    layout = u.extent.layout
    dim = axis - len(u.components)
    return u.pencil.topology.along(layout.grid, [layout.decomp.index(dim)])


def one_axis(call: str, u: Field, axis: object) -> int:
    """Return the number of one axis; the axis may be left out if there is only one."""
    if axis is not None:
        return as_dim("axis", axis, u.ndim)
    if u.ndim != 1:
        raise ArgumentError(
            f"{call} without axis= would flatten a field of shape {u.shape} across all blocks; "
            f"pass axis=, one of 0..{u.ndim - 1}"
        )
    return 0


# From here through the function that NumPy calls, `apply_function` and ``__array_function__``.
_TO_USER = 5


def check_given(name: str, a: object, *others: object, parameter: str = "a") -> None:
    """Raise on all ranks if the first argument is no field, but others are."""
    if not isinstance(a, Field):
        with agreed(topology_among(a, *others).comm, name):
            check_field(f"{name}: {parameter}", a)


def check_first(name: str, a: object) -> None:
    """Raise if the first argument of a function of NumPy is no field."""
    if not isinstance(a, Field):
        raise TypeError(f"numpy.{name}: give the PencilArray first, without a keyword")


def check_no_out(name: str, out: object) -> None:
    """Raise if a function that has no ``out=`` for fields gets one."""
    if out is not None:
        raise TypeError(f"numpy.{name} of a PencilArray takes no out=; use the result")


def facts_of(operand: Any) -> object:
    """Return what all ranks must agree on about a field, an array or a scalar, without values."""
    if isinstance(operand, Field):
        return signature(operand)
    if operand is None:
        return None
    array = np.asarray(operand)
    return array.shape, array.dtype


def own_values(u: Field, block: Array) -> Array:
    """Put the values of a block of a field into one row, a view if possible.

    There are none if another rank has the same values, as replicas of singletons.
    """
    if not Reduction.of("", u, None, None, False).contributes:
        return block.reshape(-1)[:0]
    return block.transpose(u.frame.axes(len(u.components))[0]).reshape(-1)


def weights_part(weights: Any, a: Field, axes: tuple[int, ...] | None) -> Array:
    """Own part of weights of a field, or of its extents along axes, in the given order."""
    if isinstance(weights, Field):
        return own_part(weights, a)
    array = plain_array(weights)
    if array.shape != a.shape:
        if axes is None:
            raise TypeError(
                f"weights of shape {array.shape} for a field of shape {a.shape}: give axis=, or "
                "weights of the same shape"
            )
        along = tuple(a.shape[i] for i in axes)
        if array.shape != along:
            raise ArgumentError(
                f"weights of shape {array.shape} must have the shape {a.shape} of the field, or "
                f"that along axes {axes}, {along}"
            )
        turned = array.transpose(np.argsort(axes))
        array = turned.reshape([n if i in axes else 1 for i, n in enumerate(a.shape)])
    return own_part(array, a)


def own_weights(weights: Any, u: Field) -> Array | None:
    """Own weights of each point of a field in one row, as `own_values`; None if there are none."""
    if weights is None:
        return None
    if not isinstance(weights, Field):
        weights = plain_array(weights)
        if weights.shape != u.shape:
            raise ArgumentError(
                f"weights of shape {weights.shape} must have the shape {u.shape} of the field"
            )
    return own_values(u, own_part(weights, u))


def warn(text: str, up: int = 0) -> None:
    """Warn the caller of a NumPy function. All ranks must do so, after they have communicated.

    `up` is the number of calls between this one and the function that replaces NumPy's.
    """
    warnings.warn(text, RuntimeWarning, stacklevel=_TO_USER + up)
