"""Pictures of decompositions and of fields, with Matplotlib: ``pip install "pencils[plot]"``.

Functions take and return Matplotlib axes, so that titles, limits and colours can be changed, and
several pictures arranged in one figure.
"""

from pencils.tools.plot.curves import plot_spectrum, plot_times
from pencils.tools.plot.decompositions import plot_decomposition, plot_redistribution, plot_tuning
from pencils.tools.plot.figures import save_picture
from pencils.tools.plot.slices import plot_file, plot_slice

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
