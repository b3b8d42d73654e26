"""Two substances that react and diffuse: the equations of Gray and Scott, in a periodic plane.

python examples/gray_scott.py
mpiexec -n 4 python -m pencils run examples/gray_scott.py --n 128 --steps 4000 --picture spots.png

The equations are u_t = 0.16 ∇²u - uv² + F (1 - u) and v_t = 0.08 ∇²v + uv² - (F + k) v, in
explicit steps of time 1 on a grid of spacing 1. Both substances are components of one field, so
that their ghosts travel together. The result is compared with NumPy on the whole grid.
"""

import argparse

import numpy as np

import pencils

F, K = 0.035, 0.06
SIDES = (1, 0), (-1, 0), (0, 1), (0, -1)


def react(sides, u, v):
    """Return both substances after a step; ``sides(u)`` are the neighbours of all points."""
    bend_u, bend_v = (sum(sides(f)) - 4 * f for f in (u, v))
    reaction = u * v * v
    new_u = u + (0.16 * bend_u - reaction + F * (1 - u))
    return new_u, v + (0.08 * bend_v + reaction - (F + K) * v)


@pencils.fused
def step(state):
    """Return both substances after a step, by one exchange and one pass over memory."""
    state.exchange_halo(corners=False)
    return react(lambda f: [f.shift(offsets) for offsets in SIDES], *state.unstack())


def start(n):
    """Return both substances: all of the first but for a square and some noise."""
    pen = pencils.Pencil((n, n), decomp=(0, 1), periodic=True)
    state = pencils.zeros(pen, components=2, halo=1)
    middle = slice(n // 2 - n // 8, n // 2 + n // 8)
    state[0], state[0, middle, middle], state[1, middle, middle] = 1.0, 0.5, 0.25
    state += pencils.random.uniform(pen, rng=1, low=0, high=0.02, components=2)
    return state


def solve(n, steps):
    """Return both substances after some steps."""
    state = start(n)
    new = state.copy()
    for _ in range(steps):
        step(state, out=new.unstack())
        state, new = new, state
    return state


def main():
    parser = argparse.ArgumentParser(description="Two substances that react and diffuse.")
    add = parser.add_argument
    add("--n", type=int, default=32, help="points along a side (default: %(default)s)")
    add("--steps", type=int, default=50, help="default: %(default)s")
    add("--picture", metavar="FILE", help="draw the second substance; needs Matplotlib")
    args = parser.parse_args()

    state = solve(args.n, args.steps)
    serial = pencils.gather(start(args.n), root=None)
    for _ in range(args.steps):
        serial = react(lambda f: [np.roll(f, offsets, (0, 1)) for offsets in SIDES], *serial)
    error = abs(pencils.gather(state, root=None) - serial).max()
    assert error < 1e-9
    if state.pencil.rank == 0:
        print(f"difference to the serial result after {args.steps} steps: {error:.1e}")
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        save_picture(args.picture, plot_slice(state, component=1, cmap="cividis", label="v"))


if __name__ == "__main__":
    main()
