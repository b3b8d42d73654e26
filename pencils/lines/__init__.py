"""Systems of equations and differences along lines of points, wherever these are cut.

Begin with `plan`, which chooses between the methods of `methods` and `reduced`.
"""

from pencils.lines.derivative import CompactDerivative
from pencils.lines.midpoints import midpoints
from pencils.lines.solver import LineSolver, solve_banded

__all__ = ["CompactDerivative", "LineSolver", "midpoints", "solve_banded"]
