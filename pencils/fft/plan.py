"""Transforms of distributed fields along any of their dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.debug import checks
from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.array.spec import FieldSpec, check_out, check_source
from pencils.comm.agree import agreed
from pencils.distribute.localgrid import LocalGrid, localgrid
from pencils.errors import ArgumentError
from pencils.fft.arguments import Axes, Choice, read_wanted
from pencils.fft.backends import AUTO
from pencils.fft.building import backend_of, build_programs
from pencils.fft.lines import NORMS, PI
from pencils.fft.program import Place, Program
from pencils.fft.route import plan_route
from pencils.fft.work import Work, find_work
from pencils.pencil import Pencil
from pencils.plan import Freeable


class PencilFFT(Freeable):
    """Reusable plan of a transform over the whole grid. Making it is *Collective*.

    Serial transforms along dimensions that lie whole on each process take turns with transposes.
    Components are transformed together. A dimension that is the only one of its grid is transformed
    on one process, where its waves stay unless `output` says otherwise.

    Parameters
    ----------
    pen : Pencil
        The pencil of the fields in physical space; with ``dealias="3/2"`` that of their resolution.
    dtype : dtype, optional
        Element type of the fields in physical space, real or complex.
    axes : int or sequence of int, optional
        Dimensions to transform, counted without components; the last one first, as in
        `numpy.fft.rfftn`, unless another order needs fewer transposes. Default: all.
    transforms : str, sequence of str, or mapping of int to str, optional
        One for all axes, one for each of `axes`, or some by axis: "c2c", "r2c" (real data, halves
        the axis), "fft" (the default: "c2c", but for real data "r2c" along the last such axis),
        "dct1" to "dct4", "dst1" to "dst4", or "none".
    components : int or sequence of int, optional
        Shape of the component axes.
    normalize : {"backward", "ortho", "forward"}, optional
        Which direction is divided by the number of points, as in `numpy.fft`.
    dealias : {None, "2/3", "3/2"}, or as `transforms`, optional
        For products of fields, along Fourier axes: "2/3" zeroes waves from n/3 on, on the way
        forward; "3/2" has 3/2 as many points in physical space, and drops waves beyond the
        resolution on the way forward. Waves mean the same as without. Finer points are cut by the
        rule of `pen`, and by "first" where that gives explicit bounds.
    backend : {"auto", "scipy", "fftw"}, optional
        Library of the serial transforms; "auto" measures which is faster, and may choose otherwise
        in another run. FFTW (mpi4py-fft) measures, too, when it plans: only "scipy" rounds the same
        way every time. FFTW leaves orthogonal cosine and sine transforms, and precisions it was
        built without, to SciPy; ``repr(plan)`` tells.
    output : Pencil, optional
        Where waves should lie; default: where the last serial transform needs them.
    check : bool, optional
        Whether every call agrees on its arguments over all ranks, so that a mistake on one rank
        raises everywhere. Without it a call costs no communication but the data.

    Attributes
    ----------
    input_pencil : Pencil
        Of fields in physical space.
    output_pencil : Pencil
        Of waves. Unless given, it has the decomposed dimensions and the memory order of the last
        serial transform, along the lines of which memory is contiguous.

    Raises
    ------
    ArgumentError, TypeError, PencilMismatchError, RankDisagreementError
        On every rank, if arguments do not fit.

    Examples
    --------
    >>> import numpy as np, pencils
    >>> from pencils.fft import PencilFFT
    >>> pen = pencils.Pencil((8, 8, 8))
    >>> x, y, z = pencils.localgrid(pen, [np.arange(8) * np.pi / 4] * 3)
    >>> with PencilFFT(pen, float) as plan:
    ...     kx, ky, kz = plan.wavenumbers()
    ...     u_hat = plan.forward(np.sin(x) * np.cos(z) + 0 * y)
    ...     du_dx = plan.backward(1j * kx * u_hat)
    >>> np.allclose(du_dx, np.cos(x) * np.cos(z))
    True
    """

    def __init__(
        self,
        pen: Pencil,
        dtype: DTypeLike = float,
        axes: Axes = None,
        transforms: Choice = None,
        *,
        components: int | Sequence[int] = (),
        normalize: str = "backward",
        dealias: Choice = None,
        backend: str = AUTO,
        output: Pencil | None = None,
        check: bool = True,
    ) -> None:
        self._topology = topology_among(pen, output)
        with agreed(self._topology.comm, "PencilFFT") as agree:
            wanted = read_wanted(
                pen,
                dtype=dtype,
                axes=axes,
                transforms=transforms,
                components=components,
                normalize=normalize,
                dealias=dealias,
                backend=backend,
                output=output,
                check=check,
            )
            agree(**wanted.facts)
        self._wanted = wanted
        legs = plan_route(wanted)
        self.input_pencil = legs[0].before
        self.output_pencil = wanted.output or legs[-1].after
        self._physical = Place(self.input_pencil, wanted.dtype)
        self._spectral = Place(self.output_pencil, legs[-1].dtype_after)
        backends = [backend_of(leg, wanted) for leg in legs]
        ends = self._physical, self._spectral
        self._forward, self._backward = build_programs(wanted, legs, ends, backends)
        sizes = list(map(max, self._forward.sizes, self._backward.sizes))
        self._works: list[Work] | None = find_work(pen, sizes)
        self._forward.use(self._works)
        self._backward.use(self._works)
        self._text = self._describe([b for leg, b in zip(legs, backends, strict=True) if leg.lines])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type in physical space."""
        return self._physical.dtype

    @property
    def components(self) -> tuple[int, ...]:
        """Shape of the component axes."""
        return self._wanted.components

    @property
    def memory(self) -> int:
        """Bytes of this rank that live as long as the plan.

        They are for fields between steps, which all plans of one communicator use in turn, for what
        transposes pack, and for the pieces that FFTW transforms in memory of its own.
        """
        if self._works is None:
            return 0
        work = sum(work.memory.nbytes for work in self._works)
        return work + self._forward.packing + self._forward.kept + self._backward.kept

    def forward(self, u: PencilArray, out: PencilArray | None = None) -> PencilArray:
        """Transform a field to its waves. *Collective*.

        Parameters
        ----------
        u : PencilArray
            Field on `input_pencil` with the dtype and components of the plan; it is not changed,
            and its halo is left behind.
        out : PencilArray, optional
            Field on `output_pencil` to fill; default: a new one. It may be `u`, or share memory
            with it, as fields made by `alias` do; `u` is then lost.

        Returns
        -------
        PencilArray
            `out`.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            If a field does not fit the plan; on every rank, unless the plan does not check.
        """
        ends = self._physical, self._spectral
        return self._run("PencilFFT.forward", self._forward, ends, u, out)

    def backward(self, u_hat: PencilArray, out: PencilArray | None = None) -> PencilArray:
        """Transform waves to the field. *Collective*.

        Parameters
        ----------
        u_hat : PencilArray
            Waves, on `output_pencil`; they are not changed.
        out : PencilArray, optional
            Field on `input_pencil` to fill, also `u_hat` or in its memory; default: a new one.

        Returns
        -------
        PencilArray
            `out`.

        Raises
        ------
        PencilMismatchError, ArgumentError, TypeError
            As `forward`.
        """
        ends = self._spectral, self._physical
        return self._run("PencilFFT.backward", self._backward, ends, u_hat, out)

    def wavenumbers(self, lengths: float | Sequence[float] | None = None) -> LocalGrid:
        """Wave numbers of the entries of `output_pencil`, each a field along one dimension.

        Parameters
        ----------
        lengths : float or sequence of float, optional
            Length of the domain along each dimension: one period for Fourier axes, the interval
            for cosine and sine ones. Default: 2 pi, for which those of Fourier axes are integers.

        Returns
        -------
        LocalGrid
            ``kx, ky, kz = plan.wavenumbers()``; zero along axes that are not transformed.

        Raises
        ------
        ArgumentError, TypeError
            If there is not one positive length for all dimensions or for each.
        """
        shape = self.output_pencil.shape
        read = _read_lengths(2 * PI if lengths is None else lengths, len(shape))
        real = self._wanted.real
        axes = [np.zeros(n, real) for n in shape]
        for line in self._wanted.lines:
            axes[line.axis] = line.wavenumbers(read[line.axis]).astype(real)
        letters = "xyzw" if len(shape) <= len("xyzw") else map(str, range(len(shape)))
        names = [f"k{letter}" for letter, _ in zip(letters, shape, strict=False)]
        return localgrid(self.output_pencil, axes, names=names)

    def free(self) -> None:
        """Release memory and MPI objects; work memory when no other plan uses it."""
        self._forward.free()
        self._backward.free()
        self._works = None

    def __repr__(self) -> str:
        return self._text

    def _run(
        self,
        call: str,
        program: Program,
        ends: tuple[Place, Place],
        u: PencilArray,
        out: PencilArray | None,
    ) -> PencilArray:
        if self._wanted.check:
            with agreed(self._topology.comm, call) as agree:
                agree(plan=self._text)
                self._check(ends, u, out)
                target = self._allocated(ends[1]) if out is None else out
                program.reserve(u, target)
        else:
            self._check(ends, u, out)
            target = self._allocated(ends[1]) if out is None else out
        program(u, target)
        if checks.on:
            target.mark_written()
        return target

    def _check(self, ends: tuple[Place, Place], u: PencilArray, out: PencilArray | None) -> None:
        pencils = self.input_pencil, self.output_pencil
        if self._works is None or any(pencil.topology.freed for pencil in pencils):
            msg = "this PencilFFT, or a communicator of its pencils, was freed; make a new one"
            raise ArgumentError(msg)
        source, target = ends
        none: frozenset[int] = frozenset()
        name = "u" if source is self._physical else "u_hat"
        check_source(u, source.pencil, FieldSpec(source.dtype, self.components, none), name)
        check_out(out, target.pencil, FieldSpec(target.dtype, self.components, none))

    def _allocated(self, place: Place) -> PencilArray:
        return PencilArray.allocated(place.pencil, place.dtype, self.components)

    def _describe(self, backends: Sequence[str]) -> str:
        wanted = self._wanted
        lines = ", ".join(f"{line.transform} along {line.axis}" for line in wanted.lines)
        text = f"<PencilFFT of {wanted.dtype}: {lines or 'nothing'}"
        text += f", components={wanted.components}" if wanted.components else ""
        text += f", normalize={wanted.normalize!r}" if wanted.normalize != NORMS[0] else ""
        ways = {line.axis: line.dealias for line in wanted.lines if line.dealias}
        text += f", dealias={ways}" if ways else ""
        text += f", by {' and '.join(dict.fromkeys(backends))}" if wanted.lines else ""
        return f"{text}\n  from {self.input_pencil!r}\n  to   {self.output_pencil!r}>"


def _read_lengths(lengths: object, ndim: int) -> list[np.longdouble]:
    try:
        given = np.asarray(lengths, dtype=np.longdouble)
    except (TypeError, ValueError) as error:
        msg = f"lengths={lengths!r} must be a number, or one for each of {ndim} axes"
        raise TypeError(msg) from error
    if given.shape not in ((), (ndim,)) or not (given > 0).all() or not np.isfinite(given).all():
        msg = f"lengths={lengths!r} must be one positive length, or one for each of {ndim} axes"
        raise ArgumentError(msg)
    return list(np.broadcast_to(given, ndim))
