"""Take and put: rows of distributed data, read and written by global coordinates or indices.

`points` reads and writes points of fields, `global_indexers` items of distributed collections,
`interpolation` values between the points of fields. All of them use the plan of `gather_scatter`:
begin there. Imports nothing above `array`.
"""

from pencils.comm.reduce import ReduceOp
from pencils.indexer.global_indexers import GlobalIndexer, GlobalMultiIndexer
from pencils.indexer.interpolation import Interpolation, interpolate
from pencils.indexer.points import PointIndexer

__all__ = [
    "GlobalIndexer",
    "GlobalMultiIndexer",
    "Interpolation",
    "PointIndexer",
    "ReduceOp",
    "interpolate",
]
