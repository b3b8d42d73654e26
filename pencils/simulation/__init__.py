"""Simulated ranks: an MPI in one Python process, in pure Python and NumPy.

Every simulated rank is a thread, and exactly one of them runs at a time. This folder needs no MPI
library, and imports only `pencils.errors` and `pencils.process`. Begin reading with `simulate`,
then `scheduler`; `communicators` has what programs call. In folders: `types` (which bytes a message
has), `messages`, `collectives` and `windows`.
"""

from pencils.simulation.ranks import Fault
from pencils.simulation.simulate import Simulation, point, simulate

__all__ = ["Fault", "Simulation", "point", "simulate"]
