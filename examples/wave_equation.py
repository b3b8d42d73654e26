"""Standing waves in a periodic box of two or three dimensions, at second order.

python examples/wave_equation.py
mpiexec -n 4 python -m pencils run examples/wave_equation.py --dims 3 --n 48 --picture wave.png

The equation u_tt = c² ∇²u, with c = 1, becomes u_t = v, v_t = ∇²u. The stencil is the usual star of
2 dims + 1 points. Time steps are those of the leapfrog method in velocity Verlet form: v advances
by half a step, u by a whole step, v by the other half. The energy, the mean of (v² - u ∇²u) / 2, is
then constant up to O(dt²). Plane waves whose wave vectors have the same length oscillate together,
so the exact solution is cos(ωt) times the initial values.
"""

import argparse
from itertools import permutations

import numpy as np

import pencils


@pencils.fused
def step(u, v, rate, dt, scale):
    """Advance u, v and the rate of change of v; return twice the energy."""
    v += dt / 2 * rate
    u += dt * v
    u.exchange_halo(corners=False)
    ahead = np.eye(u.ndim, dtype=int)
    neighbours = [u.shift(offsets) for offsets in (*ahead, *-ahead)]
    rate[...] = (sum(neighbours) - 2 * u.ndim * u) * scale
    v += dt / 2 * rate
    return (v**2 - u * rate).mean()


def solve(n, dims, time):
    """Return u at the end, its largest error, and the largest relative change of the energy."""
    pen = pencils.Pencil((n,) * dims, periodic=True)
    grid = pencils.localgrid(pen, [np.arange(n) * 2 * np.pi / n] * dims)
    waves = list(permutations(range(1, dims + 1)))  # wave vectors such as (1, 2) and (2, 1)
    start = sum(np.cos(sum(k * x for k, x in zip(wave, grid, strict=True))) for wave in waves)
    omega = np.linalg.norm(waves[0])

    u = pencils.zeros(pen, halo=1)
    u[...] = start
    v, rate = pencils.zeros(pen), pencils.zeros(pen)
    scale = (n / (2 * np.pi)) ** 2

    steps = n * int(np.ceil(time / np.pi))  # dt is at most half the spacing
    dt = time / steps
    energies = [step(u, v, rate, 0.0, scale)]
    energies += [step(u, v, rate, dt, scale) for _ in range(steps)]
    drift = np.abs(np.array(energies) / energies[0] - 1).max()
    return u, np.abs(u - np.cos(omega * time) * start).max(), drift


def main():
    parser = argparse.ArgumentParser(description="Standing waves in a periodic box.")
    add = parser.add_argument
    add("--dims", type=int, choices=(2, 3), default=2, help="default: %(default)s")
    add("--n", type=int, default=64, help="points along a side, even (default: %(default)s)")
    add("--time", type=float, default=3.0, help="final time (default: %(default)s)")
    add("--picture", metavar="FILE", help="draw u in the plane of x and y; needs Matplotlib")
    args = parser.parse_args()

    _, coarse_error, coarse_drift = solve(args.n // 2, args.dims, args.time)
    u, error, drift = solve(args.n, args.dims, args.time)
    if u.pencil.rank == 0:
        print(f"error {error:.6e}, of order {np.log2(coarse_error / error):.3f}")
        print(f"energy changes by {drift:.6e}, of order {np.log2(coarse_drift / drift):.3f}")

    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        axis = 2 if args.dims == 3 else None
        save_picture(args.picture, plot_slice(u, axis, cmap="RdBu_r", label="u"))


if __name__ == "__main__":
    main()
