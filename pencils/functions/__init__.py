"""NumPy functions that need more than own blocks or one reduction.

`pencils.array.numpy_api` comes here for functions that are not in its own tables. Each file has a
table `FUNCTIONS`: what replaces a function of NumPy, with its signature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pencils.functions import (
    components,
    counts,
    differences,
    elementwise,
    gradients,
    histograms,
    lines,
    moves,
    order_statistics,
    scans,
    statistics,
    tensors,
)

Function = Callable[..., Any]

FUNCTIONS: dict[Function, Function] = {
    **components.FUNCTIONS,
    **counts.FUNCTIONS,
    **differences.FUNCTIONS,
    **elementwise.FUNCTIONS,
    **gradients.FUNCTIONS,
    **histograms.FUNCTIONS,
    **lines.FUNCTIONS,
    **moves.FUNCTIONS,
    **order_statistics.FUNCTIONS,
    **scans.FUNCTIONS,
    **statistics.FUNCTIONS,
    **tensors.FUNCTIONS,
}
