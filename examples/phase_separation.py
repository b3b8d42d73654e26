"""Two liquids separate: the equation of Cahn and Hilliard, in a periodic plane.

python examples/phase_separation.py
mpiexec -n 4 python -m pencils run examples/phase_separation.py --n 192 --steps 999 --picture u.png

The equation is u_t = ∇²(u³ - u - ∇²u). In Fourier waves, each step is implicit in ∇⁴u and in a part
of ∇²u, which makes it stable (Eyre). The amount of both liquids stays, and the free energy falls.
"""

import argparse

import numpy as np

import pencils
from pencils.fft import PencilFFT


def main():
    parser = argparse.ArgumentParser(description="Two liquids separate.")
    add = parser.add_argument
    add("--n", type=int, default=32, help="points along a side (default: %(default)s)")
    add("--steps", type=int, default=20, help="default: %(default)s")
    add("--picture", metavar="FILE", help="draw the concentration; needs Matplotlib")
    args = parser.parse_args()

    pen, dt = pencils.Pencil((args.n, args.n), periodic=True), 0.5
    u = -0.1 + 0.1 * pencils.random.normal(pen, rng=1)
    mean = u.mean()
    with PencilFFT(pen, float) as plan:
        kx, ky = plan.wavenumbers((args.n, args.n), nyquist="keep")  # of spacing 1
        k2 = kx**2 + ky**2

        def energy(u):
            bent = plan.backward(k2 * plan.forward(u))
            return ((u * u - 1) ** 2 / 4 + u * bent / 2).mean()

        energies = [energy(u)]
        for step in range(args.steps):
            pushed = plan.forward(u**3 - 3 * u)
            waves = (plan.forward(u) - dt * k2 * pushed) / (1 + dt * (k2 * k2 + 2 * k2))
            u = plan.backward(waves)
            if step % 10 == 9:
                energies.append(energy(u))

    assert np.isclose(u.mean(), mean)
    assert np.all(np.diff(energies) < 0)
    if pen.rank == 0:
        print(f"free energy {energies[0]:.9f}, later {energies[-1]:.9f}")
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        grid = pencils.localgrid(pen, [np.arange(args.n)] * 2)
        save_picture(args.picture, plot_slice(u, grid=grid, cmap="coolwarm", label="concentration"))


if __name__ == "__main__":
    main()
