"""Faults of partitions that were changed by hand are found, each raises its own error."""

import subprocess
import sys
from dataclasses import replace

import pytest
from graphs import partition_all

from pencils import graph
from pencils.errors import ArgumentError
from pencils.graph.partition import in_turn
from pencils.graph.verify import check, describe

X = graph.make_placeholder("x", (2,))


def pair():
    """Two ranks that exchange something, twice."""
    made = []
    for other in (1, 0):
        first = graph.staple_distributed_send(X, other, "one", X)
        got = graph.make_distributed_recv(other, "one", (2,), float)
        again = graph.staple_distributed_send(got * 2, other, "two", first)
        made.append({"y": again + graph.make_distributed_recv(other, "two", (2,), float)})
    return partition_all(*made)


def changed(partition, pid, **fields):
    return replace(
        partition, parts=partition.parts | {pid: replace(partition.parts[pid], **fields)}
    )


def verify(partitions):
    check([describe(partition, rank) for rank, partition in enumerate(partitions)])


def sends_of(part, **fields):
    return {
        name: [replace(send, **fields) for send in sends]
        for name, sends in part.name_to_send_nodes.items()
    }


def recvs_of(part, **fields):
    return {name: replace(recv, **fields) for name, recv in part.name_to_recv_node.items()}


def test_partitions_are_valid():
    verify(pair())


def test_duplicate_sends():
    one, two = pair()
    twice = {name: list(sends) * 2 for name, sends in one.parts[0].name_to_send_nodes.items()}
    with pytest.raises(graph.DuplicateSendError, match="'one' from rank 0 to rank 1"):
        verify([changed(one, 0, name_to_send_nodes=twice), two])


def test_duplicate_receives():
    one, two = pair()
    with pytest.raises(graph.DuplicateRecvError, match="'one' from rank 0 to rank 1"):
        verify([one, changed(two, 2, name_to_recv_node=recvs_of(two.parts[2], comm_tag="one"))])


def test_missing_ends():
    one, two = pair()
    with pytest.raises(graph.MissingSendError, match="'one' from rank 0 to rank 1"):
        verify([changed(one, 0, name_to_send_nodes={}), two])
    idle = changed(two, 2, name_to_recv_node={}, partition_input_names=frozenset())
    with pytest.raises(graph.MissingRecvError, match="'two' from rank 0 to rank 1"):
        verify([one, idle])


def test_other_shapes_and_types():
    one, two = pair()
    for fields in ({"shape": (3,)}, {"dtype": "f4"}):
        bad = changed(two, 1, name_to_recv_node=recvs_of(two.parts[1], **fields))
        with pytest.raises(graph.MessageMismatchError, match="'one' from rank 0 to rank 1"):
            verify([one, bad])


def test_cycles_over_ranks():
    """Each rank sends only after it has received from the other."""
    partitions = []
    for partition in pair():
        _, middle, _ = partition.parts.values()
        late = changed(partition, 1, name_to_send_nodes=sends_of(middle, comm_tag="one"))
        partitions.append(
            changed(late, 0, name_to_send_nodes=sends_of(partition.parts[0], comm_tag="two"))
        )
    with pytest.raises(graph.PartitionInducedCycleError) as caught:
        verify(partitions)
    assert "part 1 of rank 0" in str(caught.value)
    assert "part 1 of rank 1" in str(caught.value)
    assert "part 0" not in str(caught.value)
    assert isinstance(caught.value, AssertionError | ValueError)


def test_cycles_on_one_rank():
    one, two = pair()
    with pytest.raises(graph.PartitionInducedCycleError, match="part 0 of rank 0"):
        verify([changed(one, 0, needed_pids=frozenset({1})), two])
    own = one.parts[1]
    inputs = own.partition_input_names | own.output_names
    with pytest.raises(graph.PartitionInducedCycleError, match="part 1 of rank 0"):
        verify([changed(one, 1, partition_input_names=inputs), two])


def test_what_does_not_exist():
    one, two = pair()
    with pytest.raises(ArgumentError, match=r"part 1 needs parts or values that do not exist: 7"):
        verify([changed(one, 1, needed_pids=frozenset({7})), two])
    with pytest.raises(ArgumentError, match="do not exist: nothing"):
        verify([changed(one, 1, partition_input_names=frozenset({"nothing"})), two])


def test_names_that_do_not_fit():
    one, two = pair()
    (name,) = one.parts[0].output_names
    again = one.parts[1].output_names | {name}
    for bad, text in (
        (replace(one, overall_output_names=("zzz",)), "computes the result: zzz"),
        (changed(one, 0, output_names=frozenset()), "sends values that are none of its outputs"),
        (changed(one, 1, output_names=again), f"several outputs.*same name: {name}"),
        (replace(one, name_to_output={}), "outputs without an expression"),
    ):
        with pytest.raises(ArgumentError, match=text):
            verify([bad, two])


def test_parts_need_those_that_give_their_inputs():
    twice = X * 2
    held = graph.staple_distributed_send(twice, 0, "t", twice)
    (one,) = partition_all({"y": held + graph.make_distributed_recv(0, "t", (2,), float)})
    parts = {pid: replace(part, needed_pids=frozenset()) for pid, part in one.parts.items()}
    backwards = replace(one, parts=dict(reversed(parts.items())))
    assert [part.pid for part in in_turn(backwards)] == [0, 1]


def test_all_errors_are_of_one_family():
    family = graph.DistributedPartitionVerificationError
    for kind in (
        graph.DuplicateSendError,
        graph.DuplicateRecvError,
        graph.MissingSendError,
        graph.MissingRecvError,
        graph.MessageMismatchError,
        graph.CycleError,
        graph.PartitionInducedCycleError,
    ):
        assert issubclass(kind, family)
        assert issubclass(kind, ValueError)


def test_checks_do_not_depend_on_assert():
    tests = [
        sys.executable,
        "-O",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestConfigWarning",
        __file__,
        "-k",
        "duplicate or missing or cycles or other_shapes",
    ]
    ran = subprocess.run(tests, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert "6 passed" in ran.stdout
