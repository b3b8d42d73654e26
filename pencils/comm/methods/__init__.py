"""How an exchange travels: one class for each method, and the table of their names."""

from pencils.comm.methods.alltoall import Alltoallv, Alltoallw
from pencils.comm.methods.messages import Messages
from pencils.comm.methods.method import (
    Arrival,
    Call,
    Cargo,
    Flow,
    Method,
    Packing,
    Piece,
    Plan,
    each_of,
    nothing,
)
from pencils.comm.methods.node import Hybrid, Shared, is_near

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (Shared, Hybrid, Messages, Alltoallv, Alltoallw)
}

__all__ = [
    "METHODS",
    "Arrival",
    "Call",
    "Cargo",
    "Flow",
    "Method",
    "Packing",
    "Piece",
    "Plan",
    "each_of",
    "is_near",
    "nothing",
]
