"""The equations of Poisson and Helmholtz between walls, solved directly: `Poisson`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.allocation import Array, as_components, memory_axes, real_type
from pencils.array.operands import FieldSpec, check_out, check_source, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.recording import makes_plan
from pencils.errors import ArgumentError, ConvergenceError
from pencils.fft import PencilFFT
from pencils.layout.levels import CELL
from pencils.lines import LineSolver
from pencils.pencil import Pencil
from pencils.plans import Plan
from pencils.solvers.ends import PERIODIC, Boundary, Ends, Spacing, as_ends, as_type

PROJECT = "project"
# Right sides whose mean is smaller than this many roundings of their size have mean zero.
_ROUNDINGS = 1e4
_TILE = 2**10  # so many eigenvalues are computed at once, or a plane of them if lines are shorter


class Poisson(Plan[None]):
    """Reusable plan that solves ``(laplacian + shift) u = f`` directly. Making it is *Collective*.

    Fields are transformed along all dimensions of equal spacing, divided by the eigenvalues of the
    laplacian, and transformed back. One dimension may have any coordinates: there a tridiagonal
    system is solved for each wave.

    Parameters
    ----------
    pencil : Pencil
        The pencil of right sides and solutions.
    spacing : float, or sequence with one entry for each dimension
        The distance of neighbouring points, or coordinates in increasing order: of the ``n + 1``
        faces of cells; with ``centred="vertex"`` of all points, with those on walls where the
        solution is zero, and with the first one of the next period. A tuple (faces, centres) gives
        centres of cells that are not in the middle. Distances may differ along one dimension.
    boundary : str, or sequence with one entry for each dimension
        "periodic", "dirichlet" (the solution is zero on the wall), "neumann" (its normal derivative
        is zero), or a pair of the last two: at the low and at the high end.
    centred : {"cell", "vertex"}, or sequence with one entry for each dimension
        Where points are: in the middle of cells, of which the outer faces lie on walls; or at
        vertices, the first and the last one on walls. Those on walls of value zero do not belong to
        the pencil, those on other walls do.
    shift : number, optional
        Added to the laplacian: negative for the Helmholtz equation of implicit diffusion,
        ``(1 - a laplacian) u = g``, which is ``shift = -1 / a`` and ``f = -g / a``.
    eigenvalues : {"difference", "derivative"}, optional
        Of the second difference of three points, so that it is inverted exactly; or of the second
        derivative, for the accuracy of spectral methods. Along a dimension of unequal distances it
        is the difference, by finite volumes, in any case.
    dtype : dtype, optional
        Type of the fields: float or complex.
    components : int or sequence of int, optional
        Shape of the component axes, which are solved in one pass.
    null : {"raise", "project", "pin"}, optional
        What to do where solutions are determined up to a constant: without a shift and walls of
        value zero. "raise" and "pin" take right sides of mean zero only; "project" subtracts the
        mean, also that of right sides which are rounding errors alone. The solution has mean zero;
        with "pin" its first point is zero. Means weigh each point with its volume.
    check : bool, optional
        Whether all ranks agree on the arguments of every call.

    Attributes
    ----------
    pencil : Pencil
        Of right sides and solutions.
    waves : Pencil
        On which waves are divided, or systems along lines are solved.

    Raises
    ------
    ArgumentError, TypeError
        On every rank, if an argument does not fit, or no solution exists, as ``-shift`` is an
        eigenvalue.

    Notes
    -----
    The transforms are those of Strang, SIAM Review 41 (1999) 135-147; the method is that of
    Schumann and Sweet, J. Comput. Phys. 75 (1988) 123-137. The order of the transforms is the one
    that needs the fewest transposes.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> from pencils.solvers import Poisson
    >>> pen = pencils.Pencil((4, 5))
    >>> f = pencils.full(pen, -2.0)
    >>> with Poisson(pen, 1.0, boundary=["neumann", "dirichlet"], centred="vertex") as solve:
    ...     np.round(solve(f).local[0], 12)
    array([5., 8., 9., 8., 5.])
    """

    @makes_plan
    def __init__(
        self,
        pencil: Pencil,
        spacing: Spacing,
        *,
        boundary: Boundary,
        centred: str | Sequence[str] = CELL,
        shift: complex = 0.0,
        eigenvalues: Literal["difference", "derivative"] = "difference",
        dtype: DTypeLike = float,
        components: int | Sequence[int] = (),
        null: Literal["raise", "project", "pin"] = "raise",
        check: bool = True,
    ) -> None:
        topology = topology_among(pencil)
        with agreed(topology.comm, "Poisson") as agree:
            check_type("pencil", pencil, Pencil)
            ends = as_ends(pencil.shape, spacing, boundary, centred)
            self._line = _stretched(ends)
            self._spec = FieldSpec(as_type(dtype), as_components(components), frozenset())
            shift = _as_shift(shift, self._spec.dtype)
            if eigenvalues not in ["difference", "derivative"]:  # or unhashable
                raise ArgumentError(
                    f"eigenvalues={eigenvalues!r} must be 'difference' or 'derivative'"
                )
            if null not in ["raise", PROJECT, "pin"]:
                raise ArgumentError(f"null={null!r} must be 'raise', 'project' or 'pin'")
            check = bool(check)
            agree(pencil=pencil, **self._spec.signature, null=null, check=check)
            agree(ends=[tuple(each) for each in ends], shift=shift, eigenvalues=eigenvalues)
        self.pencil, self._ends, self._shift, self._null = pencil, ends, shift, null
        self._exact = eigenvalues == "derivative"
        self._singular = shift == 0 and all(each.is_free for each in ends)
        self._lines: LineSolver | None = None
        self._fft = self._transform(check=check)
        self.waves = self._fft.output_pencil
        try:
            self._prepare_waves(check=check)
        except BaseException:
            self._release()
            raise
        super().__init__(topology, check=check)

    def __call__(self, f: PencilArray, out: PencilArray | None = None) -> PencilArray:
        """Solve for a right side. *Collective*.

        Parameters
        ----------
        f : PencilArray
            Right side, with the dtype and components of the plan; a halo is ignored.
        out : PencilArray, optional
            Field to fill, which may be `f`; default: a new one without halo.

        Returns
        -------
        PencilArray
            `out`.

        Raises
        ------
        ConvergenceError
            On every rank, if no solution exists: see `null`. `out` is not changed.
        PencilMismatchError, ArgumentError, TypeError
            If a field does not fit the plan; on every rank, unless the plan does not check.
        """
        with self._agreement("__call__"):
            self._check_open()
            check_source(f, self.pencil, self._spec, "f")
            check_out(out, self.pencil, self._spec)
        field = self._fft.forward(f, out=self._field)
        if self._singular:
            mean = self._take_mean()
            if self._null != PROJECT:
                self._check_mean(f, mean)
        if self._lines is None:
            self._divide()
        else:
            self._lines(field, out=field)
            if self._singular:  # the last point was set to zero
                self._take_mean()
        u = self._fft.backward(field, out=out)
        if self._singular and self._null == "pin":
            u -= u[(..., *[slice(0, 1)] * self.pencil.ndim)].replicate()
        return u

    def _transform(self, *, check: bool) -> PencilFFT:
        """Make the plan of all transforms. *Collective*."""
        pencil, dtype, line = self.pencil, self._spec.dtype, self._line
        names = {each.dim: each.transform for each in self._ends if each is not line}
        fourier = [dim for dim, name in names.items() if name == "fft"]
        if fourier and dtype.kind == "f":
            # Real values become waves before all complex transforms: where lines are whole already.
            fourier.sort(key=lambda dim: (pencil.process_shape[dim] == 1, dim))
            names[fourier[-1]] = "r2c"
        return PencilFFT(
            pencil,
            dtype,
            list(names),
            list(names.values()),
            components=self._spec.components,
            normalize="forward",  # the wave without variation is the mean
            whole=None if line is None else line.dim,
            check=check,
        )

    def _prepare_waves(self, *, check: bool) -> None:
        """Make a field of waves, and what solves for these. *Collective*."""
        pencil, spec, line = self.waves, self._spec, self._line
        equal = [each for each in self._ends if each is not line]
        halved = any(each.transform == "fft" for each in equal)
        dtype = np.result_type(spec.dtype, "F") if halved else spec.dtype
        real = real_type(dtype)
        lengths = [each.intervals * each.spacing for each in self._ends]
        numbers = self._fft.wavenumbers(lengths, nyquist="keep")
        along = {each.dim: each.eigenvalues(numbers[each.dim], exact=self._exact) for each in equal}
        self._weights: Array | float = 1.0
        with agreed(pencil.topology.comm, "Poisson"):  # one rank may have no memory
            self._field = PencilArray.allocated(pencil, dtype, spec.components)
            if line is None:
                # Waves that vanish are divided by the least number instead of zero.
                shift = -float(np.finfo(real).tiny) if self._singular else self._shift
                parts = [np.ravel(along[dim].local) for dim in pencil.order]
                self._divide = _division(self._field, parts, shift)
        if line is not None:
            volumes = line.volumes().astype(real)
            weights = volumes / volumes.sum()
            self._weights = np.expand_dims(weights, [*range(1, pencil.ndim - line.dim)])
            self._lines = LineSolver(
                pencil,
                line.dim,
                line.diagonals(),
                shift=sum(along.values(), self._shift),
                periodic=line.low == PERIODIC,
                dtype=dtype,
                components=spec.components,
                singular="pin" if self._singular else "raise",
                check=check,
            )
        first = [slice(0, 1 if dim in along else None) for dim in range(pencil.ndim)]
        self._zero = self._field[(..., *first)]  # waves without variation

    def _take_mean(self) -> PencilArray:
        """Subtract the mean from the waves, and return it. *Collective*."""
        space = tuple(range(-self.pencil.ndim, 0))
        mean: PencilArray = (self._zero * self._weights).sum(axis=space)
        self._zero -= mean
        return mean

    def _check_mean(self, f: PencilArray, mean: PencilArray) -> None:
        """Raise if a mean is not that of rounded numbers. *Collective*."""
        size = float(np.sqrt(abs(np.vdot(f, f)) / max(1, f.size)))
        largest = float(abs(mean.local).max(initial=0.0))
        if not largest <= _ROUNDINGS * np.finfo(self._spec.dtype).eps * size:
            raise ConvergenceError(
                f"the right side has mean {largest:.3g}, and values of size {size:.3g}: without a "
                "shift and walls of value zero there is a solution only if the mean is zero. "
                "Subtract the mean, or pass null='project', which does so"
            )

    def _release(self) -> None:
        self._fft.free()
        if self._lines is not None:
            self._lines.free()

    def _describe(self) -> str:
        dtype, components, _ = self._spec
        text = f"<Poisson of {dtype}" + (f", components={components}" if components else "")
        text += f", shift={self._shift}" if self._shift else ""
        text += ", spectral" if self._exact else ""
        for dim, points, where, low, high, *_ in self._ends:
            name = "lines" if self._ends[dim] is self._line else self._ends[dim].transform
            wall = low if low == high else f"{low} to {high}"
            text += f"\n  along dimension {dim}: {points} points, {wall}, {where}, by {name}"
        return f"{text}\n  on {self.pencil!r}\n  with waves on {self.waves!r}>"


def _division(field: PencilArray, parts: Sequence[Array], shift: complex) -> Callable[[], None]:
    """Return a function that divides waves, in place, by sums of eigenvalues along dimensions.

    These are computed anew each time, for tiles that stay in the cache: to read a stored field of
    them would take as long, and to multiply complex by real numbers, as a function of fields does,
    much longer. `parts` are the eigenvalues along each dimension, in memory order.
    """
    block = field.local.transpose(memory_axes(field.pencil.order, len(field.components)))
    kind = block.dtype if np.iscomplexobj(shift) else parts[0].dtype
    parts = [each.astype(kind) for each in parts]
    if block.dtype != kind and block.size:
        block = block.view(kind)  # numbers in pairs
        parts[-1] = np.repeat(parts[-1], 2)
    inner = 1
    while inner < len(parts) and prod(map(len, parts[-inner:])) < _TILE:
        inner += 1
    sums = reduce(np.add.outer, parts[-inner:]) + kind.type(shift)
    others = reduce(np.add.outer, parts[:-inner], kind.type(0))

    def tiles() -> Iterator[tuple[Array, Array]]:
        room = np.empty_like(sums)
        for index, each in np.ndenumerate(others if block.size else ()):
            yield block[..., *index, *[slice(None)] * inner], np.add(sums, each, out=room)

    def divide() -> None:
        for part, divisors in tiles():
            np.divide(part, divisors, out=part)

    for _, divisors in tiles():
        if (abs(divisors) <= 8 * np.finfo(kind).eps * abs(shift)).any():
            raise ArgumentError(
                f"shift={shift} is minus an eigenvalue of the laplacian: the equations are "
                "singular; pass another shift"
            )
    return divide


def _stretched(ends: Sequence[Ends]) -> Ends | None:
    """Return the dimension of unequal distances, if there is one."""
    found = [each for each in ends if each.edges is not None]
    if len(found) > 1:
        dims = [each.dim for each in found]
        raise ArgumentError(
            f"the coordinates along dimensions {dims} have unequal distances; at most one "
            "dimension may have them, as the others are transformed; Multigrid takes more"
        )
    return found[0] if found else None


def _as_shift(given: Any, dtype: np.dtype[Any]) -> complex:
    if (
        isinstance(given, PencilArray)
        or np.ndim(given)
        or np.asarray(given).dtype.kind not in "iufc"
    ):
        raise TypeError(f"shift must be a number, not {given!r}")
    shift = complex(given)
    if shift.imag and dtype.kind != "c":
        raise TypeError(f"shift={given!r} is complex, but the fields are of {dtype}")
    if not np.isfinite(shift):
        raise ArgumentError(f"shift={given!r} must be finite")
    return shift if shift.imag else shift.real
