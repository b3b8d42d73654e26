"""Wave numbers fit the waves: derivatives of known functions are exact."""

import numpy as np
import pytest

import pencils
from pencils.errors import ArgumentError
from pencils.fft import PencilFFT

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_derivatives_of_periodic_functions(comm, dtype):
    shape, lengths = (8, 9, 10), (1.0, 2 * np.pi, 3.0)
    pen = pencils.Pencil(shape, comm)
    points = [np.arange(n) * length / n for n, length in zip(shape, lengths, strict=True)]
    x, y, z = pencils.localgrid(pen, points)
    k = 2 * np.pi / np.array(lengths)
    u = np.sin(2 * k[0] * x) * np.cos(3 * k[1] * y) * np.sin(k[2] * z + 1)
    slopes = [
        2 * k[0] * np.cos(2 * k[0] * x) * np.cos(3 * k[1] * y) * np.sin(k[2] * z + 1),
        -3 * k[1] * np.sin(2 * k[0] * x) * np.sin(3 * k[1] * y) * np.sin(k[2] * z + 1),
        k[2] * np.sin(2 * k[0] * x) * np.cos(3 * k[1] * y) * np.cos(k[2] * z + 1),
    ]
    with PencilFFT(pen, dtype) as plan:
        waves = plan.wavenumbers(lengths)
        assert waves.names == ("kx", "ky", "kz")
        u_hat = plan.forward(u.astype(dtype))
        for wave, slope in zip(waves, slopes, strict=True):
            assert np.allclose(plan.backward(1j * wave * u_hat), slope)


def test_on_another_pencil(comm):
    pen = pencils.Pencil((6, 5, 8), comm, decomp=(0, 1))
    with PencilFFT(pen, float, axes=(0, 2), transforms={2: "dct2"}) as plan:
        numbers = [2 * np.pi / 3 * np.fft.fftfreq(6, 1 / 6), np.zeros(5), np.pi / 2 * np.arange(8)]
        numbers[0] = numbers[0][:4]  # real
        waves = plan.output_pencil
        assert waves.shape == (4, 5, 8)
        for other in (waves, waves.whole(1), waves.with_(decomp=(2, 0), order=(1, 0, 2))):
            grid = plan.wavenumbers((3.0, 1.0, 2.0), pencil=other, nyquist="keep")
            assert grid.pencil is other
            for k, number, slices in zip(grid, numbers, other.local_slices, strict=True):
                np.testing.assert_allclose(k.local.ravel(), np.abs(number[slices]), atol=1e-14)
        for wrong in (pen, pencils.Pencil((5, 8), comm)):
            with pytest.raises(ArgumentError, match="waves have shape"):
                plan.wavenumbers(pencil=wrong)
        with pytest.raises(TypeError, match="pencil must be a Pencil"):
            plan.wavenumbers(pencil=(4, 5, 8))


@pytest.mark.parametrize(
    ("name", "first", "shift", "function"),
    [
        ("dct1", 0, 0, np.cos),
        ("dct2", 0, 0.5, np.cos),
        ("dct3", 0.5, 0, np.cos),
        ("dct4", 0.5, 0.5, np.cos),
        ("dst1", 1, 1, np.sin),
        ("dst2", 1, 0.5, np.sin),
        ("dst3", 0.5, 1, np.sin),
        ("dst4", 0.5, 0.5, np.sin),
    ],
)
def test_second_derivatives_of_cosines_and_sines(comm, name, first, shift, function):
    """Entry 2 of the transform belongs to the wave with that number of half periods."""
    n, length = 7, 2.5
    intervals = {"dct1": n - 1, "dst1": n + 1}.get(name, n)
    x = (np.arange(n) + shift) * length / intervals
    pen = pencils.Pencil((4, n), comm)
    k = (2 + first) * np.pi / length if name not in ("dst1", "dst2") else 3 * np.pi / length
    u = pencils.partition(pen, np.broadcast_to(function(k * x), (4, n)))
    with PencilFFT(pen, transforms=("none", name)) as plan:
        none, wave = plan.wavenumbers((1.0, length))
        u_hat = plan.forward(u)
        assert np.allclose(plan.backward(-(wave**2) * u_hat + none), -(k**2) * u)


@pytest.mark.parametrize("dtype", ["f4", "f8", "g"])
def test_wave_numbers_of_a_length_of_two_pi_are_integers(comm, dtype):
    """Exactly, though 49 * (1 / 49) and the like are not 1."""
    for n in (1, 2, 7, 8, 49, 98, 103, 187):
        whole, half = np.rint(np.fft.fftfreq(n, 1 / n)), np.arange(n // 2 + 1)
        with PencilFFT(pencils.Pencil((n, n), comm), dtype, backend="scipy") as plan:
            for lengths in [None, 2 * np.pi][: 1 if dtype == "g" else 2]:
                waves = plan.wavenumbers(lengths, nyquist="keep")
                for k, expected in zip(waves, (whole, half), strict=True):
                    assert np.array_equal(pencils.gather(k, root=None).ravel(), expected)


def test_long_wave_numbers(comm):
    """As long as the fields, also of lengths that are."""
    pi = 4 * np.arctan(np.longdouble(1))
    with PencilFFT(pencils.Pencil(8, comm), "g") as plan:
        for length in (1.0, np.longdouble(1) / 3):
            (k,) = plan.wavenumbers(length, nyquist="keep")
            expected = 2 * pi / length * np.arange(5)
            error = abs(pencils.gather(k, root=None) - expected) / expected[-1]
            assert error.max() < 4 * np.finfo("g").eps


def test_types_and_names(comm):
    with PencilFFT(pencils.Pencil((4, 5), comm), "f4", axes=1) as plan:
        none, half = plan.wavenumbers(2 * np.pi)
        assert none.dtype == half.dtype == np.float32
        assert np.array_equal(pencils.gather(half, root=None).ravel(), [0, 1, 2])
        assert not pencils.gather(none, root=None).any()
        for lengths in (0, -1.0, (1, 2, 3), np.inf):
            with pytest.raises(ArgumentError, match="lengths"):
                plan.wavenumbers(lengths)
        for lengths in ("abc", [[1], [1, 2]], object(), 1j):
            with pytest.raises(TypeError, match="lengths"):
                plan.wavenumbers(lengths)
    pen = pencils.Pencil((2,) * 5, comm)
    with PencilFFT(pen) as plan:
        assert plan.wavenumbers().names == ("k0", "k1", "k2", "k3", "k4")


def derivatives(n):
    """Matrices of the first two derivatives of trigonometric interpolation at n points."""
    j = np.arange(n)[:, None] - np.arange(n) + n * np.eye(n)  # the diagonal is set below
    half, sign = np.pi * j / n, (-1.0) ** j
    if n % 2:
        first = sign / np.sin(half) / 2
        second = -sign / np.tan(half) / np.sin(half) / 2
    else:
        first = sign / np.tan(half) / 2
        second = -sign / np.sin(half) ** 2 / 2
    np.fill_diagonal(first, 0)
    np.fill_diagonal(second, -(n**2 + 2 - 3 * (n % 2)) / 12)
    return first, second


@pytest.mark.parametrize("dealias", [None, "3/2"])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
@pytest.mark.parametrize("shape", [(16, 12), (7, 8), (2, 9)])
def test_derivatives_of_noise(comm, shape, dtype, dealias):
    """Those of the polynomial through all values: odd powers without the wave n/2, even with it."""
    pen, rng = pencils.Pencil(shape, comm), np.random.default_rng(4)
    noise = rng.normal(size=shape).astype(dtype)
    if dtype == "c16":
        noise += 1j * rng.normal(size=shape)
    with PencilFFT(pen, dtype) as plan, PencilFFT(pen, dtype, dealias=dealias) as other:
        waves = plan.forward(pencils.partition(pen, noise))
        odd, even = other.wavenumbers(), other.wavenumbers(nyquist="keep")
        for axis, n in enumerate(shape):
            for number, k in zip(derivatives(n), (1j * odd[axis], -(even[axis] ** 2)), strict=True):
                expected = np.moveaxis(np.tensordot(number, noise, (1, axis)), 0, axis)
                found = plan.backward(k * waves)
                assert np.abs(found - expected).max() < 1e-11
                fine = other.forward(other.backward(k * waves))  # the wave n/2 stays zero
                assert np.abs(fine - k * waves).max() < 1e-10
        with pytest.raises(ArgumentError, match="'zero', for odd powers"):
            plan.wavenumbers(nyquist="half")
