"""The name under which the indexers know how values for one index are combined."""

from pencils.combining import ReduceOp

__all__ = ["ReduceOp"]
