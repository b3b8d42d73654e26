"""Pictures of decompositions and of fields, with Matplotlib: ``pip install 'pencils[plot]'``.

Functions take and return Matplotlib axes, so that titles, limits and colours can be changed, and
several pictures arranged in one figure.
"""

from pencils.plot.curves import plot_spectrum, plot_times
from pencils.plot.decompositions import plot_decomposition, plot_redistribution
from pencils.plot.figures import save_picture
from pencils.plot.files import plot_file
from pencils.plot.slices import plot_slice
from pencils.plot.tunings import plot_tuning

__all__ = [
    "plot_decomposition",
    "plot_file",
    "plot_redistribution",
    "plot_slice",
    "plot_spectrum",
    "plot_times",
    "plot_tuning",
    "save_picture",
]
