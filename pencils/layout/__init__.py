"""Arithmetic of decompositions: which rank owns which points, and which rank sends which box.

Integers in, integers out, for any rank of any number of ranks, in time that does not grow with
their number. Imports `pencils.errors` only; no MPI, no arrays. Begin with `split` (one dimension),
`layout` (all of them) and `redistribution` (from one layout to another).
"""

from pencils.layout.box import Box, Selection
from pencils.layout.build import build_layout, choose_grid
from pencils.layout.halo import ghost_box, halo_room, interior
from pencils.layout.layout import Extent, Layout, ProcessGrid
from pencils.layout.redistribution import (
    Message,
    Traffic,
    gather,
    off_node,
    redistribution,
    scatter,
)
from pencils.layout.split import Split

__all__ = [
    "Box",
    "Extent",
    "Layout",
    "Message",
    "ProcessGrid",
    "Selection",
    "Split",
    "Traffic",
    "build_layout",
    "choose_grid",
    "gather",
    "ghost_box",
    "halo_room",
    "interior",
    "off_node",
    "redistribution",
    "scatter",
]
