"""Methods: how blocks are moved between ranks; one file each, and the table of their names."""

from pencils.comm.methods.alltoall import Alltoallw
from pencils.comm.methods.gathered import Gathered
from pencils.comm.methods.messages import Messages
from pencils.comm.methods.method import Method
from pencils.comm.methods.shared import Hybrid, Shared

# The only table of names. "auto" is no method: `pencils.comm.exchange` chooses one.
METHODS: dict[str, type[Method]] = {
    method.name: method for method in (Shared, Hybrid, Gathered, Messages, Alltoallw)
}

__all__ = ["METHODS", "Alltoallw", "Hybrid", "Messages", "Method", "Shared"]
