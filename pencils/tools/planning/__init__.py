"""Which decomposition and method are fastest: predicted for any number of ranks, or measured.

Begin with `candidates`: the function `plan`, and the exchanges of each operation. `counts` counts
their messages for many ranks at once, and `links` holds latencies and bandwidths. `tuning` has the
function `tune`, which measures.
"""

from pencils.tools.planning.links import Links, measure_links

__all__ = ["Links", "measure_links"]
