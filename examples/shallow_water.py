"""A drop falls into a square basin: waves in shallow water, by finite volumes and upwinding.

python examples/shallow_water.py
mpiexec -n 4 python -m pencils run examples/shallow_water.py --n 200 --time 0.6 --picture waves.png

Depth h and momentum (p, q) are conserved, with Rusanov's fluxes between cells. Walls reflect.
"""

import argparse

import numpy as np

import pencils

GRAVITY = 9.81


def fluxes(h, p, q):
    """Return the fluxes of depth and momentum along x and along y, and the fastest wave."""
    push, turn, fastest = GRAVITY * h * h / 2, p * q / h, np.sqrt(GRAVITY * h)
    along = [p, p * p / h + push, turn], [q, turn, q * q / h + push]
    return along, np.sqrt(p * p + q * q) / h + fastest


def fill(state):
    """Fill the halo, beyond walls by what they reflect."""
    state.exchange_halo(corners=False)
    for dim, i in np.ndindex(2, 3):
        state.component(i).fill_boundary("anti" * (i == dim + 1) + "symmetric", axis=dim)


@pencils.fused
def step(state, dt, spacing):
    """Advance all three fields."""
    rates = [0, 0, 0]
    for dim, ahead in enumerate(np.eye(2, dtype=int)):
        sides = [[f.shift(tuple(s * ahead)) for f in state.unstack()] for s in (-1, 0, 1)]
        flux, wave = zip(*[fluxes(*side) for side in sides], strict=True)
        fast = [np.maximum(*wave[:2]), np.maximum(*wave[1:])]
        for i, (low, middle, high) in enumerate(zip(*sides, strict=True)):
            rates[i] += fast[1] * (high - middle) - fast[0] * (middle - low)
            rates[i] += flux[0][dim][i] - flux[2][dim][i]
    for i in range(3):
        state[i] += dt / (2 * spacing) * rates[i]


def solve(n, time):
    """Return depth and momentum at the end, on n times n cells of a basin of side 1."""
    x, y = pencils.localgrid(pencils.Pencil((n, n)), [(np.arange(n) + 0.5) / n] * 2)
    state = pencils.zeros(x.pencil, components=3, halo=1)
    state[0] = 1 + 0.5 * np.exp(-100 * (x - 0.5) ** 2 - 100 * (y - 0.5) ** 2)
    steps = int(np.ceil(time * n * 2 * np.sqrt(1.5 * GRAVITY)))
    for _ in range(steps):
        fill(state)
        step(state, time / steps, 1 / n)
    return state


def main():
    add = (parser := argparse.ArgumentParser()).add_argument
    add("--n", type=int, default=24, help="cells along a side")
    add("--time", type=float, default=0.2)
    add("--picture", metavar="FILE", help="draw the depth; needs Matplotlib")
    args = parser.parse_args()

    state = solve(args.n, args.time)
    depth = pencils.gather(state, root=None, key=0)
    assert np.allclose([depth[::-1], depth[:, ::-1], depth.T], depth, rtol=0, atol=1e-12)
    assert np.isclose(depth.mean(), solve(args.n, 0)[0].mean())
    if state.pencil.rank == 0:
        print(f"depth {depth.min():.9f} to {depth.max():.9f}, mean {depth.mean():.9f}")
    if args.picture:
        from pencils.tools.plot import plot_slice, save_picture

        save_picture(args.picture, plot_slice(state, component=0, cmap="viridis", label="depth"))


if __name__ == "__main__":
    main()
