"""Drawings of partitions, in the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from pencils.graph.array import Array, Placeholder
from pencils.graph.partition import (
    DistributedGraphPart,
    DistributedGraphPartition,
    count_calls,
    count_of,
    every_part,
    size_of,
)


def to_dot(partition: DistributedGraphPartition) -> str:
    r"""Draw the parts of this rank and their messages, in the language of Graphviz.

    Parameters
    ----------
    partition : DistributedGraphPartition
        The parts to draw.

    Returns
    -------
    str
        Input for ``dot -Tsvg``.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from pencils.graph import find_distributed_partition, make_placeholder
    >>> x = make_placeholder("x", (3,))
    >>> print(to_dot(find_distributed_partition(MPI.COMM_SELF, {"y": 2 * x})))
    digraph partition {
      node [shape=plain];
      "part 0" [shape=box, label="part 0: 1 node"];
      "input x" -> "part 0" [label="(3,) float64, 24 B"];
      "part 0" -> "output y" [label="(3,) float64, 24 B"];
    }
    """
    return "\n".join(["digraph partition {", "  node [shape=plain];", *_drawn(partition), "}"])


def _drawn(partition: DistributedGraphPartition) -> Iterator[str]:
    origins: dict[str, str] = {}  # of values that come from other parts or ranks
    for part in every_part(partition):
        here = f"part {part.pid}"
        label = f"{here}: {count_of(count_calls(partition, part), 'node')}"
        yield f"  {_quoted(here)} [shape=box, label={_quoted(label)}];"
        for name, recv in part.name_to_recv_node.items():
            origins[name] = f"{recv.comm_tag!r} from rank {recv.src_rank}"
        for node in partition.nodes_of(part):
            if isinstance(node, Placeholder):
                given = node.name in part.user_input_names
                origin = f"input {node.name}" if given else origins.get(node.name, node.name)
                yield _arrow(origin, here, node)
        for name in sorted(part.output_names):
            origins[name] = here
        yield from _leaving(partition, part, here)


def _leaving(
    partition: DistributedGraphPartition, part: DistributedGraphPart, here: str
) -> Iterator[str]:
    for sends in part.name_to_send_nodes.values():
        for send in sends:
            yield _arrow(here, f"{send.comm_tag!r} to rank {send.dest_rank}", send.data)
    for name in sorted(part.output_names.intersection(partition.overall_output_names)):
        yield _arrow(here, f"output {name}", partition.name_to_output[name])


def _arrow(tail: str, head: str, node: Array) -> str:
    return f"  {_quoted(tail)} -> {_quoted(head)} [label={_quoted(size_of(node))}];"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
