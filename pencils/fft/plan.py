"""Transforms of distributed fields along any of their dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from pencils.array.base import checks
from pencils.array.operands import check_out, check_source, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.recording import makes_plan
from pencils.distribute.localgrid import LocalGrid, localgrid
from pencils.errors import ArgumentError
from pencils.errors.missing import PLANS, explain_words
from pencils.fft.directions import PreparedSteps, make_directions
from pencils.fft.execute import AUTO, SCIPY, Space, check_backend, choose_backend, plan_route
from pencils.fft.options import NORMS, PI, Axes, Choice, as_wanted
from pencils.pencil import Pencil
from pencils.plans import Agreement, Plan
from pencils.tables import text_bytes


class PencilFFT(Plan[PreparedSteps]):
    """Reusable plan for a transform over the whole grid. Making it is *Collective*.

    Serial transforms along dimensions that are not decomposed alternate with transposes. Components
    are transformed together. The one dimension of a 1-D grid is transformed on one process, where
    its waves stay unless `output` is another pencil.

    Parameters
    ----------
    pencil : Pencil
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
        rule of `pencil`, and by "first" where that gives explicit bounds.
    backend : {"auto", "scipy", "fftw"}, optional
        Library of the serial transforms; "auto" measures which is faster, and may choose otherwise
        in another run. FFTW (mpi4py-fft) measures, too, when it plans: only "scipy" rounds the same
        way every time. FFTW leaves orthogonal cosine and sine transforms, and precisions it was
        built without, to SciPy; ``repr(plan)`` tells.
    output : Pencil, optional
        Pencil of the waves; default: the pencil of the last serial transform.
    whole : int, optional
        A dimension that is not transformed, along which lines of `output_pencil` are whole: see
        `Pencil.whole`. Transforms come in an order that needs the fewest transposes to get there.
    check : bool, optional
        Whether all ranks compare the arguments of every call, and all raise if one is wrong.
        Without it, a call communicates nothing but the data.
    workers : int, optional
        Threads of each process that do serial transforms, each some pieces of the block. A process
        needs a core for each of them: MPI may have bound it to one. Values are the same bits.

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

    @makes_plan
    def __init__(
        self,
        pencil: Pencil,
        dtype: DTypeLike = float,
        axes: Axes = None,
        transforms: Choice = None,
        *,
        components: int | Sequence[int] = (),
        normalize: str = "backward",
        dealias: Choice = None,
        backend: str = AUTO,
        output: Pencil | None = None,
        whole: int | None = None,
        check: bool = True,
        workers: int = 1,
    ) -> None:
        topology = topology_among(pencil, output)
        with agreed(topology.comm, "PencilFFT") as agree:
            backend = check_backend(backend)
            wanted = as_wanted(
                pencil,
                dtype,
                axes,
                transforms,
                components,
                normalize,
                dealias,
                backend,
                output,
                check,
                workers,
                whole,
            )
            agree(**wanted.signature)
        self._wanted = wanted
        serials = plan_route(wanted)
        self._physical, last = serials[0].start, serials[-1].end
        self._spectral = last._replace(pencil=wanted.output or last.pencil)
        self.input_pencil, self.output_pencil = self._physical.pencil, self._spectral.pencil
        backends = [choose_backend(serial, wanted) for serial in serials]
        self._libraries = [b for serial, b in zip(serials, backends, strict=True) if serial.lines]
        ends = self._physical, self._spectral
        self._forward, self._backward, self._works = make_directions(
            wanted, serials, ends, backends
        )
        super().__init__(topology, check=wanted.check)

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
        transposes pack, and for the pieces that FFTW transforms in memory of its own. Some fields
        between steps need memory only once a call has a field to fill; else they lie in the result.
        """
        if self._freed:
            return 0
        there, back = self._forward, self._backward
        works = {id(work): work.nbytes for work in (*self._works, there.private, back.private)}
        return sum(works.values()) + there.buffers.nbytes + there.kept + back.kept

    def forward(self, u: PencilArray, out: PencilArray | None = None) -> PencilArray:
        """Transform a field to its waves. *Collective*.

        Parameters
        ----------
        u : PencilArray
            Field on `input_pencil` with the dtype and components of the plan; it is not changed,
            and its halo is not read.
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
        MemoryError
            Likewise; if SciPy lacks memory in the midst, `out` has no values then.
        """
        return self._transform("forward", (self._physical, self._spectral), u, out)

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
        return self._transform("backward", (self._spectral, self._physical), u_hat, out)

    def wavenumbers(
        self,
        lengths: float | Sequence[float] | None = None,
        *,
        pencil: Pencil | None = None,
        nyquist: Literal["keep", "zero"] = "zero",
    ) -> LocalGrid:
        """Return the wave numbers, each a field along one dimension.

        Along Fourier axes with an even number of points n, the wave n/2, named after Nyquist, is
        n/2 and -n/2 in one: at the points they are equal. Even derivatives of both are equal, too;
        odd ones cancel, and are zero at all points. Therefore **odd powers of wave numbers**,
        ``1j * kx``, **need the default**, which sets this wave to zero, and **even powers**, the
        ``kx**2 + ky**2`` of viscosity or of a Poisson equation, **need** ``nyquist="keep"``.
        Derivatives are then those of the trigonometric polynomial through all values [1]_, real for
        real values in complex transforms, too. With the other choice first derivatives of noise are
        as wrong as they are large, and ``kx**2 + ky**2`` vanishes at more waves than the mean.
        Fields without this wave (n odd, or ``dealias="2/3"``) need no choice.

        Parameters
        ----------
        lengths : float or sequence of float, optional
            Length of the domain along each dimension: one period for Fourier axes, the interval
            for cosine and sine ones. Default: 2 pi, for which those of Fourier axes are integers.
        pencil : Pencil, optional
            The pencil of these fields, of the shape of `output_pencil`: that on which waves are
            transposed or solved for. Default: `output_pencil`.
        nyquist : {"zero", "keep"}, optional
            Wave number of the wave n/2 along Fourier axes, n even: 0, or n/2 in units of ``2 pi /
            length`` (-n/2 along axes of complex transforms, as `numpy.fft.fftfreq` has it).

        Returns
        -------
        LocalGrid
            ``kx, ky, kz = plan.wavenumbers()``; zero along axes that are not transformed.

        Raises
        ------
        ArgumentError, TypeError
            If there is not one positive length for all dimensions or for each, or the pencil has
            another shape than waves, or `nyquist` is another word.

        References
        ----------
        .. [1] L. N. Trefethen, Spectral Methods in MATLAB, SIAM, 2000, chapter 3.

        Examples
        --------
        >>> import pencils
        >>> from pencils.fft import PencilFFT
        >>> with PencilFFT(pencils.Pencil(8)) as plan:
        ...     (odd,), (even,) = plan.wavenumbers(), plan.wavenumbers(nyquist="keep")
        >>> odd.local, even.local
        (array([0., 1., 2., 3., 0.]), array([0., 1., 2., 3., 4.]))
        """
        if nyquist not in ("keep", "zero"):
            raise ArgumentError(
                f"nyquist={nyquist!r} must be 'zero', for odd powers of wave numbers, or 'keep', "
                "for even ones"
            )
        place = self.output_pencil if pencil is None else pencil
        check_type("pencil", place, Pencil)
        shape = self.output_pencil.shape
        if place.shape != shape:
            raise ArgumentError(
                f"pencil has shape {place.shape}, but waves have shape {shape}; pass "
                "plan.output_pencil.whole(axis), or another pencil of this shape"
            )
        try:
            given = np.asarray(2 * PI if lengths is None else lengths, dtype=np.longdouble)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"lengths={lengths!r} must be a number, or one for each of {len(shape)} axes"
            ) from error
        plain = given.shape in {(), (len(shape),)}
        if not plain or not (given > 0).all() or not np.isfinite(given).all():
            raise ArgumentError(
                f"lengths={lengths!r} must be one positive length, or one for each of "
                f"{len(shape)} axes"
            )
        read = list(np.broadcast_to(given, len(shape)))
        real = self._wanted.real
        axes = [np.zeros(n, real) for n in shape]
        for line in self._wanted.lines:
            axes[line.axis] = line.wavenumbers(read[line.axis]).astype(real)
            if nyquist == "zero":
                axes[line.axis][line.nyquist] = 0
        letters = "xyzw" if len(shape) <= len("xyzw") else map(str, range(len(shape)))
        names = [f"k{letter}" for letter, _ in zip(letters, shape, strict=False)]
        return localgrid(place, axes, names=names)

    def _release(self) -> None:
        self._forward.free()
        self._backward.free()
        self._works = []

    def _transform(
        self, call: str, ends: tuple[Space, Space], u: PencilArray, out: PencilArray | None
    ) -> PencilArray:
        start, end = ends
        forward = start is self._physical
        direction = self._forward if forward else self._backward

        def bind(_: Agreement) -> tuple[PreparedSteps, PencilArray]:
            places = ("plan.input_pencil", "plan.output_pencil")[:: 1 if forward else -1]
            check_source(u, start.pencil, start.spec, "u" if forward else "u_hat", places[0])
            check_out(out, end.pencil, end.spec, places[1])
            key = forward, id(u), id(out)
            prepared, target = self._found(key), out
            if prepared is None or target is None:
                prepared, target = direction.bind(u, out)
                if out is not None:
                    self._remembered.add(key, prepared, [u, out])
            for reserve, _run in prepared:
                reserve()
            return prepared, target

        prepared, target = self._prepare(call, bind)
        error = direction.run(prepared, met=self._check)
        # SciPy allocates memory in each call, and threads may not start.
        if self._check and (SCIPY in self._libraries or self._wanted.workers > 1):
            self._row(f"{call} of blocks").meet(error)
        elif error is not None:
            raise error
        if checks.on:
            target.mark_written()
        return target

    def _check_open(self) -> None:
        """Raise if the plan or a communicator of its pencils was freed."""
        super()._check_open()
        if self.input_pencil.topology.freed or self.output_pencil.topology.freed:
            raise ArgumentError(self._freed_text)

    def _repr_html_(self) -> str:
        """Return a table and pictures for notebooks, of both pencils; local."""
        wanted = self._wanted
        ways = [f"{line.transform} along {line.axis}" for line in wanted.lines]
        dealias = [f"{line.dealias} along {line.axis}" for line in wanted.lines if line.dealias]
        rows = [
            ("transforms", ", ".join(ways) or "none"),
            *([("dealiased", ", ".join(dealias))] if dealias else []),
            ("library", " and ".join(dict.fromkeys(self._libraries)) or "none"),
            ("memory", f"{text_bytes(self.memory)} on this rank"),
        ]
        ends = self._physical, self._spectral
        return self._card([(end.pencil, end.spec) for end in ends], rows)

    def _describe(self) -> str:
        wanted = self._wanted
        lines = ", ".join(f"{line.transform} along {line.axis}" for line in wanted.lines)
        text = f"<PencilFFT of {wanted.dtype}: {lines or 'nothing'}"
        text += f", components={wanted.components}" if wanted.components else ""
        text += f", normalize={wanted.normalize!r}" if wanted.normalize != NORMS[0] else ""
        ways = {line.axis: line.dealias for line in wanted.lines if line.dealias}
        text += f", dealias={ways}" if ways else ""
        text += f", by {' and '.join(dict.fromkeys(self._libraries))}" if wanted.lines else ""
        text += f", workers={wanted.workers}" if wanted.workers > 1 else ""
        return f"{text}\n  from {self.input_pencil!r}\n  to   {self.output_pencil!r}>"


explain_words(PencilFFT, PLANS)
