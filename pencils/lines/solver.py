"""The plan `LineSolver`: banded systems of equations along one dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from numpy.typing import DTypeLike

from pencils.array.allocation import as_components, as_dtype, as_singletons
from pencils.array.operands import FieldSpec, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import PreparedAgreement, agreed
from pencils.comm.exchange import Handle
from pencils.errors import ArgumentError
from pencils.layout.integers import as_dim
from pencils.lines.diagonals import Diagonal, Diagonals
from pencils.lines.plan import AUTO, LinePlan, Solved, check_method
from pencils.lines.task import Lines
from pencils.pencil import Pencil, keep


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
    >>> with pencils.LineSolver(pen, 0, (-1, 2, -1)) as solve:
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
    pencil, spec = u.pencil, FieldSpec.of(u)
    key = name, spec
    row: PreparedAgreement | None = pencil.kept.get(key)
    if row is None or pencil.topology.freed:
        row = PreparedAgreement(pencil.topology.comm, name, pencil=pencil, **spec.signature)
        keep(pencil, key, row)
    return row.block()
