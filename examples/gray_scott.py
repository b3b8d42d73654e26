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
STAR: dict[tuple[int, ...], float] = {(1, 0): 1, (-1, 0): 1, (0, 1): 1, (0, -1): 1, (0, 0): -4}


def react(u, v, bend_u, bend_v):
    """Return how fast both substances change."""
    reaction = u * v * v
    return 0.16 * bend_u - reaction + F * (1 - u), 0.08 * bend_v + reaction - (F + K) * v


def start(n):
    """Return the pencil, and both substances: all of the first but for a square and some noise."""
    pen = pencils.Pencil((n, n), decomp=(0, 1), periodic=True)
    state = pencils.zeros(pen, components=2, halo=1)
    state[0] = 1.0
    middle = slice(n // 2 - n // 8, n // 2 + n // 8)
    state[0, middle, middle], state[1, middle, middle] = 0.5, 0.25
    state += pencils.random.uniform(pen, rng=1, low=0, high=0.02, components=2)
    return state


def solve(n, steps):
    """Return both substances after some steps."""
    state = start(n)
    for _ in range(steps):
        state.exchange_halo(corners=False)
        changes = react(*state.unstack(), *pencils.stencil(state, STAR).unstack())
        state += np.stack(changes)
    return state


def solve_serially(n, steps):
    """Do the same with NumPy, on each rank."""
    u, v = pencils.gather(start(n), root=None)
    for _ in range(steps):
        bends = [sum(w * np.roll(f, step, (0, 1)) for step, w in STAR.items()) for f in (u, v)]
        change_u, change_v = react(u, v, *bends)
        u, v = u + change_u, v + change_v
    return np.stack([u, v])


def main():
    parser = argparse.ArgumentParser(description="Two substances that react and diffuse.")
    add = parser.add_argument
    add("--n", type=int, default=32, help="points along a side (default: %(default)s)")
    add("--steps", type=int, default=50, help="default: %(default)s")
    add("--picture", metavar="FILE", help="draw the second substance; needs Matplotlib")
    args = parser.parse_args()

    state = solve(args.n, args.steps)
    error = abs(pencils.gather(state, root=None) - solve_serially(args.n, args.steps)).max()
    assert error < 1e-9
    if state.pencil.rank == 0:
        print(f"difference to the serial result after {args.steps} steps: {error:.1e}")
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        save_picture(args.picture, plot_slice(state, component=1, cmap="cividis", label="v"))


if __name__ == "__main__":
    main()
