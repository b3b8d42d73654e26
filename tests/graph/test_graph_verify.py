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
    part = replace(partition.parts[pid], **fields)
    return replace(partition, parts=partition.parts | {pid: part})


def sends(partition, pid, times=1, **fields):
    """Change the sends of a part."""
    named = partition.parts[pid].name_to_send_nodes.items()
    new = {name: [replace(send, **fields) for send in many] * times for name, many in named}
    return changed(partition, pid, name_to_send_nodes=new)


def recvs(partition, pid, **fields):
    """Change the receives of a part."""
    named = partition.parts[pid].name_to_recv_node.items()
    new = {name: replace(recv, **fields) for name, recv in named}
    return changed(partition, pid, name_to_recv_node=new)


def verify(partitions):
    check([describe(partition, rank) for rank, partition in enumerate(partitions)])


ONE, TWO = pair()
(NAME,) = ONE.parts[0].output_names
OWN = ONE.parts[1]
TAKEN = OWN.partition_input_names | OWN.output_names
GIVEN = OWN.output_names | {NAME}
IDLE = {"name_to_recv_node": {}, "partition_input_names": frozenset()}
FIRST = "'one' from rank 0 to rank 1"
CYCLE = graph.PartitionInducedCycleError
FAULTS = {
    "duplicate send": (graph.DuplicateSendError, FIRST, sends(ONE, 0, times=2), TWO),
    "duplicate recv": (graph.DuplicateRecvError, FIRST, ONE, recvs(TWO, 2, comm_tag="one")),
    "missing send": (graph.MissingSendError, FIRST, changed(ONE, 0, name_to_send_nodes={}), TWO),
    "missing recv": (graph.MissingRecvError, "'two' from rank 0", ONE, changed(TWO, 2, **IDLE)),
    "other_shape": (graph.MessageMismatchError, FIRST, ONE, recvs(TWO, 1, shape=(3,))),
    "other_type": (graph.MessageMismatchError, FIRST, ONE, recvs(TWO, 1, dtype="f4")),
    "cycle": (CYCLE, "part 0 of rank 0", changed(ONE, 0, needed_pids=frozenset({1})), TWO),
    "own cycle": (CYCLE, "part 1 of rank 0", changed(ONE, 1, partition_input_names=TAKEN), TWO),
    "part": (
        ArgumentError,
        "part 1 needs parts or values that do not exist: 7",
        changed(ONE, 1, needed_pids=frozenset({7})),
        TWO,
    ),
    "value": (
        ArgumentError,
        "do not exist: nothing",
        changed(ONE, 1, partition_input_names=frozenset({"nothing"})),
        TWO,
    ),
    "result": (ArgumentError, "the result: zzz", replace(ONE, overall_output_names=("zzz",)), TWO),
    "unsent": (
        ArgumentError,
        "none of its outputs",
        changed(ONE, 0, output_names=frozenset()),
        TWO,
    ),
    "twice": (ArgumentError, f"same name: {NAME}", changed(ONE, 1, output_names=GIVEN), TWO),
    "unknown": (ArgumentError, "without an expression", replace(ONE, name_to_output={}), TWO),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault):
    kind, text, *partitions = FAULTS[fault]
    verify([ONE, TWO])
    with pytest.raises(kind, match=text):
        verify(partitions)
    assert issubclass(kind, ValueError)
    own = issubclass(kind, graph.DistributedPartitionVerificationError)
    assert own == (kind is not ArgumentError)


def test_cycles_over_ranks():
    """Each rank sends only after it has received from the other."""
    partitions = [sends(sends(each, 1, comm_tag="one"), 0, comm_tag="two") for each in (ONE, TWO)]
    with pytest.raises(CYCLE) as caught:
        verify(partitions)
    named = [f"part {part} of rank {rank}" in str(caught.value) for part in "10" for rank in "01"]
    assert named == [True, True, False, False]
    assert isinstance(caught.value, AssertionError | ValueError)
    assert isinstance(caught.value, graph.CycleError)


def test_parts_need_those_that_give_their_inputs():
    twice = X * 2
    held = graph.staple_distributed_send(twice, 0, "t", twice)
    (one,) = partition_all({"y": held + graph.make_distributed_recv(0, "t", (2,), float)})
    parts = {pid: replace(part, needed_pids=frozenset()) for pid, part in one.parts.items()}
    backwards = replace(one, parts=dict(reversed(parts.items())))
    assert [part.pid for part in in_turn(backwards)] == [0, 1]


def test_checks_do_not_depend_on_assert():
    options = "-O -m pytest -q -p no:cacheprovider -W ignore::pytest.PytestConfigWarning -k"
    chosen = "duplicate or missing or cycle or other_"
    tests = [sys.executable, *options.split(), chosen, __file__]
    ran = subprocess.run(tests, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert "9 passed" in ran.stdout
