"""Fourier, cosine and sine transforms of fields: `PencilFFT`, and the serial ones it is made of."""

from pencils.fft.plan import PencilFFT
from pencils.fft.serial import fft, ifft, irfft, rfft

__all__ = ["PencilFFT", "fft", "ifft", "irfft", "rfft"]
