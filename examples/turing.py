"""Patterns of Turing in a cube: two substances that react and diffuse, in three dimensions.

python examples/turing.py
mpiexec -n 4 python -m pencils run examples/turing.py --n 64 --steps 3000 --picture cube.png

The equations are those of `gray_scott.py`, with slower diffusion. Each step is computed in one pass
over both fields. The result is compared with NumPy on the whole grid.
"""

import argparse
from typing import Any

import numpy as np

import pencils

FEED, KILL = 0.035, 0.06
SIDES = [*np.eye(3, dtype=int).tolist(), *(-np.eye(3, dtype=int)).tolist()]


def react(u, v, bend_u, bend_v):
    """Return both substances after a step of time 1."""
    reaction = u * v * v
    change = 0.1 * bend_u - reaction + FEED * (1 - u)
    return u + change, v + (0.05 * bend_v + reaction - (FEED + KILL) * v)


@pencils.fused
def step(u, v):
    """Exchange halos, and compute both substances at the next time."""
    u.exchange_halo(corners=False)
    v.exchange_halo(corners=False)
    return react(u, v, *(sum(f.shift(s) for s in SIDES) - 6 * f for f in (u, v)))


def draw(v, path):
    """Draw three faces of the cube on rank 0. *Collective*."""
    keys: Any = (..., -1), (slice(None), 0), -1
    top, front, side = (pencils.gather(v, key=key) for key in keys)
    if top is None or front is None or side is None:
        return
    from matplotlib import pyplot as plt

    ax = plt.figure(figsize=(6, 6)).add_subplot(projection="3d")
    n = len(top)
    a, b = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    levels = np.linspace(0, max(top.max(), front.max(), side.max()), 24)
    ax.contourf(a, b, top, levels, zdir="z", offset=n - 1, cmap="magma")
    ax.contourf(a, front, b, levels, zdir="y", offset=0, cmap="magma")
    ax.contourf(side, a, b, levels, zdir="x", offset=n - 1, cmap="magma")
    ax.set(xlabel="x", ylabel="y", zlabel="z", box_aspect=(1, 1, 1))
    for limits in (ax.set_xlim, ax.set_ylim, ax.set_zlim):
        limits(0, n - 1)
    ax.figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description="Patterns of Turing in a cube.")
    add = parser.add_argument
    add("--n", type=int, default=12, help="points along a side (default: %(default)s)")
    add("--steps", type=int, default=20, help="default: %(default)s")
    add("--picture", metavar="FILE", help="draw the second substance; needs Matplotlib")
    args = parser.parse_args()

    pen = pencils.Pencil((args.n,) * 3, decomp=(0, 1), periodic=True)
    u, v, new_u, new_v = (pencils.zeros(pen, halo=1) for _ in range(4))
    x, y, z = pencils.localgrid(pen, [np.arange(args.n) * 4 * np.pi / args.n] * 3)
    seeds = np.cos(x) * np.cos(y) * np.cos(z) + pencils.random.normal(pen, rng=1) > 1
    u[...], v[...] = np.where(seeds, 0.5, 1), np.where(seeds, 0.25, 0)
    whole = [pencils.gather(f, root=None) for f in (u, v)]
    for _ in range(args.steps):
        step(u, v, out=(new_u, new_v))
        u, v, new_u, new_v = new_u, new_v, u, v

    most = v.max()
    if pen.rank == 0:
        print(f"after {args.steps} steps there is up to {most:.9f} of the second substance")
    if args.picture:
        draw(v, args.picture)
        return
    for _ in range(args.steps):
        bends = [sum(np.roll(f, s, (0, 1, 2)) for s in SIDES) - 6 * f for f in whole]
        whole = react(*whole, *bends)
    assert np.allclose(pencils.gather(v, root=None), whole[1], rtol=1e-12)


if __name__ == "__main__":
    main()
