"""The plan `LineSolver`: banded systems of equations along one dimension."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import Array, as_components, as_dtype, as_singletons
from pencils.array.operands import FieldSpec, check_source, check_type, signature, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import Handle
from pencils.errors import ArgumentError
from pencils.layout.integers import as_dim
from pencils.lines.elimination import Row
from pencils.lines.methods import Lines
from pencils.lines.plan import AUTO, LinePlan, Solved, check_method
from pencils.lines.system import System, plain_right
from pencils.pencil import Pencil
from pencils.plans import kept_agreement, kept_plan, kept_plans


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
        in equation ``i``. What would lie outside the matrix is not read.
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
        "reduced": each rank solves its part, and ranks exchange a few planes; for diagonals
        without fields. "transposed": fields move to ``pencil.whole(axis)`` and back. "auto" takes
        the first of these that is possible. Lines that are whole are solved where they are
        ("local"), whatever is asked for.
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
            equations = Diagonals(lines, diagonals, shift, periodic=bool(periodic))
            check, pin = bool(check), singular == "pin"
            agree(pencil=pencil, axis=lines.dim, **lines.spec.signature, **equations.signature)
            agree(method=method, singular=singular, check=check)
            solved = None
            if not equations.fields:  # else these are transposed first
                solved = Solved.within(agree, lines, equations, method, pin=pin)
        super().__init__(lines, equations, method, pin=pin, check=check, solved=solved)

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
        return self.run(b, out)

    def start(self, b: PencilArray, out: PencilArray | None = None) -> Handle[PencilArray]:
        """Start to solve, and return before it is done. *Collective*.

        Neither field may be touched before ``wait()`` of the returned handle, which all ranks must
        call and which returns `out`.
        """
        return self._start(b, out)


def lines_of(pencil: Any, axis: Any, dtype: Any, components: Any, dims: Any) -> Lines:
    """Check what lines there are."""
    check_type("pencil", pencil, Pencil)
    dim = as_dim("axis", axis, pencil.ndim)
    singletons = as_singletons(pencil.ndim, dims)
    return as_lines(pencil, dim, FieldSpec(as_dtype(dtype), as_components(components), singletons))


def as_lines(pencil: Pencil, dim: int, spec: FieldSpec) -> Lines:
    """Check whether fields can have systems of equations along a dimension."""
    if spec.dtype.char not in "fdFD":
        raise TypeError(
            f"dtype {spec.dtype} is none of float32, float64, complex64 and complex128; "
            "u.astype(float) is a field that fits"
        )
    if dim in spec.singletons:
        raise ArgumentError(f"the fields do not vary along axis {dim}; name it in dims=")
    return Lines(pencil, dim, spec)


def dim_of(u: PencilArray, axis: int) -> int:
    """Return the dimension that an axis of a field is."""
    number = as_dim("axis", axis, u.ndim)
    lead = len(u.components)
    if number < lead:
        raise ArgumentError(
            f"axis {number} of shape {u.shape} numbers components; axes of space are {lead} to "
            f"{u.ndim - 1}"
        )
    return number - lead


def verb_agreement(name: str, u: Any, out: Any) -> agreed:
    """Return the context in which the ranks agree on a verb; it is prepared once for each kind."""
    if type(u) is not PencilArray:
        return agreed(topology_among(u, out).comm, name)
    spec = FieldSpec.of(u)
    return kept_agreement(u.pencil, name, spec, spec.signature).block()


class LineCall:
    """A call of a plan that verbs keep: one agreement, if there is the plan.

    Parameters
    ----------
    agree : agreed
        The agreement of the verb, in which this is made.
    key : tuple
        What distinguishes the plan; all ranks agree on it.
    u, out : PencilArray, PencilArray or None
        Its arguments.
    """

    def __init__(self, agree: agreed, key: object, u: PencilArray, out: PencilArray | None) -> None:
        self._agree, self._key = agree, key
        self._arguments = u, out
        plan: LinePlan | None = kept_plans(u.pencil.topology).get(key)
        self._trial = None if plan is None else plan.trial(agree, u, out, out)

    def run(self, make: Callable[[], LinePlan]) -> PencilArray:
        """Run the plan, or make it first. *Collective*."""
        u, out = self._arguments
        plan: LinePlan = kept_plan(u.pencil.topology, self._key, make)
        if self._trial is None:
            return plan.run(u, out)
        return plan.complete(self._agree, self._trial)


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
