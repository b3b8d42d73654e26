"""What a decomposition will cost, for any number of ranks, without MPI or fields.

Imports layouts and the measurement of links. Begin with `candidates`: the function `plan`.
`operations` lists the exchanges of a transform or a halo, `counts` counts their messages for many
ranks at once, and `links` holds latencies and bandwidths.
"""

from pencils.tools.planning.links import Links, measure_links

__all__ = ["Links", "measure_links"]
