"""Go on after processes have died: on the other ones, from copies in memory or from files.

Needs an MPI library with User-Level Failure Mitigation, such as Open MPI 5.
"""

from pencils.tools.recovery.copies import BuddyCopies, Copy
from pencils.tools.recovery.survivors import recover

__all__ = ["BuddyCopies", "Copy", "recover"]
