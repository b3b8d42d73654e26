"""Pure arithmetic of decompositions: integers in, integers out, for any rank of any number."""

from pencils.layout.box import Box
from pencils.layout.grid import ProcessGrid, choose_grid
from pencils.layout.layout import Layout
from pencils.layout.make import make_layout
from pencils.layout.schedule import Message, Schedule, gather, redistribution, scatter
from pencils.layout.selection import Selection
from pencils.layout.split import Split
from pencils.layout.zones import interior, margins, reach

__all__ = [
    "Box",
    "Layout",
    "Message",
    "ProcessGrid",
    "Schedule",
    "Selection",
    "Split",
    "choose_grid",
    "gather",
    "interior",
    "make_layout",
    "margins",
    "reach",
    "redistribution",
    "scatter",
]
