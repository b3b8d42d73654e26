"""NumPy functions that need more than own blocks or one reduction.

`pencils.array.numpy_api` comes here for functions that are not in its own tables. `FUNCTIONS` lists
what replaces each of them, with its signature; `refused` explains what to write instead of others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pencils.functions import (
    components,
    differences,
    elementwise,
    histograms,
    lines,
    moves,
    order_statistics,
    scans,
    statistics,
)
from pencils.functions.elementwise import own_points
from pencils.functions.lines import along

__all__ = ["FUNCTIONS", "along", "own_points"]

FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.stack: components.stack,
    np.concatenate: components.concatenate,
    np.cross: components.cross,
    np.linalg.cross: components.linalg_cross,
    np.linalg.norm: components.norm,
    np.vecdot: components.vecdot,
    np.linalg.vecdot: components.vecdot,
    np.einsum: components.einsum,
    np.bincount: histograms.bincount,
    np.unique: histograms.unique,
    np.unique_values: histograms.unique_values,
    np.unique_counts: histograms.unique_counts,
    np.diff: differences.diff,
    np.trapezoid: differences.trapezoid,
    np.searchsorted: elementwise.searchsorted,
    np.digitize: elementwise.digitize,
    np.isin: elementwise.isin,
    np.select: elementwise.select,
    np.piecewise: elementwise.piecewise,
    np.polyval: elementwise.polyval,
    np.fix: elementwise.fix,
    np.astype: elementwise.astype,
    np.gradient: differences.gradient,
    np.histogram: histograms.histogram,
    np.histogram_bin_edges: histograms.histogram_bin_edges,
    np.histogram2d: histograms.histogram2d,
    np.histogramdd: histograms.histogramdd,
    np.sort: lines.sort,
    np.argsort: lines.argsort,
    np.apply_along_axis: lines.apply_along_axis,
    np.roll: moves.roll,
    np.flip: moves.flip,
    np.fliplr: moves.fliplr,
    np.flipud: moves.flipud,
    np.median: order_statistics.median,
    np.nanmedian: order_statistics.nanmedian,
    np.quantile: order_statistics.quantile,
    np.nanquantile: order_statistics.nanquantile,
    np.percentile: order_statistics.percentile,
    np.nanpercentile: order_statistics.nanpercentile,
    np.cumsum: scans.cumsum,
    np.cumprod: scans.cumprod,
    np.nancumsum: scans.nancumsum,
    np.nancumprod: scans.nancumprod,
    np.add.accumulate: partial(scans.accumulate, np.add),
    np.multiply.accumulate: partial(scans.accumulate, np.multiply),
    np.average: statistics.average,
    np.nansum: statistics.nansum,
    np.nanprod: statistics.nanprod,
    np.nanmin: statistics.nanmin,
    np.nanmax: statistics.nanmax,
    np.nanargmin: statistics.nanargmin,
    np.nanargmax: statistics.nanargmax,
    np.nanmean: statistics.nanmean,
    np.nanvar: statistics.nanvar,
    np.nanstd: statistics.nanstd,
    np.tensordot: components.tensordot,
    np.matmul: components.matmul,
}
if hasattr(np, "cumulative_sum"):  # since NumPy 2.1
    FUNCTIONS |= {
        np.cumulative_sum: scans.cumulative_sum,
        np.cumulative_prod: scans.cumulative_prod,
        np.unstack: components.unstack,
    }
