"""Equal receives are one receive, in partitions, executions and texts."""

from dataclasses import replace

import numpy as np
import pytest
from graphs import execute, partition_all, receive, send
from mpi_helpers import all_raise, everywhere

from pencils import graph
from pencils.graph.partition import to_dot

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

X = graph.make_placeholder("x", (3,))


def outputs(comm, receives):
    """Use what the rank before sends at many places: as an output, in one part and in a later."""
    one, two, three, four = receives
    relayed = send(comm, one + 1, two * 2, "relay")
    late = receive(comm, "relay") * three
    return {"sum": send(comm, X, X) + one, "twice": relayed, "late": late, "plain": four}


@pytest.mark.parametrize("compiled", [False, True])
def test_equal_receives_are_one(comm, compiled):
    made = outputs(comm, [receive(comm) for _ in range(4)])
    before, ahead = ((comm.rank - by) % comm.size for by in (1, 2))
    wanted = {"sum": comm.rank + before, "twice": 2 * before, "late": (ahead + 1) * before}
    wanted["plain"] = before
    for _ in range(2):
        found = execute(comm, made, compiled, x=np.full(3, float(comm.rank)))
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
    node = send(comm, receive(comm), send(comm, X, receive(comm) + 0), "on")
    found = execute(comm, {"y": node, "z": receive(comm, "on")}, x=np.full(3, float(comm.rank)))
    assert everywhere(comm, (found["y"] == (comm.rank - 1) % comm.size).all())
    assert everywhere(comm, (found["z"] == (comm.rank - 2) % comm.size).all())


def test_marks_that_do_not_count(comm):
    one = receive(comm)
    other = replace(one, non_equality_tags=frozenset({"whatever"}))
    found = execute(comm, {"y": send(comm, X, one + other)}, x=np.full(3, float(comm.rank)))
    assert everywhere(comm, (found["y"] == 2.0 * ((comm.rank - 1) % comm.size)).all())


@pytest.mark.parametrize(
    "other", [{"shape": (2,)}, {"tags": frozenset({"mark"})}, {"axes": ("radius",)}], ids=list
)
def test_receives_that_differ_are_two(comm, other):
    node = send(comm, X, receive(comm).sum() + receive(comm, **other).sum())
    texts = "make one node for each, and use it everywhere", "'ring' from rank"
    all_raise(
        comm, graph.DuplicateRecvError, texts, graph.find_distributed_partition, comm, {"y": node}
    )


def test_equal_sends_stay_two(comm):
    node = send(comm, X, send(comm, X, receive(comm)))
    all_raise(
        comm, graph.DuplicateSendError, "", graph.find_distributed_partition, comm, {"y": node}
    )


def test_ranks_may_differ_in_how_often_they_make_a_node():
    sender = {"y": graph.staple_distributed_send(X, 1, "a", X)}
    made = [graph.make_distributed_recv(0, "a", (3,), float) for _ in range(3)]
    _, partition = partition_all(sender, {"y": made[0] + made[1] * made[2]})
    assert sum(len(part.name_to_recv_node) for part in partition.parts.values()) == 1
