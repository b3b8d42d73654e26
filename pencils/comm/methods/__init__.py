"""Methods: how blocks are moved between ranks; one file each, and the table of their names."""

from pencils.comm.methods.alltoall import Alltoallw
from pencils.comm.methods.gathered import Gathered
from pencils.comm.methods.messages import Messages
from pencils.comm.methods.method import Method
from pencils.comm.methods.shared import Hybrid, Shared

# The names that users may pass. "auto" is none of them: `pencils.comm.exchange` chooses one. Nor is
# "pull", which takes all ranks to meet: transposes and halos try it first.
METHODS: dict[str, type[Method]] = {
    method.name: method for method in (Shared, Hybrid, Gathered, Messages, Alltoallw)
}

__all__ = ["METHODS", "Alltoallw", "Hybrid", "Messages", "Method", "Shared"]
