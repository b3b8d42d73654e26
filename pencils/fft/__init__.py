"""Fourier, cosine and sine transforms: `PencilFFT`, and the serial ones along one dimension.

Imports transpositions (`pencils.transposition`), fields, the base of plans and what is below; the
only folder that imports SciPy's transforms and mpi4py-fft. Begin with `plan`: `options` checks its
arguments, `stages` chooses pencils, and `execute` runs transposes and serial `kernels` in turn.
"""

from pencils.fft.plan import PencilFFT
from pencils.fft.serial import fft, ifft, irfft, rfft

__all__ = ["PencilFFT", "fft", "ifft", "irfft", "rfft"]
