"""Flow past a cylinder, which sheds a street of vortices: the lattice Boltzmann method.

python examples/vortex_street.py
mpiexec -n 4 python -m pencils run examples/vortex_street.py --n 80 --steps 9000 --picture wake.png

Particles of nine velocities travel to the neighbours of each point, and collide there. At the
cylinder they turn round. On the left they enter with one speed, whatever arrives from the right.
The result is compared with NumPy on the whole grid.
"""

import argparse
from typing import Any

import numpy as np

import pencils

SPEED, REYNOLDS = 0.1, 120  # points per step; of the diameter
STEPS = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
WEIGHTS = [4 / 9, *4 * [1 / 9], *4 * [1 / 36]]
OPPOSITE = [0, 3, 4, 1, 2, 7, 8, 5, 6]


def equilibrium(density, u, v):
    """Return how many particles of each velocity there are in a gas of this speed."""
    along = [3 * (a * u + b * v) for a, b in STEPS]
    still = 1 - 1.5 * (u * u + v * v)
    return [w * density * (still + s + s * s / 2) for w, s in zip(WEIGHTS, along, strict=True)]


def moments(gas):
    """Return density and velocity."""
    density = sum(gas)
    u = (gas[1] + gas[5] + gas[8] - gas[3] - gas[6] - gas[7]) / density
    return density, u, (gas[2] + gas[5] + gas[6] - gas[4] - gas[7] - gas[8]) / density


def collide(gas, entry, inside, rate):
    """Return the particles after collisions."""
    gas = [np.where(entry, w, g) for w, g in zip(equilibrium(1, SPEED, 0), gas, strict=True)]
    rest = equilibrium(*moments(gas))
    turned = [gas[i] for i in OPPOSITE]
    after = [g + rate * (r - g) for g, r in zip(gas, rest, strict=True)]
    return [np.where(inside, t, a) for t, a in zip(turned, after, strict=True)]


@pencils.fused
def step(gas, *walls):
    """Let particles travel, then collide."""
    gas.exchange_halo()
    pairs = zip(gas.unstack(), STEPS, strict=True)
    return tuple(collide([g.shift((-a, -b)) for g, (a, b) in pairs], *walls))


def main():
    parser = argparse.ArgumentParser(description="Flow past a cylinder.")
    add = parser.add_argument
    add("--n", type=int, default=20, help="points across the flow (default: %(default)s)")
    add("--steps", type=int, default=20, help="default: %(default)s")
    add("--picture", metavar="FILE", help="draw the vorticity; needs Matplotlib")
    args = parser.parse_args()

    n, shape = args.n, (3 * args.n, args.n)
    pen = pencils.Pencil(shape, periodic=True)
    x, y = grid = pencils.localgrid(pen, [np.arange(m) for m in shape])
    gas, new = (pencils.zeros(pen, components=9, halo=1) for _ in range(2))
    gas[...] = start = np.stack(equilibrium(1 + 0 * x, SPEED, 0.02 * SPEED * np.sin(x / n) + 0 * y))
    inside = (x - 0.6 * n) ** 2 + (y - n / 2) ** 2 < (n / 10) ** 2
    walls = x + 0 * y < 2, inside, 1 / (3 * SPEED * n / 5 / REYNOLDS + 0.5)
    for _ in range(args.steps):
        step(gas, *walls, out=tuple(new.unstack()))
        gas, new = new, gas

    _, u, v = moments(gas.unstack())
    fastest = np.hypot(u, v).max() / SPEED
    if pen.rank == 0:
        print(f"fastest flow, of the speed at the entry: {fastest:.9f}")
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        turn = np.roll(v, -1, 0) - np.roll(v, 1, 0) - np.roll(u, -1, 1) + np.roll(u, 1, 1)
        turn[...] = np.where(inside, 0, turn)
        turn[-1], turn[0] = 0, 0
        norm: Any = {"vmin": -0.02, "vmax": 0.02, "cmap": "RdBu_r", "label": "vorticity"}
        ax: Any = plot_slice(turn, grid=grid, **norm)
        if ax is not None:  # on rank 0
            ax.figure.set_size_inches(9, 3)
        save_picture(args.picture, ax)
        return
    fields: list[Any] = [start, *walls[:2]]
    whole, entry, solid = (pencils.gather(f, root=None) for f in fields)
    for _ in range(args.steps):
        moved = [np.roll(g, s, (0, 1)) for g, s in zip(whole, STEPS, strict=True)]
        whole = collide(moved, entry, solid, walls[2])
    assert np.array_equal(pencils.gather(gas, root=None), whole)


if __name__ == "__main__":
    main()
