"""Short waves are dropped, or points added, so that products of fields do not alias."""

import numpy as np
import pytest
from fft_cases import close, draw, forward
from mpi_helpers import all_raise

import pencils
from pencils import errors
from pencils.fft import PencilFFT

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPES = [(6, 5, 8), (7, 9, 4), (2, 3, 6), (1, 8, 5)]


def counted(n, name):
    """Wave numbers that count, along an axis of n points."""
    return np.fft.rfftfreq(n, 1 / n) if name == "r2c" else np.fft.fftfreq(n, 1 / n)


def names_of(dtype):
    return {0: "c2c", 1: "c2c", 2: "r2c" if dtype == "f8" else "c2c"}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_two_thirds_of_the_waves_are_kept(comm, backend, shape, dtype):
    a = draw(shape, dtype)
    names = names_of(dtype)
    expected = forward(a, names)
    for axis, name in names.items():
        kept = abs(counted(shape[axis], name)) < shape[axis] / 3
        expected *= np.expand_dims(kept, [dim for dim in range(3) if dim != axis])
    pen = pencils.Pencil(shape, comm)
    with PencilFFT(pen, dtype, dealias="2/3", backend=backend) as plan:
        assert plan.input_pencil == pen
        u_hat = plan.forward(pencils.partition(pen, a))
        assert close(u_hat, expected)
        assert close(plan.forward(plan.backward(u_hat)), u_hat)


def test_one_axis_is_dealiased_if_only_one_is_named(comm):
    a = draw((6, 5, 8), float)
    expected = np.fft.rfftn(a)
    expected[2:5] = 0
    pen = pencils.Pencil(a.shape, comm)
    for dealias in ({0: "2/3"}, ("2/3", None, None)):
        with PencilFFT(pen, dealias=dealias) as plan:
            u_hat = plan.forward(pencils.partition(pen, a))
            assert close(u_hat, expected)


def on_finer_points(waves, names, shape, fine, norm="backward"):
    """Evaluate the symmetric trigonometric interpolant of waves, as a sum over them."""
    for axis, name in sorted(names.items(), key=lambda item: item[1] == "r2c"):
        n, m = shape[axis], fine[axis]
        k, x = counted(n, name), np.arange(m) / m
        matrix = np.exp(2j * np.pi * np.outer(x, k))
        if n % 2 == 0:
            matrix[:, n // 2] = np.cos(np.pi * n * x)
        if name == "r2c":
            weight = np.where((k == 0) | (2 * k == n), 1, 2)
            waves = np.moveaxis(waves, axis, -1)
            waves = (waves.real @ (weight * matrix.real).T) - (
                waves.imag @ (weight * matrix.imag).T
            )
            waves = np.moveaxis(waves, -1, axis)
        else:
            waves = np.moveaxis(np.moveaxis(waves, axis, -1) @ matrix.T, -1, axis)
        waves = waves / {"backward": n, "ortho": np.sqrt(n), "forward": 1}[norm]
    return waves


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_half_as_many_points_more(comm, backend, shape, dtype, norm):
    """Waves mean the same as without: those of the field between its points."""
    names = names_of(dtype)
    a = draw(shape, dtype)
    waves = forward(a, names, norm)
    fine = tuple(n * 3 // 2 for n in shape)
    expected = on_finer_points(waves, names, shape, fine, norm)
    pen = pencils.Pencil(shape, comm)
    options = {"dealias": "3/2", "normalize": norm, "backend": backend}
    with PencilFFT(pen, dtype, **options) as plan:
        assert plan.input_pencil.shape == fine
        assert plan.output_pencil.shape == waves.shape
        u_hat = pencils.partition(plan.output_pencil, waves)
        u = plan.backward(u_hat)
        assert close(u, expected)
        assert close(plan.forward(u), u_hat)


@pytest.mark.parametrize("shape", [(8, 6, 4), (4, 2, 10)])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_any_waves_are_the_same_field_at_the_points_that_both_have(comm, backend, shape, dtype):
    """Also those of no real field: what a transform without padding leaves out counts for nothing.

    Every third of the finer points is every second of the others.
    """
    pen = pencils.Pencil(shape, comm)
    fields = []
    for dealias, step in ((None, 2), ("3/2", 3)):
        with PencilFFT(pen, dtype, dealias=dealias, backend=backend) as plan:
            waves = draw(plan.output_pencil.shape, complex)
            u_hat = pencils.partition(plan.output_pencil, waves)
            u = pencils.gather(plan.backward(u_hat), root=None)
            fields.append(u[(slice(None, None, step),) * 3])
    assert np.allclose(*fields, rtol=0, atol=1e-14)
    names = names_of(dtype)
    with PencilFFT(pen, dtype, dealias="3/2", backend=backend) as plan:
        u = plan.backward(pencils.partition(plan.output_pencil, waves))
        expected = on_finer_points(waves, names, shape, plan.input_pencil.shape)
        assert np.allclose(u.local, expected[u.local_slices], rtol=0, atol=1e-14)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9])
def test_one_dimension_alone(comm, backend, n):
    with PencilFFT(pencils.Pencil(n, comm), complex, dealias="3/2", backend=backend) as plan:
        waves = draw((n,), complex)
        back = plan.forward(plan.backward(pencils.partition(plan.output_pencil, waves)))
        assert np.allclose(back.local, waves[back.local_slices], rtol=0, atol=1e-14)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_shortest_wave_has_no_slope(comm, axis):
    """As its derivative is zero at all points, so it is between them."""
    shape = [3, 5, 7]
    shape[axis] = 4
    pen = pencils.Pencil(shape, comm)
    with PencilFFT(pen, dealias="3/2") as plan:
        waves = pencils.zeros(plan.output_pencil, dtype=complex)
        waves[tuple(2 if dim == axis else 0 for dim in range(3))] = 1.0
        slope = plan.backward(1j * plan.wavenumbers(nyquist="keep")[axis] * waves)
        assert np.allclose(slope.local, 0, atol=1e-14)


def test_planning_computes_nothing(comm, monkeypatch):
    """What lies in memory before may be anything, and other ranks may not stumble over it."""
    fftw = pytest.importorskip("mpi4py_fft.fftw")

    def filled(shape, dtype):
        memory = fresh(shape, dtype=dtype)
        memory[...] = np.inf
        return memory

    fresh = fftw.aligned
    monkeypatch.setattr(fftw, "aligned", filled)
    pen = pencils.Pencil((6, 4, 5), comm)
    a = draw(pen.shape, complex)
    with np.errstate(all="raise" if comm.rank == 0 else "ignore"):
        plan = PencilFFT(pen, complex, dealias="3/2", backend="fftw")
        waves = pencils.partition(plan.output_pencil, a)
        assert close(plan.forward(plan.backward(waves)), waves)
    plan.free()


def test_a_product_of_padded_fields_has_the_waves_of_the_exact_one(comm):
    """Of two fields whose product has waves beyond the resolution, which alias without."""
    n = 8
    pen = pencils.Pencil((n, n), comm)
    k, m = 3, 2
    with PencilFFT(pen, dealias="3/2", normalize="forward") as plan:
        x, y = (2 * np.pi / 12 * np.arange(12) for _ in range(2))
        grid = pencils.localgrid(plan.input_pencil, (x, y))
        product = np.cos(k * grid.x) * np.cos(k * grid.x) * (1 + np.cos(m * grid.y)) ** 2
        u_hat = pencils.gather(plan.forward(product), root=None)
    # cos² kx = (1 + cos 2kx) / 2, of which the wave 2k = 6 is beyond n/2 = 4 and must be gone.
    expected = np.zeros((n, n // 2 + 1))
    expected[0, [0, m, 2 * m]] = np.array([1.5, 1.0, 0.5]) / 2
    assert np.allclose(u_hat, expected)


def test_finer_points_are_cut_by_rule(comm):
    """Explicit cuts stay where the points do."""
    cuts = (*(min(rank, 9) for rank in range(comm.size)), 9)
    pen = pencils.Pencil((9, 9), comm, decomp=0, splits=(cuts, "first"))
    with PencilFFT(pen, dealias={1: "3/2"}) as plan:
        assert plan.input_pencil.layout.splits[0] == pen.layout.splits[0]
    with PencilFFT(pen, dealias={0: "3/2"}) as plan:
        assert plan.input_pencil == pencils.Pencil((13, 9), comm, decomp=0)


def test_cosine_axes_stay_as_they_are(comm):
    a = draw((6, 5), float)
    pen = pencils.Pencil(a.shape, comm)
    with PencilFFT(pen, transforms=("fft", "dct2"), dealias="3/2") as plan:
        assert plan.input_pencil.shape == (9, 5)


def test_a_field_of_the_resolution_is_told_where_points_are(comm):
    pen = pencils.Pencil((8, 8), comm)
    kind = errors.PencilMismatchError
    with PencilFFT(pen, float, dealias="3/2") as plan:
        u, waves = pencils.ones(pen), pencils.ones(pen, dtype=complex)
        points, spectral = pencils.ones(plan.input_pencil), repr(plan.output_pencil)
        where = f"should lie on plan.input_pencil\n{plan.input_pencil!r}"
        all_raise(comm, kind, where, plan.forward, u)
        all_raise(comm, kind, where, plan.backward, plan.forward(points), out=u)
        where = f"should lie on plan.output_pencil\n{spectral}"
        all_raise(comm, kind, where, plan.backward, waves)
        all_raise(comm, kind, where, plan.forward, points, out=waves)
    wanted = "dealias=1.5 must be one of None, '2/3', '3/2'"
    all_raise(comm, errors.ArgumentError, wanted, PencilFFT, pen, float, dealias=1.5)
