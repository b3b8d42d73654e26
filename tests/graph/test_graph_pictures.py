"""Partitions are shown as text and as drawings."""

from graphs import partition_all

from pencils import graph


def halves():
    x = graph.make_placeholder("x", (1000,))
    quoted = 'a "tag"'
    return partition_all(
        {"y": graph.staple_distributed_send(2 * x, 1, quoted, x.sum()) * x},
        {"z": graph.make_distributed_recv(0, quoted, (1000,), float) + 1, "x": x},
    )


def test_texts_show_nodes_and_messages():
    one, two = halves()
    assert str(one) == repr(one)
    assert str(one).splitlines() == [
        "<DistributedGraphPartition: 1 part, 0 messages received, 1 sent, outputs y",
        "  part 0: computes 3 nodes",
        "    sends 'a \"tag\"' to rank 1: (1000,) float64, 7.81 KiB>",
    ]
    assert str(two).splitlines() == [
        "<DistributedGraphPartition: 1 part, 1 message received, 0 sent, outputs z, x",
        "  part 0: computes 1 node",
        "    receives 'a \"tag\"' from rank 0: (1000,) float64, 7.81 KiB>",
    ]


def test_drawings_are_graphs():
    one, two = map(graph.to_dot, halves())
    assert '"part 0" -> "\'a \\"tag\\"\' to rank 1" [label="(1000,) float64, 7.81 KiB"];' in one
    assert '"input x" -> "part 0"' in one
    assert '"part 0" -> "output y"' in one
    assert '"\'a \\"tag\\"\' from rank 0" -> "part 0"' in two
    for text in (one, two):
        assert text.startswith("digraph partition {")
        assert text.count("{") == text.count("}") == 1


def test_drawings_show_values_between_parts():
    x = graph.make_placeholder("x", (3,))
    shared = x + 1
    node = graph.staple_distributed_send(shared * 2, 0, 0, shared)
    (partition,) = partition_all({"y": node * graph.make_distributed_recv(0, 0, (3,), float)})
    assert '"part 0" -> "part 1" [label="(3,) float64, 24 B"];' in graph.to_dot(partition)
