"""Partitions as text and as drawings, for people."""

from __future__ import annotations

from collections.abc import Iterator

from pencils.graph.array import Array, Call, Placeholder
from pencils.graph.partition import DistributedGraphPart, DistributedGraphPartition, in_turn

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def to_text(partition: DistributedGraphPartition) -> str:
    """Describe each part in a few lines: what it receives, computes and sends."""
    parts = list(_ordered(partition))
    recvs = sum(len(part.name_to_recv_node) for part in parts)
    sends = sum(len(many) for part in parts for many in part.name_to_send_nodes.values())
    outputs = ", ".join(partition.overall_output_names)
    traffic = f"{_many(recvs, 'message')} received, {sends} sent"
    lines = [
        f"<DistributedGraphPartition: {_many(len(parts), 'part')}, {traffic}, outputs {outputs}"
    ]
    for part in parts:
        lines.append(f"  part {part.pid!r}: computes {_many(_calls(partition, part), 'node')}")
        lines += [f"    {line}" for line in _traffic(part)]
    return "\n".join(lines) + ">"


def _traffic(part: DistributedGraphPart) -> Iterator[str]:
    for recv in part.name_to_recv_node.values():
        yield f"receives {recv.comm_tag!r} from rank {recv.src_rank}: {_size(recv)}"
    for sends in part.name_to_send_nodes.values():
        for send in sends:
            yield f"sends {send.comm_tag!r} to rank {send.dest_rank}: {_size(send.data)}"


def to_dot(partition: DistributedGraphPartition) -> str:
    r"""Draw the parts of this rank and their messages, in the language of Graphviz.

    Parameters
    ----------
    partition : DistributedGraphPartition
        What to draw.

    Returns
    -------
    str
        To be drawn by ``dot -Tsvg``.

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
    origins: dict[str, str] = {}  # of what parts have from each other, or from other ranks
    for part in _ordered(partition):
        here = f"part {part.pid}"
        label = f"{here}: {_many(_calls(partition, part), 'node')}"
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
    return f"  {_quoted(tail)} -> {_quoted(head)} [label={_quoted(_size(node))}];"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _ordered(partition: DistributedGraphPartition) -> list[DistributedGraphPart]:
    """List all parts, those in turn first."""
    parts = {part.pid: part for part in in_turn(partition)} | dict(partition.parts)
    return list(parts.values())


def _calls(partition: DistributedGraphPartition, part: DistributedGraphPart) -> int:
    return sum(isinstance(node, Call) for node in partition.nodes_of(part))


def _size(node: Array) -> str:
    size: float = node.nbytes
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:  # noqa: PLR2004
        size /= 1024
        unit += 1
    return f"{node.shape} {node.dtype}, {size:.3g} {_UNITS[unit]}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + "s" * (count != 1)
