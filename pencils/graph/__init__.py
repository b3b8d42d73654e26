"""Distributed expression graphs: written once, verified once, executed with overlap many times.

NumPy expressions on nodes build a graph on every rank, and compute nothing; sends and receives are
nodes, too. This folder may import all layers up to `indexer`. Begin reading with `array`, then
`messages`; `find` splits the graph into the parts of `partition`, `program` prepares these, and
`execute` computes them while messages are under way. `fields` has halo exchange, transpose, take.
"""

from pencils.graph.array import Array, Call, DataWrapper, ImplStored, Placeholder, Tag
from pencils.graph.execute import execute_distributed_partition, generate_code_for_partition
from pencils.graph.fields import halo_exchange, take, transpose
from pencils.graph.find import find_distributed_partition
from pencils.graph.messages import (
    AxesT,
    CommTagType,
    CommunicationDepGraph,
    CommunicationOpIdentifier,
    DictOfNamedArrays,
    DistributedRecv,
    DistributedSend,
    DistributedSendRefHolder,
    ShapeType,
    call,
    full,
    make_data_wrapper,
    make_dict_of_named_arrays,
    make_distributed_recv,
    make_distributed_send,
    make_distributed_send_ref_holder,
    make_placeholder,
    ones,
    staple_distributed_send,
    zeros,
)
from pencils.graph.partition import (
    CycleError,
    DistributedGraphPart,
    DistributedGraphPartition,
    DistributedPartitionVerificationError,
    DuplicateRecvError,
    DuplicateSendError,
    ExecutionError,
    MessageMismatchError,
    MissingRecvError,
    MissingSendError,
    PartitionInducedCycleError,
    to_dot,
)
from pencils.graph.verify import number_distributed_tags, verify_distributed_partition

__all__ = [
    "Array",
    "AxesT",
    "Call",
    "CommTagType",
    "CommunicationDepGraph",
    "CommunicationOpIdentifier",
    "CycleError",
    "DataWrapper",
    "DictOfNamedArrays",
    "DistributedGraphPart",
    "DistributedGraphPartition",
    "DistributedPartitionVerificationError",
    "DistributedRecv",
    "DistributedSend",
    "DistributedSendRefHolder",
    "DuplicateRecvError",
    "DuplicateSendError",
    "ExecutionError",
    "ImplStored",
    "MessageMismatchError",
    "MissingRecvError",
    "MissingSendError",
    "PartitionInducedCycleError",
    "Placeholder",
    "ShapeType",
    "Tag",
    "call",
    "execute_distributed_partition",
    "find_distributed_partition",
    "full",
    "generate_code_for_partition",
    "halo_exchange",
    "make_data_wrapper",
    "make_dict_of_named_arrays",
    "make_distributed_recv",
    "make_distributed_send",
    "make_distributed_send_ref_holder",
    "make_placeholder",
    "number_distributed_tags",
    "ones",
    "staple_distributed_send",
    "take",
    "to_dot",
    "transpose",
    "verify_distributed_partition",
    "zeros",
]
