"""Output over time: in one file, or in a folder of snapshots."""

from pencils.io.series.time_series import TimeSeries

__all__ = ["TimeSeries"]
