"""Equal receives are one receive, in partitions, executions and texts."""

from dataclasses import replace

import numpy as np
import pytest
from graphs import execute, partition_all
from mpi_helpers import everywhere, raise_together

from pencils import graph
from pencils.graph.partition import to_dot

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def receive(comm, tag="ring", shape=(3,), **options):
    return graph.make_distributed_recv((comm.rank - 1) % comm.size, tag, shape, float, **options)


def send(comm, data, onto, tag="ring"):
    return graph.staple_distributed_send(data, (comm.rank + 1) % comm.size, tag, onto)


def outputs(comm, receives):
    """Use what the rank before sends at many places: as an output, in one part and in a later."""
    one, two, three, four = receives
    x = graph.make_placeholder("x", (3,))
    held = send(comm, x, x)
    relayed = send(comm, one + 1, two * 2, "relay")
    late = receive(comm, "relay") * three
    return {"sum": held + one, "twice": relayed, "late": late, "plain": four}


def expected(comm):
    before = float((comm.rank - 1) % comm.size)
    ahead = float((comm.rank - 2) % comm.size) + 1
    return {
        "sum": comm.rank + before,
        "twice": 2 * before,
        "late": ahead * before,
        "plain": before,
    }


@pytest.mark.parametrize("compiled", [False, True])
def test_equal_receives_are_one(comm, compiled):
    made = outputs(comm, [receive(comm) for _ in range(4)])
    x = np.full(3, float(comm.rank))
    for _ in range(2):
        found = execute(comm, made, compiled, x=x)
        wanted = expected(comm)
        assert everywhere(comm, all((found[name] == wanted[name]).all() for name in wanted))


def test_the_partition_is_that_of_one_node(comm):
    one = receive(comm)
    alone = graph.find_distributed_partition(comm, outputs(comm, [one] * 4))
    equal = graph.find_distributed_partition(comm, outputs(comm, [receive(comm) for _ in "1234"]))
    graph.verify_distributed_partition(comm, equal)
    for picture in (to_dot, str):
        assert everywhere(comm, picture(alone) == picture(equal))
    named = [node for part in equal.parts.values() for node in part.name_to_recv_node.values()]
    assert everywhere(comm, sorted(node.comm_tag for node in named) == ["relay", "ring"])


def test_what_is_received_may_be_sent_on_by_an_equal_node(comm):
    x = graph.make_placeholder("x", (3,))
    node = send(comm, x, receive(comm) + 0)
    node = send(comm, receive(comm), node, "on")
    found = execute(comm, {"y": node, "z": receive(comm, "on")}, x=np.full(3, float(comm.rank)))
    assert everywhere(comm, (found["y"] == (comm.rank - 1) % comm.size).all())
    assert everywhere(comm, (found["z"] == (comm.rank - 2) % comm.size).all())


def test_marks_that_do_not_count(comm):
    one = receive(comm)
    other = replace(one, non_equality_tags=frozenset({"whatever"}))
    x = graph.make_placeholder("x", (3,))
    found = execute(comm, {"y": send(comm, x, one + other)}, x=np.full(3, float(comm.rank)))
    assert everywhere(comm, (found["y"] == 2.0 * ((comm.rank - 1) % comm.size)).all())


@pytest.mark.parametrize(
    "other",
    [{"shape": (2,)}, {"tags": frozenset({"mark"})}, {"axes": ("radius",)}],
    ids=["shape", "tags", "axes"],
)
def test_receives_that_differ_are_two(comm, other):
    x = graph.make_placeholder("x", (3,))
    node = send(comm, x, receive(comm).sum() + receive(comm, **other).sum())
    raise_together(
        comm,
        graph.DuplicateRecvError,
        "make one node for each, and use it everywhere",
        "'ring' from rank",
        call=lambda: graph.find_distributed_partition(comm, {"y": node}),
    )


def test_equal_sends_stay_two(comm):
    x = graph.make_placeholder("x", (3,))
    node = send(comm, x, send(comm, x, receive(comm)))
    raise_together(
        comm,
        graph.DuplicateSendError,
        call=lambda: graph.find_distributed_partition(comm, {"y": node}),
    )


def test_ranks_may_differ_in_how_often_they_make_a_node():
    x = graph.make_placeholder("x", (2,))
    sender = {"y": graph.staple_distributed_send(x, 1, "a", x)}
    made = [graph.make_distributed_recv(0, "a", (2,), float) for _ in range(3)]
    _, partition = partition_all(sender, {"y": made[0] + made[1] * made[2]})
    assert sum(len(part.name_to_recv_node) for part in partition.parts.values()) == 1
