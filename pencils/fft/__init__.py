"""Fourier, cosine and sine transforms: `PencilFFT`, and the serial ones along one dimension.

Imports transpositions (`pencils.transposition`), fields, the base of plans and what is below; the
only folder that imports SciPy's transforms and mpi4py-fft. Begin with `plan`: `options` checks its
arguments, `stages` chooses pencils, `directions` runs transposes and serial transforms in turn, and
`execute` the latter by `kernels`.
"""

from pencils.fft.plan import PencilFFT
from pencils.fft.serial import fft, ifft, irfft, rfft

__all__ = ["PencilFFT", "fft", "ifft", "irfft", "rfft"]
