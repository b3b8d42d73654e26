"""Banded systems of equations along one dimension: `LineSolver` and `solve_banded`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from pencils.array.allocation import Array
from pencils.array.operands import FieldSpec, check_source, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO, Handle
from pencils.errors import ArgumentError
from pencils.layout.integers import as_int
from pencils.lines.methods import Lines
from pencils.lines.plan import Equations, LinePlan, LineVerb, check_method, lines_of
from pencils.lines.system import Row, System, plain_right
from pencils.pencil import Pencil

# A number for all points, or one for each point of a line, or one for each point of the grid.
Diagonal: TypeAlias = "complex | Array | PencilArray"

_NUMBERS = "iufc"


class LineSolver(LinePlan):
    """Reusable plan that solves banded systems along one dimension. Making it is *Collective*.

    The dimension may be decomposed. There is one system of equations for each line of points: a
    matrix with few diagonals, and a field of right sides.

    Parameters
    ----------
    pencil : Pencil
        The pencil of right sides and solutions.
    axis : int
        Dimension of the lines, ``n`` points long.
    diagonals : sequence
        An odd number of diagonals, the lowest first: ``(lower, main, upper)`` is tridiagonal. Each
        is a number, or `n` numbers that all ranks pass alike, or a field on `pencil`, singletons
        included, if lines differ. They are aligned with rows: ``lower[i]`` multiplies ``x[i - 1]``
        in equation ``i``. Entries outside of the matrix are not read.
    shift : number or PencilArray, optional
        Added to the main diagonal: a field that is a singleton along `axis`, like the squares of
        wavenumbers in the equations of Poisson and Helmholtz.
    periodic : bool, optional
        Whether the first point is beside the last one, so that ``lower[0]`` multiplies ``x[-1]``
        and ``upper[-1]`` multiplies ``x[0]``.
    dtype : dtype, optional
        Type of the fields: float or complex.
    components : int or sequence of int, optional
        Shape of the component axes, which are solved in one pass.
    dims : int or sequence of int, optional
        Dimensions along which the fields vary; they are singletons along the others.
    method : {"auto", "local", "shared", "reduced", "transposed"}, optional
        How lines that are cut are solved. "shared": each rank solves some of the lines, where they
        are, in the memory of all ranks of the node; for fields made with ``shared=True``.
        "reduced": each rank solves its part, and ranks exchange a few planes; for diagonals without
        fields. "transposed": fields move to ``pencil.whole(axis)`` and back. "auto" takes the first
        of these that is possible. Whole lines are always solved in place ("local").
    singular : {"raise", "pin"}, optional
        What to do with matrices whose last pivot vanishes, as with derivatives given at both ends:
        raise, or set the last point of such lines to 0, so that all equations but one are
        fulfilled: the last one, unless rows are interchanged.
    check : bool, optional
        Whether all ranks agree on the arguments of every call.

    Attributes
    ----------
    method : {"local", "shared", "reduced", "transposed"}
        The method in use. If "auto" was asked for, fields in shared memory are solved by "shared"
        instead, where the ranks of all lines are on one node.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if an argument does not fit, a matrix is singular, or elimination would not
        be stable: rows are interchanged only where the diagonals are the same for all lines.

    Notes
    -----
    Accuracy is that of Gaussian elimination. "reduced" is the method SPIKE of Polizzi and Sameh,
    Parallel Computing 32 (2006) 177-194; weights below 1e-17 of the largest are left out, and a
    random line is solved when the plan is made: where blocks are ill conditioned, it is not used.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> pen = pencils.Pencil((6, 4))
    >>> b = pencils.ones(pen)
    >>> with pencils.lines.LineSolver(pen, 0, (-1, 2, -1)) as solve:
    ...     solve(b).local[:, 0]
    array([3., 5., 6., 6., 5., 3.])
    """

    def __init__(
        self,
        pencil: Pencil,
        axis: int,
        diagonals: Sequence[Diagonal],
        *,
        shift: Diagonal | None = None,
        periodic: bool = False,
        dtype: DTypeLike = float,
        components: int | Sequence[int] = (),
        dims: Sequence[int] | int | None = None,
        method: str = AUTO,
        singular: Literal["raise", "pin"] = "raise",
        check: bool = True,
    ) -> None:
        with agreed(topology_among(pencil).comm, "LineSolver") as agree:
            lines = lines_of(pencil, axis, dtype, components, dims)
            check_method(method)
            if singular not in {"raise", "pin"}:
                raise ArgumentError(f"singular={singular!r} must be 'raise' or 'pin'")
            values = _checked_diagonals(diagonals, lines)
            added = None if shift is None else _checked_shift(shift, lines)
            periodic, check = bool(periodic), bool(check)
            every = [
                signature(each) if isinstance(each, PencilArray) else each
                for each in (*values, added)
            ]
            agree(pencil=pencil, axis=lines.dim, **lines.spec.signature)
            agree(diagonals=every, periodic=periodic, method=method, singular=singular, check=check)
        equations = _diagonal_equations(lines, values, added, periodic=periodic)
        super().__init__(lines, equations, method, pin=singular == "pin", check=check, source="b")

    def __call__(self, b: PencilArray, out: PencilArray | None = None) -> PencilArray:
        """Solve for one right side in each line. *Collective*.

        Parameters
        ----------
        b : PencilArray
            Right sides, with the dtype, components and singletons of the plan; a halo is ignored.
        out : PencilArray, optional
            Field to fill, which may be `b`; default: a new one without halo.

        Returns
        -------
        PencilArray
            `out`.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            If a field does not fit the plan; on every rank, unless the plan does not check.
        """
        return self._run(b, out)

    def start(self, b: PencilArray, out: PencilArray | None = None) -> Handle[PencilArray]:
        """Start to solve, and return before it is done. *Collective*.

        Neither field may be touched before ``wait()`` of the returned handle, which all ranks must
        call and which returns `out`.
        """
        return self._start(b, out)


def solve_banded(
    l_and_u: tuple[int, int],
    ab: ArrayLike,
    b: PencilArray,
    *,
    axis: int,
    periodic: bool = False,
    out: PencilArray | None = None,
) -> PencilArray:
    """Solve one banded system for all lines along an axis. *Collective*.

    The arguments are those of `scipy.linalg.solve_banded`, but lines lie along any axis, and may be
    cut. Plans are kept for calls in a loop; `LineSolver` takes systems that differ between lines,
    too, and gives control over the method, overlap and checks.

    Parameters
    ----------
    l_and_u : (int, int)
        Number of diagonals below and above the main one.
    ab : array_like of shape (l + u + 1, n)
        The matrix, the same on all ranks, its diagonals aligned with columns and the highest first:
        ``ab[u + i - j, j]`` is element ``[i, j]``. `n` is the extent of the axis. Entries outside
        of the matrix are not read.
    b : PencilArray
        Right sides, of float or complex numbers; complex ones if `ab` is complex. A halo is
        ignored.
    axis : int
        An axis of space of ``b.shape``, components first, in ``[-b.ndim, b.ndim)``.
    periodic : bool, optional
        Whether the first point is beside the last one. Entries outside of the matrix are then in
        its corners: ``i - j`` above counts modulo `n`.
    out : PencilArray, optional
        Field to fill, of the type of `b`, which it may be itself; default: a new one without halo.

    Returns
    -------
    PencilArray
        `out`.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if an argument does not fit, or the matrix is singular.

    Examples
    --------
    >>> import pencils
    >>> b = pencils.ones(pencils.Pencil((6, 4)))
    >>> ab = [[-1] * 6, [2] * 6, [-1] * 6]
    >>> pencils.lines.solve_banded((1, 1), ab, b, axis=0).local[:, 0]
    array([3., 5., 6., 6., 5., 3.])
    """

    def read(lines: Lines) -> Equations:
        return _bands(lines, l_and_u, ab, periodic=bool(periodic))

    return LineVerb("solve_banded", "b", b, out, axis, read).run()


def _bands(lines: Lines, l_and_u: Any, ab: Any, *, periodic: bool) -> Equations:
    """Check a matrix whose diagonals are aligned with columns, and return its equations."""
    points = lines.pencil.shape[lines.dim]
    if not isinstance(l_and_u, Sequence) or len(l_and_u) != 2:  # noqa: PLR2004
        raise TypeError(
            f"l_and_u={l_and_u!r} must be a pair of integers: the numbers of diagonals below "
            "and above the main one"
        )
    lower, upper = (as_int(f"l_and_u[{n}]", each, least=0) for n, each in enumerate(l_and_u))
    entries = _checked_bands(lines, lower, upper, ab)
    # The equation of each element of `ab`; some are not among those of the lines.
    numbers = np.arange(lower + upper + 1)[:, np.newaxis] - upper + np.arange(points)
    if not periodic:
        entries[(numbers < 0) | (numbers >= points)] = 0
    if not np.isfinite(entries).all():
        raise ArgumentError("ab has elements that are not finite; they must be numbers")
    digest = blake2b(entries.tobytes(), digest_size=16).hexdigest()
    rings = "periodic, " if periodic else ""
    kind = "complex" if entries.dtype.kind == "c" else "float"
    text = f"{rings}{lower} + 1 + {upper} diagonals of {kind} numbers {digest}"

    def system(_lines: Lines, _moved: Mapping[int, PencilArray]) -> System:
        matrix: list[Row] = [{} for _ in range(points)]
        rings = (numbers % max(1, points)).tolist()
        for equations, given in zip(rings, entries.tolist(), strict=True):
            for column, (equation, entry) in enumerate(zip(equations, given, strict=True)):
                if entry != 0:
                    matrix[equation][column] = matrix[equation].get(column, 0.0) + entry
        return System(matrix, plain_right(points))

    return Equations(text, periodic, max(lower, upper), 0, system)


def _checked_bands(lines: Lines, lower: int, upper: int, ab: Any) -> Array:
    if isinstance(ab, PencilArray):
        raise TypeError(
            "ab is global data, not a PencilArray: one matrix for all lines; LineSolver takes "
            "fields as diagonals"
        )
    array, points = np.asarray(ab), lines.pencil.shape[lines.dim]
    if array.dtype.kind not in _NUMBERS:
        raise TypeError(f"ab has elements of dtype {array.dtype}; it must be numbers")
    if array.dtype.kind == "c" and lines.spec.dtype.kind != "c":
        raise TypeError(f"ab is complex, but b is of {lines.spec.dtype}; pass b.astype(complex)")
    wanted = (lower + upper + 1, points)
    if array.shape != wanted:
        raise ArgumentError(
            f"ab has shape {array.shape}; with l_and_u=({lower}, {upper}) along "
            f"dimension {lines.dim} of {points} points it must be {wanted}"
        )
    return array.astype(complex if array.dtype.kind == "c" else float)


def _diagonal_equations(
    lines: Lines, values: Sequence[Diagonal], shift: Diagonal | None, *, periodic: bool
) -> Equations:
    """Return the equations of diagonals aligned with rows, the lowest first, and of a shift."""
    every = (*values, shift)
    points, width = lines.pencil.shape[lines.dim], len(values) // 2
    digest = blake2b(digest_size=4)
    for each in every:
        known = each is None or isinstance(each, PencilArray)
        digest.update(type(each).__name__.encode() if known else np.asarray(each).tobytes())
    rings = "periodic, " if periodic else ""
    text = f"{rings}{len(values)} diagonals {digest.hexdigest()}"

    def system(lines: Lines, moved: Mapping[int, PencilArray]) -> System:
        columns = [_along(each, lines, moved) for each in values]
        added = None if shift is None else _along(shift, lines, moved)
        matrix: list[Row] = []
        for equation in range(points):
            row: Row = {}
            for offset, column in enumerate(columns, -width):
                point = equation + offset
                if periodic:
                    point %= points
                elif not 0 <= point < points:
                    continue
                entry = column(equation)
                if offset == 0 and added is not None:
                    entry = entry + added(equation)
                row[point] = row.get(point, 0.0) + entry
            matrix.append(row)
        return System(matrix, plain_right(points))

    fields = [each for each in every if isinstance(each, PencilArray)]
    return Equations(text, periodic, width, 0, system, fields)


def _checked_diagonals(given: Any, lines: Lines) -> list[Diagonal]:
    if isinstance(given, str | bytes | PencilArray) or not isinstance(given, Sequence | np.ndarray):
        kind = type(given).__name__
        raise TypeError(f"diagonals must be a sequence like (lower, main, upper), not {kind}")
    values = [_checked(f"diagonals[{number}]", each, lines) for number, each in enumerate(given)]
    if len(values) % 2 == 0:
        raise ArgumentError(
            f"diagonals has {len(values)} entries; it must be an odd number: as many "
            "below the main diagonal as above it, like (lower, main, upper)"
        )
    return values


def _checked(name: str, value: Any, lines: Lines) -> Diagonal:
    """Check a diagonal."""
    is_field = isinstance(value, PencilArray)
    array = value if is_field else np.asarray(value)
    if is_field:
        check_source(value, lines.pencil, FieldSpec(value.dtype, (), value.singletons), name)
    if array.dtype.kind not in _NUMBERS:
        raise TypeError(f"{name} has elements of dtype {array.dtype}; it must be numbers")
    if array.dtype.kind == "c" and lines.spec.dtype.kind != "c":
        raise TypeError(f"{name} is complex, but the fields are of {lines.spec.dtype}")
    if is_field:
        beyond = sorted(lines.spec.singletons - value.singletons)
        if beyond:
            raise ArgumentError(
                f"{name} varies along dimensions {beyond}, along which the fields are "
                "singletons; name these in dims="
            )
        return cast("PencilArray", value)
    kind = complex if array.dtype.kind == "c" else float
    if array.ndim == 0:
        return kind(array[()])
    points = lines.pencil.shape[lines.dim]
    if array.shape != (points,):
        raise ArgumentError(
            f"{name} has shape {array.shape}; it must be a number, {points} numbers along "
            f"dimension {lines.dim}, aligned with rows, or a PencilArray"
        )
    return array.astype(kind)


def _checked_shift(value: Any, lines: Lines) -> Diagonal:
    if np.ndim(value) and not isinstance(value, PencilArray):
        raise ArgumentError(
            f"shift has shape {np.shape(value)}; it must be a number or a PencilArray; add one "
            "number for each point to the main diagonal"
        )
    checked = _checked("shift", value, lines)
    if isinstance(checked, PencilArray) and lines.dim not in checked.singletons:
        raise ArgumentError(
            f"shift varies along dimension {lines.dim}, where it must be a singleton; add it to "
            "the main diagonal of diagonals instead"
        )
    return checked


def _along(value: Diagonal, lines: Lines, moved: Mapping[int, PencilArray]) -> Callable[[int], Any]:
    """Return a function of the equation: the entry, or the entries of all own lines."""
    if isinstance(value, PencilArray):
        rows = _of_lines(lines, moved[id(value)])
        return lambda equation: rows[equation if len(rows) > 1 else 0]
    if np.ndim(value):
        numbers = np.asarray(value).tolist()
        return lambda equation: numbers[equation]
    return lambda _: value


def _of_lines(lines: Lines, field: PencilArray) -> Array:
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
