"""The plan `CompactDerivative` and the verb `derivative`: compact differences along a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import isfinite
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from pencils.array.allocation import Array
from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO, Handle
from pencils.errors import ArgumentError
from pencils.layout.integers import as_int
from pencils.lines.compact import SCHEMES, equations
from pencils.lines.methods import Lines
from pencils.lines.plan import Equations, LinePlan, LineVerb, check_method, lines_of
from pencils.pencil import Pencil

# A number, or the coordinates of all points along a line.
Spacing: TypeAlias = "float | ArrayLike"


class CompactDerivative(LinePlan):
    """Reusable plan for derivatives along a dimension. Making it is *Collective*.

    The differences are compact: derivatives at neighbouring points are found together, by one
    system of equations for each line. They resolve short waves much better than explicit
    differences of the same order. The dimension may be decomposed.

    Parameters
    ----------
    pencil : Pencil
        The pencil of the fields.
    axis : int
        Dimension of the lines.
    order : {4, 6}, optional
        Order of accuracy of inner points. At walls first derivatives are of order 3 and second ones
        of order 4, whatever `order` is: see Notes.
    derivative : {1, 2}, optional
        Which derivative.
    spacing : float or array_like, optional
        Distance of neighbouring points; or the global coordinates of all points along the
        dimension, which rise or fall, if it is not periodic.
    periodic : bool, optional
        Whether the first point is beside the last one. Default: as the pencil is.
    dtype : dtype, optional
        Type of the fields: float or complex.
    components : int or sequence of int, optional
        Shape of the component axes, which are differentiated in one pass.
    dims : int or sequence of int, optional
        Dimensions along which the fields vary; they are singletons along the others.
    method : {"auto", "local", "shared", "reduced", "transposed"}, optional
        How lines that are cut are treated: see `LineSolver`.
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
        On every rank, if an argument does not fit, or lines have too few points.

    Notes
    -----
    Schemes are those of Lele, J. Comput. Phys. 103 (1992) 16-42. Where lines end at walls, the
    first derivative is of third order at the last point, and with ``order=6`` of fourth order at
    the one before: the closures 3-4-3 and 3-4-6-4-3 of Carpenter, Gottlieb and Abarbanel, J.
    Comput. Phys. 108 (1993) 272-295, with which advection stays stable. Second derivatives are of
    fourth order there. On given coordinates the same points are used, with weights that are exact
    for the same polynomials.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> pen = pencils.Pencil((5, 3))
    >>> u = pencils.from_function(pen, lambda i, j: (i + 1.0) ** 3)
    >>> with pencils.lines.CompactDerivative(pen, 0, derivative=1, order=4) as slope:
    ...     np.round(slope(u).local[:, 0], 12)
    array([ 3., 12., 27., 48., 75.])
    """

    def __init__(
        self,
        pencil: Pencil,
        axis: int,
        *,
        order: Literal[4, 6] = 6,
        derivative: Literal[1, 2] = 1,
        spacing: Spacing = 1.0,
        periodic: bool | None = None,
        dtype: DTypeLike = float,
        components: int | Sequence[int] = (),
        dims: Sequence[int] | int | None = None,
        method: str = AUTO,
        check: bool = True,
    ) -> None:
        with agreed(topology_among(pencil).comm, "CompactDerivative") as agree:
            lines = lines_of(pencil, axis, dtype, components, dims)
            check_method(method)
            differences = _differences(lines, order, derivative, spacing, periodic)
            check = bool(check)
            agree(pencil=pencil, axis=lines.dim, **lines.spec.signature)
            agree(scheme=differences.text, method=method, check=check)
        super().__init__(lines, differences, method, check=check)

    def __call__(self, u: PencilArray, out: PencilArray | None = None) -> PencilArray:
        """Differentiate a field. *Collective*.

        Parameters
        ----------
        u : PencilArray
            The field, with the dtype, components and singletons of the plan; a halo is ignored.
        out : PencilArray, optional
            Field to fill, which may be `u`; default: a new one without halo.

        Returns
        -------
        PencilArray
            `out`.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            If a field does not fit the plan; on every rank, unless the plan does not check.
        """
        return self._run(u, out)

    def start(self, u: PencilArray, out: PencilArray | None = None) -> Handle[PencilArray]:
        """Start to differentiate, and return before it is done. *Collective*.

        Neither field may be touched before ``wait()`` of the returned handle, which all ranks must
        call and which returns `out`.
        """
        return self._start(u, out)


def derivative(
    u: PencilArray,
    axis: int,
    *,
    order: Literal[4, 6] = 6,
    derivative: Literal[1, 2] = 1,
    spacing: Spacing = 1.0,
    periodic: bool | None = None,
    out: PencilArray | None = None,
) -> PencilArray:
    """Differentiate a field along an axis by compact differences. *Collective*.

    Lines may be cut. The halo is neither read nor needed. Plans are kept for calls in a loop;
    `CompactDerivative` gives control over the method, overlap and checks.

    Parameters
    ----------
    u : PencilArray
        The field, of float or complex numbers.
    axis : int
        An axis of space of ``u.shape``, components first, in ``[-u.ndim, u.ndim)``.
    order : {4, 6}, optional
        Order of accuracy of inner points, and along periodic axes. At walls first derivatives are
        of order 3 and second ones of order 4, whatever `order` is: the largest error of a field
        falls with that order. `CompactDerivative` names the closures.
    derivative : {1, 2}, optional
        Which derivative.
    spacing : float or array_like, optional
        Distance of neighbouring points; or the global coordinates of all points along the axis,
        which rise or fall, if it is not periodic.
    periodic : bool, optional
        Whether the first point is beside the last one. Default: as the pencil is.
    out : PencilArray, optional
        Field to fill, of the type of `u`, which it may be itself; default: a new one without halo.

    Returns
    -------
    PencilArray
        `out`.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if an argument does not fit, or there are too few points.

    Examples
    --------
    >>> import numpy as np
    >>> import pencils
    >>> x = np.arange(64) * 2 * np.pi / 64
    >>> pen = pencils.Pencil((64, 2), periodic=True)
    >>> u = pencils.zeros(pen) + np.sin(x)[:, np.newaxis]
    >>> error = pencils.derivative(u, 0, spacing=x[1]) - np.cos(x)[:, np.newaxis]
    >>> bool(abs(error).max() < 1e-9)
    True
    """
    given = order, derivative, spacing, periodic
    return LineVerb("derivative", "u", u, out, axis, lambda x: _differences(x, *given)).run()


def _differences(
    lines: Lines, order: Any, derivative: Any, spacing: Any, periodic: Any
) -> Equations:
    """Check the arguments, and return the equations of compact differences."""
    points = lines.pencil.shape[lines.dim]
    rings = is_periodic(lines, periodic)
    which = as_int("derivative", derivative), as_int("order", order)
    scheme = SCHEMES.get(which)
    if scheme is None:
        raise ArgumentError(
            f"there is no scheme of derivative={derivative} and order={order}; derivative must be "
            "1 or 2, and order 4 or 6"
        )
    name = f"derivative={derivative} of order={order}"
    check_points(name, lines, scheme.fewest(periodic=rings), periodic=rings)
    grid: Any = np.asarray(spacing)
    if grid.ndim or grid.dtype.kind not in "iuf":
        grid = checked_coordinates("spacing", grid, lines, periodic=rings, other="a number, or ")
    else:
        grid = float(grid)
        if grid == 0 or not isfinite(grid):
            raise ArgumentError(f"spacing={spacing} must be finite, and not 0")
    text = f"derivative={which[0]}, order={which[1]}, spacing={digest(grid)}"
    return Equations(
        f"periodic, {text}" if rings else text,
        rings,
        1,
        scheme.reach,
        lambda _lines, _moved: equations(
            which[0], points, grid, lambda point: scheme.at(point, points, periodic=rings)
        ),
    )


def is_periodic(lines: Lines, given: Any) -> bool:
    """Whether the first point is beside the last one: if nothing is given, as the pencil is."""
    return lines.pencil.periodic[lines.dim] if given is None else bool(given)


def check_points(scheme: str, lines: Lines, fewest: int, *, periodic: bool) -> None:
    """Raise if lines have fewer points than a scheme takes."""
    points = lines.pencil.shape[lines.dim]
    if points < fewest:
        raise ArgumentError(
            f"dimension {lines.dim} has {points} points; {scheme} takes at least {fewest} "
            + ("on a periodic line" if periodic else "between walls")
        )


def checked_coordinates(
    name: str, given: Any, lines: Lines, *, periodic: bool, other: str = ""
) -> Array:
    """Check the coordinates of all points along a line; `other` tells what else may be given."""
    array = np.asarray(given)
    points = lines.pencil.shape[lines.dim]
    wanted = f"{other}the global coordinates of the {points} points along dimension {lines.dim}"
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} is of {array.dtype}; it must be {wanted}")
    values: Array = array.astype(float)
    if values.shape != (points,):
        raise ArgumentError(f"{name} of shape {values.shape} must be {wanted}")
    if periodic:
        raise ArgumentError(
            f"coordinates in {name} do not determine the distance from the last to the first "
            "point of a periodic line; pass periodic=False for lines with ends"
        )
    steps = np.diff(values)
    if not (np.all(steps > 0) or np.all(steps < 0)):
        raise ArgumentError(
            f"the coordinates in {name} must be finite, and rise or fall from each point to the "
            "next"
        )
    return values


def digest(grid: float | Array) -> str:
    """Describe a distance or coordinates: others have other texts."""
    if not isinstance(grid, np.ndarray):
        return str(grid)
    return "coordinates " + blake2b(grid.tobytes(), digest_size=8).hexdigest()
