"""Spiral waves: the complex equation of Ginzburg and Landau, in a periodic plane.

python examples/ginzburg_landau.py
mpiexec -n 4 python -m pencils run examples/ginzburg_landau.py --n 192 --time 80 --picture waves.png

The equation is A_t = A + (1 + ib) ∇²A - (1 + ic) |A|² A. Each step solves its two halves exactly:
∇² in Fourier waves, the rest at each point. Their error is compared for a plane wave, of which the
solution is known.
"""

import argparse

import numpy as np

import pencils
from pencils.fft import PencilFFT

B, C = 0.0, 1.2
LENGTH = 120.0


def react(a, dt):
    """Solve A_t = A - (1 + ic) |A|² A over a time dt."""
    square = abs(a) ** 2
    growth = square + (1 - square) * np.exp(-2 * dt)
    return a / np.sqrt(growth) * np.exp(-0.5j * C * (2 * dt + np.log(growth)))


def solve(a, time, dt):
    """Return A after some time."""
    with PencilFFT(a.pencil, complex) as plan:
        kx, ky = plan.wavenumbers((LENGTH, LENGTH), nyquist="keep")
        decay = np.exp(-(1 + 1j * B) * dt * (kx**2 + ky**2))
        a = react(a, dt / 2)
        for _ in range(round(time / dt)):
            a = react(plan.backward(plan.forward(a) * decay), dt)
    return react(a, -dt / 2)


def main():
    parser = argparse.ArgumentParser(description="Spiral waves.")
    add = parser.add_argument
    add("--n", type=int, default=24, help="points along a side (default: %(default)s)")
    add("--time", type=float, default=1.0, help="final time (default: %(default)s)")
    add("--picture", metavar="FILE", help="draw the phase, from noise; needs Matplotlib")
    args = parser.parse_args()

    pen = pencils.Pencil((args.n, args.n), periodic=True)
    grid = pencils.localgrid(pen, [np.arange(args.n) * LENGTH / args.n] * 2)
    k = 4 * np.pi / LENGTH
    wave = np.sqrt(1 - k**2) * np.exp(1j * k * grid.x) + 0 * grid.y
    expected = wave * np.exp(-1j * (C + (B - C) * k**2))  # at time 1
    errors = [abs(solve(wave, 1, dt) - expected).max() for dt in (0.1, 0.05)]
    assert errors[1] < errors[0] / 3
    if pen.rank == 0:
        print(f"error {errors[1]:.6e}, of order {np.log2(errors[0] / errors[1]):.3f}")
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        noise = pencils.random.normal(pen, rng=5, components=2)
        a = solve(0.1 * (noise[0] + 1j * noise[1]), args.time, 0.1)
        phase = np.arctan2(a.imag, a.real)
        save_picture(
            args.picture, plot_slice(phase, grid=grid, cmap="twilight", label="phase of A")
        )


if __name__ == "__main__":
    main()
