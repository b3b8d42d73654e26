"""The spectrum of a random field whose energy falls as k^(-5/3), as that of turbulence does.

python examples/spectrum.py
mpiexec -n 4 python -m pencils run examples/spectrum.py --n 64 --picture spectrum.png

Waves with random phases get their amplitudes from the spectrum wanted; transformed back they are a
real field. Its own waves are then summed over shells of equal wave number. Energy is half of the
mean of the square, of the points as of the waves (Parseval).
"""

import argparse

import numpy as np

import pencils
from pencils.fft import PencilFFT


def shells(plan):
    """Return the number of the shell of each wave: its wave number, rounded."""
    kx, ky, kz = plan.wavenumbers(nyquist="keep")
    return np.rint(np.sqrt(kx**2 + ky**2 + kz**2)).astype(int)


def spectrum(waves, shell, last):
    """Return the energy of each shell; waves inside the halved axis count twice."""
    kz = np.arange(waves.shape[2])
    twice = np.where((kz > 0) & (kz < last), 2.0, 1.0)
    return np.bincount(shell, weights=abs(waves) ** 2 * twice / 2)


def main():
    parser = argparse.ArgumentParser(description="The spectrum of a random field.")
    add = parser.add_argument
    add("--n", type=int, default=24, help="points along a side, even (default: %(default)s)")
    add("--picture", metavar="FILE", help="draw the spectrum; needs Matplotlib")
    args = parser.parse_args()

    n = args.n
    pen = pencils.Pencil((n, n, n), periodic=True)
    with PencilFFT(pen, float, normalize="forward") as plan:
        shell = shells(plan)
        waves = plan.forward(pencils.random.normal(pen, rng=1))
        given = spectrum(waves, shell, n // 2)
        number = np.arange(1, given.size)
        wanted = np.zeros(given.size)
        wanted[1:] = np.where(number < n // 2, number ** (-5 / 3), 0)
        factor = np.sqrt(wanted / given)
        scale = pencils.zeros(waves.pencil)
        scale.local[...] = factor[shell.local]
        u = plan.backward(waves * scale)
        found = spectrum(plan.forward(u), shell, n // 2)

    energy = (u**2).mean() / 2
    assert np.allclose(found, wanted, atol=1e-12)
    assert np.isclose(energy, wanted.sum())
    if pen.rank == 0:
        print(f"energy {energy:.9f}, of which {found[1] / energy:.4f} in the longest waves")
    if args.picture:
        from pencils.tools.plot import plot_spectrum, save_picture

        ax = plot_spectrum(u)
        if ax is not None:  # on rank 0
            ax.set_ylim(wanted[wanted > 0].min() / 2, 2)  # beyond it is what rounding leaves
        save_picture(args.picture, ax)


if __name__ == "__main__":
    main()
