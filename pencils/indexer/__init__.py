"""Reading and writing distributed collections by global indices."""

from pencils.comm.combining import ReduceOp
from pencils.indexer.multi import GlobalMultiIndexer
from pencils.indexer.points import PointIndexer
from pencils.indexer.single import GlobalIndexer

__all__ = ["GlobalIndexer", "GlobalMultiIndexer", "PointIndexer", "ReduceOp"]
