"""Go on after processes have died: on the other ones, from copies in memory or from files.

Needs an MPI library with User-Level Failure Mitigation, such as Open MPI 5.
"""

from pencils.recovery.copies import BuddyCopies
from pencils.recovery.survivors import recover

__all__ = ["BuddyCopies", "recover"]
