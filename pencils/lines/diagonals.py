"""Diagonals of the matrix of a line solver, as users pass them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np

from pencils.array.allocation import Array
from pencils.array.operands import FieldSpec, check_source, signature
from pencils.array.pencil_array import PencilArray
from pencils.errors import ArgumentError
from pencils.lines.elimination import Row
from pencils.lines.system import System, plain_right
from pencils.lines.task import Lines

# A number for all points, or one for each point of a line, or one for each point of the grid.
Diagonal: TypeAlias = "complex | Array | PencilArray"

_NUMBERS = "iufc"


class Diagonals:
    """Checked diagonals, aligned with rows: entry ``i`` of each belongs to equation ``i``.

    Parameters
    ----------
    lines : Lines
        The lines on which the matrix works.
    given : sequence
        An odd number of diagonals, the lowest first.
    shift : number or PencilArray, optional
        Added to the main diagonal; fields are singletons along the lines.
    periodic : bool
        Whether lines close to rings.
    """

    def __init__(self, lines: Lines, given: Any, shift: Any, *, periodic: bool) -> None:
        self.reach = 0
        self.points = lines.pencil.shape[lines.dim]
        self.periodic = periodic
        if isinstance(given, str | bytes | PencilArray) or not isinstance(
            given, Sequence | np.ndarray
        ):
            kind = type(given).__name__
            raise TypeError(f"diagonals must be a sequence like (lower, main, upper), not {kind}")
        self.values = [
            self._checked(f"diagonals[{number}]", each, lines) for number, each in enumerate(given)
        ]
        if len(self.values) % 2 == 0:
            raise ArgumentError(
                f"diagonals has {len(self.values)} entries; it must be an odd number: as many "
                "below the main diagonal as above it, like (lower, main, upper)"
            )
        self.width = len(self.values) // 2
        self.shift: Diagonal | None = None
        if shift is not None:
            self.shift = self._checked_shift(shift, lines)

    @property
    def fields(self) -> list[PencilArray]:
        """Diagonals that differ between lines."""
        return [each for each in (*self.values, self.shift) if isinstance(each, PencilArray)]

    @property
    def signature(self) -> dict[str, object]:
        """What all ranks must agree on."""
        every = [
            signature(each) if isinstance(each, PencilArray) else each
            for each in (*self.values, self.shift)
        ]
        return {"diagonals": every, "periodic": self.periodic}

    def __str__(self) -> str:
        """Describe the matrix: others have other texts, unless they differ in fields only."""
        digest = blake2b(digest_size=4)
        for each in (*self.values, self.shift):
            known = each is None or isinstance(each, PencilArray)
            digest.update(type(each).__name__.encode() if known else np.asarray(each).tobytes())
        rings = "periodic, " if self.periodic else ""
        return f"{rings}{len(self.values)} diagonals {digest.hexdigest()}"

    def system(self, lines: Lines, moved: Mapping[int, PencilArray]) -> System:
        """Return the equations of the own lines; `moved` has the fields where lines are whole.

        Their keys are the identities of the diagonals.
        """
        columns = [self._along(each, lines, moved) for each in self.values]
        shift = None if self.shift is None else self._along(self.shift, lines, moved)
        matrix: list[Row] = []
        for equation in range(self.points):
            row: Row = {}
            for offset, column in enumerate(columns, -self.width):
                point = equation + offset
                if self.periodic:
                    point %= self.points
                elif not 0 <= point < self.points:
                    continue
                entry = column(equation)
                if offset == 0 and shift is not None:
                    entry = entry + shift(equation)
                row[point] = row.get(point, 0.0) + entry
            matrix.append(row)
        return System(matrix, plain_right(self.points))

    def _checked(self, name: str, value: Any, lines: Lines) -> Diagonal:
        """Check a diagonal."""
        if isinstance(value, PencilArray):
            check_source(value, lines.pencil, FieldSpec(value.dtype, (), value.singletons), name)
            self._check_dtype(name, value.dtype, lines)
            beyond = sorted(lines.spec.singletons - value.singletons)
            if beyond:
                raise ArgumentError(
                    f"{name} varies along dimensions {beyond}, along which the fields are "
                    "singletons; name these in dims="
                )
            return value
        array = np.asarray(value)
        self._check_dtype(name, array.dtype, lines)
        kind = complex if array.dtype.kind == "c" else float
        if array.ndim == 0:
            return kind(array[()])
        if array.shape != (self.points,):
            raise ArgumentError(
                f"{name} has shape {array.shape}; it must be a number, {self.points} numbers along "
                f"dimension {lines.dim}, aligned with rows, or a PencilArray"
            )
        return array.astype(kind)

    def _checked_shift(self, value: Any, lines: Lines) -> Diagonal:
        if np.ndim(value) and not isinstance(value, PencilArray):
            raise ArgumentError(
                f"shift has shape {np.shape(value)}; it must be a number or a PencilArray; add one "
                "number for each point to the main diagonal"
            )
        checked = self._checked("shift", value, lines)
        if isinstance(checked, PencilArray) and lines.dim not in checked.singletons:
            raise ArgumentError(
                f"shift varies along dimension {lines.dim}; it must be a singleton there. Pass the "
                "sum of it and the main diagonal as diagonal"
            )
        return checked

    def _check_dtype(self, name: str, dtype: np.dtype[Any], lines: Lines) -> None:
        if dtype.kind not in _NUMBERS:
            raise TypeError(f"{name} has elements of dtype {dtype}; it must be numbers")
        if dtype.kind == "c" and lines.spec.dtype.kind != "c":
            raise TypeError(f"{name} is complex, but the fields are of {lines.spec.dtype}")

    def _along(self, value: Diagonal, lines: Lines, moved: Mapping[int, PencilArray]) -> Any:
        """Return a function of the equation: the entry, or the entries of all own lines."""
        if isinstance(value, PencilArray):
            rows = of_lines(lines, moved[id(value)])
            return lambda equation: rows[equation if len(rows) > 1 else 0]
        if np.ndim(value):
            numbers = np.asarray(value).tolist()
            return lambda equation: numbers[equation]
        return lambda _: value


def of_lines(lines: Lines, field: PencilArray) -> Array:
    """Values of a field as rows of all own lines, in C order of the memory; one row for all points.

    The field lies on the pencil of the lines, has no components and perhaps singletons.
    """
    if 0 in lines.shape(field.local.shape[lines.dim]):
        return np.zeros((1, 0))
    pencil, lead = lines.pencil, lines.spec.components
    block = field.local.transpose(pencil.order)
    shape = list(lines.shape(1))
    axis = lines.axis
    shape[axis] = block.shape[axis - len(lead)]
    whole = np.broadcast_to(block, shape)
    kind = complex if block.dtype.kind == "c" else float
    return np.moveaxis(whole, axis, 0).reshape(shape[axis], -1).astype(kind)
