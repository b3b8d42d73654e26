"""Output over time: `TimeSeries` in one HDF5 file, or in a folder of snapshots.

May import what `pencils.io` may import, and its files. Begin with `time_series`; `in_file` and
`in_folder` are the two ways to store a series, `state` is what it contains, `tree` uses h5py.
"""

from pencils.io.series.time_series import TimeSeries

__all__ = ["TimeSeries"]
