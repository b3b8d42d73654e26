"""NumPy functions that need more than own blocks or one reduction.

`pencils.array.numpy_api` comes here for functions that are not in its own tables. `FUNCTIONS` lists
what replaces each of them; `refused` explains what to write instead of others. Where functions have
the arguments of others, their signatures are spelled once: NumPy checks them before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from pencils.functions import (
    arrangements,
    components,
    differences,
    elementwise,
    histograms,
    lines,
    matrices,
    moves,
    order_statistics,
    padding,
    scans,
    shapes,
    statistics,
)
from pencils.functions.elementwise import own_points
from pencils.functions.lines import along

__all__ = ["FUNCTIONS", "along", "own_points"]

# What replaces functions of the same names; some are there since NumPy 2.1.
_NAMES: dict[ModuleType, str] = {
    arrangements: "expand_dims squeeze append choose array_equiv apply_over_axes broadcast_arrays "
    "block broadcast_to delete dot ediff1d ravel_multi_index real_if_close",
    components: "stack unstack take cross vecdot einsum tensordot",
    differences: "diff trapezoid gradient",
    elementwise: "searchsorted digitize isin select piecewise polyval fix astype",
    histograms: "bincount unique unique_values unique_counts histogram histogram_bin_edges "
    "histogram2d histogramdd",
    lines: "sort argsort unwrap apply_along_axis take_along_axis",
    matrices: "matmul matvec vecmat trace",
    moves: "roll flip fliplr flipud",
    order_statistics: "median nanmedian quantile nanquantile percentile nanpercentile",
    scans: "cumsum cumprod nancumsum nancumprod cumulative_sum cumulative_prod",
    padding: "pad",
    shapes: "concatenate tile repeat",
    statistics: "average nansum nanprod nanmin nanmax nanargmin nanargmax nanmean nanvar nanstd",
}
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    getattr(np, name): getattr(module, name)
    for module, names in _NAMES.items()
    for name in names.split()
    if hasattr(np, name)
} | {
    np.linalg.cross: components.linalg_cross,
    np.linalg.norm: components.norm,
    np.linalg.vecdot: components.vecdot,
    np.linalg.matmul: matrices.matmul,
    np.linalg.multi_dot: matrices.multi_dot,
    np.linalg.outer: matrices.outer,
    np.linalg.tensordot: components.tensordot,
    np.linalg.vector_norm: matrices.vector_norm,
    np.linalg.solve: matrices.solve,
    np.partition: partial(lines.partition, np.partition),
    np.argpartition: partial(lines.partition, np.argpartition),
    np.add.accumulate: partial(scans.accumulate, np.add),
    np.multiply.accumulate: partial(scans.accumulate, np.multiply),
}
FUNCTIONS |= matrices.OF_MATRICES | arrangements.ARRANGING
