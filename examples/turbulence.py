"""Decaying turbulence in a periodic plane: vortices of one sign merge, as in the atmosphere.

python examples/turbulence.py
mpiexec -n 4 python -m pencils run examples/turbulence.py --n 256 --time 30 --picture vorticity.png

The equation of the vorticity is ω_t + u ω_x + v ω_y = ν ∇²ω, with (u, v) = (-ψ_y, ψ_x) and ∇²ψ = ω,
in Fourier waves. Products lose their waves beyond n/3. Time steps have three
stages. The energy that is lost is compared with what viscosity takes.
"""

import argparse
from typing import Any

import numpy as np

import pencils
from pencils.fft import PencilFFT


def solve(n, time, nu):
    """Return the vorticity at the end, and the energy at both ends, less what viscosity took."""
    pen, dt = pencils.Pencil((n, n), periodic=True), 1 / n
    with PencilFFT(pen, float, dealias="2/3", normalize="forward") as plan:
        kx, ky = plan.wavenumbers()
        k2 = sum(k**2 for k in plan.wavenumbers(nyquist="keep"))
        inverse = 1 / np.where(k2 == 0, 1, k2)
        twice = np.where(ky == 0, 1, 2)  # waves with ky > 0 stand for those with -ky, too

        def rate(waves):
            stream = -inverse * waves
            u, v = plan.backward(-1j * ky * stream), plan.backward(1j * kx * stream)
            slopes = plan.backward(1j * kx * waves), plan.backward(1j * ky * waves)
            return -plan.forward(u * slopes[0] + v * slopes[1]) - nu * k2 * waves

        def sums(waves):
            """Return energy, and how fast viscosity takes it."""
            square = twice * abs(waves) ** 2
            return np.array([(inverse * square).sum() / 2, nu * square.sum()])

        waves = plan.forward(pencils.random.normal(pen, rng=3))
        waves *= np.exp(-(((np.sqrt(k2) - 6) / 2) ** 2)) * (k2 > 0)
        waves /= np.sqrt(2 * sums(waves)[0])  # of the mean speed 1
        before, taken = sums(waves)[0], 0.0
        for _ in range(round(time / dt)):
            stage = waves
            for part in (3, 2, 1):
                loss, stage = sums(stage)[1], waves + dt / part * rate(stage)
            waves, taken = stage, taken + dt * loss
        return plan.backward(waves), before, sums(waves)[0] + taken


def main():
    parser = argparse.ArgumentParser(description="Decaying turbulence in a periodic plane.")
    add = parser.add_argument
    add("--n", type=int, default=32, help="points along a side (default: %(default)s)")
    add("--time", type=float, default=0.2, help="final time (default: %(default)s)")
    add("--nu", type=float, default=2e-3, help="viscosity (default: %(default)s)")
    add("--picture", metavar="FILE", help="draw the vorticity; needs Matplotlib")
    args = parser.parse_args()

    omega, before, after = solve(args.n, args.time, args.nu)
    strongest = abs(omega).max()
    assert np.isclose(before, after, rtol=1e-3)
    if omega.pencil.rank == 0:
        print(
            f"vorticity up to {strongest:.6f}; energy {before:.9f}, later {after:.9f} with losses"
        )
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        grid = pencils.localgrid(omega.pencil, [np.arange(args.n) * 2 * np.pi / args.n] * 2)
        norm: Any = {"vmin": -strongest / 2, "vmax": strongest / 2}
        ax = plot_slice(omega, grid=grid, cmap="RdBu_r", label="vorticity", **norm)
        save_picture(args.picture, ax)


if __name__ == "__main__":
    main()
