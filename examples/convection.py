"""Plumes between a hot floor and a cold ceiling: convection as Rayleigh and Bénard observed it.

python examples/convection.py
mpiexec -n 4 python -m pencils run examples/convection.py --n 96 --time 12 --picture plumes.png

Temperature T and vorticity ω follow T_t + u·∇T = κ ∇²T and ω_t + u·∇ω = ν ∇²ω + T_x, with the
stream function ∇²ψ = ω, u = (-ψ_z, ψ_x) and κ = ν = Ra^(-1/2). Floor and ceiling have no friction:
ω and ψ are 0 there, so that ψ is a sum of Fourier waves along x and sines along z. Time steps are
those of Adams and Bashforth. Below Ra = 657 the air comes to rest; above, it moves.
"""

import argparse
from typing import Any

import numpy as np

import pencils
from pencils.fft import PencilFFT

SIDES = (1, 0), (-1, 0), (0, 1), (0, -1)


@pencils.fused
def rates(heat, omega, psi, kappa, n):
    """Return how fast temperature and vorticity change, on a grid of spacing 1/n."""
    for field, floor in ((heat, 1), (omega, 0), (psi, 0)):
        field.exchange_halo(corners=False)
        field.fill_boundary("constant", value=floor, axis=1, side="lo")
        field.fill_boundary("constant", value=0, axis=1, side="hi")
    slopes, bends = [], []
    for field in (heat, omega, psi):
        east, west, up, down = (field.shift(side) for side in SIDES)
        slopes.append(((east - west) * (n / 2), (up - down) * (n / 2)))
        bends.append((east + west + up + down - 4 * field) * n**2)
    (heat_x, heat_z), (omega_x, omega_z), (w, minus_u) = slopes
    heating = kappa * bends[0] + minus_u * heat_x - w * heat_z
    return heating, kappa * bends[1] + minus_u * omega_x - w * omega_z + heat_x


def solve(n, time, rayleigh, aspect):
    """Return the temperature on n - 1 points of a height, and vorticities of the last third."""
    pen = pencils.Pencil((aspect * n, n - 1), periodic=(True, False))
    _, z = pencils.localgrid(pen, [np.arange(aspect * n) / n, np.arange(1, n) / n])
    heat, omega, psi = (pencils.zeros(pen, halo=1) for _ in range(3))
    heat[...] = 1 - z + 0.1 * pencils.random.normal(pen, rng=1) * np.sin(np.pi * z)
    before, strengths = None, []
    with PencilFFT(pen, float, transforms=("fft", "dst1")) as plan:
        kx, kz = plan.wavenumbers((aspect, 1), nyquist="keep")
        inverse = -1 / (kx**2 + kz**2)
        steps = int(np.ceil(time * n * max(2, 8 * n / rayleigh**0.5)))
        for step in range(steps):
            psi[...] = plan.backward(plan.forward(omega) * inverse)
            now = rates(heat, omega, psi, rayleigh**-0.5, n)
            last = before or now
            heat += time / steps * (1.5 * now[0] - 0.5 * last[0])
            omega += time / steps * (1.5 * now[1] - 0.5 * last[1])
            before = now
            if step in (2 * steps // 3, steps - 1):
                strengths.append(abs(omega).max())
    return heat, strengths


def main():
    parser = argparse.ArgumentParser(description="Convection between hot and cold walls.")
    add = parser.add_argument
    add(
        "--n",
        type=int,
        default=64,
        help="cells of the height (default: %(default)s)",
    )
    add("--time", type=float, default=10.0, help="final time of the picture (default: %(default)s)")
    add("--picture", metavar="FILE", help="draw the temperature at Ra = 2e6; needs Matplotlib")
    args = parser.parse_args()

    for rayleigh in (400, 2000):
        heat, (early, late) = solve(6, 15, rayleigh, 3)
        assert (late > early) == (rayleigh > 657)
        if heat.pencil.rank == 0:
            print(f"Ra = {rayleigh}: vorticity {early:.6e}, later {late:.6e}")
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        heat, _ = solve(args.n, args.time, 2e6, 3)
        axes = [np.arange(3 * args.n) / args.n, np.arange(1, args.n) / args.n]
        grid = pencils.localgrid(heat.pencil, axes, names="xz")
        ax: Any = plot_slice(heat, grid=grid, cmap="inferno", vmin=0, vmax=1, label="temperature")
        if ax is not None:  # on rank 0
            ax.figure.set_size_inches(9, 3)
        save_picture(args.picture, ax)


if __name__ == "__main__":
    main()
