"""Graphs of several ranks are split into parts, all of them in one process."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graphs import partition_all

from pencils import graph
from pencils.errors import ArgumentError
from pencils.graph.array import in_order
from pencils.graph.find import RankGraph
from pencils.graph.partition import in_turn
from pencils.graph.verify import check, describe

staple = graph.staple_distributed_send


def placeholder():
    return graph.make_placeholder("x", (2,))


def recv(source, tag, shape=(2,), dtype=float):
    return graph.make_distributed_recv(source, tag, shape, dtype)


def check_invariants(partitions):
    """Check the properties of all partitions."""
    check([describe(partition, rank) for rank, partition in enumerate(partitions)])
    for partition in partitions:
        given, received = set(), set()
        assert len(in_turn(partition)) == len(partition.parts)
        for pid, part in partition.parts.items():
            assert part.pid == pid
            assert part.needed_pids == ({pid - 1} if pid else set())
            received |= part.name_to_recv_node.keys()
            assert part.partition_input_names <= given | received
            assert not part.partition_input_names & part.output_names
            assert set(part.name_to_send_nodes) <= part.output_names
            for name in part.output_names:
                for node in in_order([partition.name_to_output[name]]):
                    assert isinstance(node, graph.Call | graph.DataWrapper | graph.Placeholder)
                    assert getattr(node, "name", None) in {None, *part.all_input_names()}
            given |= part.output_names
        assert not given & received
        assert set(partition.overall_output_names) <= given
        assert given == partition.name_to_output.keys()


def test_names_of_the_text_can_be_imported():
    for name in ("CommTagType", "CommunicationDepGraph", "ShapeType", "AxesT", "ImplStored"):
        assert name in graph.__all__
    message = graph.CommunicationOpIdentifier(0, 0, "tag")
    needs: graph.CommunicationDepGraph = {message: {message}}
    assert isinstance(needs, graph.CommunicationDepGraph.__origin__)
    assert isinstance(message.comm_tag, graph.CommTagType)


def test_marks_of_stored_arrays_change_nothing():
    """All nodes are stored, in parts as late as those of others."""
    marked = frozenset({graph.ImplStored()})
    found = []
    for tags in (frozenset(), marked):
        x = graph.make_placeholder("x", (2,), float, tags=tags)
        y = staple(2 * x, 0, "t", x) + recv(0, "t")
        (partition,) = partition_all({"y": y})
        check_invariants([partition])
        found.append({pid: part.all_input_names() for pid, part in partition.parts.items()})
    assert found[0] == found[1]


def test_without_messages_there_is_one_part():
    x = placeholder()
    (partition,) = partition_all({"y": x + graph.ones(2)})
    check_invariants([partition])
    (part,) = partition.parts.values()
    assert (part.user_input_names, part.output_names) == ({"x"}, {"y"})
    assert part.partition_input_names == set()
    assert list(partition.overall_output_names) == ["y"]


def test_a_ring_has_a_part_before_and_one_after():
    size = 4
    partitions = partition_all(
        *(
            {"y": 2 * staple(x + 1, (rank + 1) % size, "ring", x) + recv((rank - 1) % size, "ring")}
            for rank, x in enumerate(placeholder() for _ in range(size))
        )
    )
    check_invariants(partitions)
    for rank, partition in enumerate(partitions):
        first, last = partition.parts.values()
        ((name, (send,)),) = first.name_to_send_nodes.items()
        assert first.output_names == {name}
        assert (send.dest_rank, send.comm_tag) == ((rank + 1) % size, "ring")
        ((got, node),) = last.name_to_recv_node.items()
        assert node.src_rank == (rank - 1) % size
        assert last.partition_input_names == {got}
        assert last.user_input_names == {"x"}
        assert set(partition.numbers.values()) == {0}


def test_a_part_may_receive_first_and_send_afterwards():
    x = placeholder()
    one = {"y": staple(x, 1, "there", x) + recv(1, "back")}
    got = recv(0, "there")
    other = {"z": staple(got * 2, 0, "back", got)}
    partitions = partition_all(one, other)
    check_invariants(partitions)
    assert [len(partition.parts) for partition in partitions] == [2, 1]
    (only,) = partitions[1].parts.values()
    assert (len(only.name_to_recv_node), len(only.name_to_send_nodes)) == (1, 1)


def test_what_a_later_part_needs_too_is_promoted_and_computed_once():
    x = placeholder()
    shared = np.sin(x)
    here = shared + recv(1, "b")
    partitions = partition_all(
        {"y": staple(shared + 1, 1, "a", here) * shared}, {"z": staple(x, 0, "b", recv(0, "a"))}
    )
    check_invariants(partitions)
    first, last = partitions[0].parts.values()
    (name,) = first.output_names & last.partition_input_names
    sines = [
        node
        for part in partitions[0].parts.values()
        for node in partitions[0].nodes_of(part)
        if isinstance(node, graph.Call) and node.func is np.sin
    ]
    assert len(sines) == 1
    assert partitions[0].name_to_output[name] is sines[0]


def test_what_no_message_needs_is_computed_last():
    x = placeholder()
    late = np.cos(x)
    (partition,) = partition_all({"y": staple(x * 2, 0, "t", late) + recv(0, "t")})
    check_invariants([partition])
    first, last = partition.parts.values()
    assert [node.func for node in partition.nodes_of(first) if node.inputs] == [np.multiply]
    assert {node.func for node in partition.nodes_of(last) if node.inputs} == {np.cos, np.add}


def test_sources_are_not_promoted():
    x, data = placeholder(), graph.make_data_wrapper(np.ones(2))
    (partition,) = partition_all({"y": staple(x * data, 0, "t", x) + recv(0, "t") * data})
    first, last = partition.parts.values()
    assert first.user_input_names == last.user_input_names == {"x"}
    assert last.partition_input_names == last.name_to_recv_node.keys()
    assert [n for p in (first, last) for n in partition.nodes_of(p) if n is data] == [data, data]


def test_inputs_outputs_and_receives_can_be_sent_as_they_are():
    x, data = placeholder(), graph.make_data_wrapper(np.ones(2))
    got = recv(0, 1)
    held = staple(x, 0, 1, staple(data, 0, 2, staple(got, 0, 3, x)))
    everything = held + got + recv(0, 2) + recv(0, 3)
    (partition,) = partition_all(
        {"x": x, "y": everything, "again": everything, "got": got, "data": data}
    )
    check_invariants([partition])
    assert len(partition.parts) == 3


def test_one_send_may_be_held_twice_and_one_receive_used_twice():
    x, got = placeholder(), recv(0, "t")
    send = graph.make_distributed_send(x, 0, "t")
    holders = [graph.make_distributed_send_ref_holder(send, node) for node in (got, x)]
    (partition,) = partition_all({"y": holders[0] * 2 + holders[1], "z": got + 1})
    check_invariants([partition])
    assert len(partition.numbers) == 1


def test_a_send_that_nothing_needs_does_not_exist():
    x = placeholder()
    staple(x, 0, "unused", x)
    recv(0, "unused")
    (partition,) = partition_all({"y": x + 0})
    assert partition.numbers == {}


def test_ranks_without_messages_have_one_part():
    x = placeholder()
    partitions = partition_all({"y": x + staple(x, 2, 0, x)}, {"y": x}, {"y": recv(0, 0)}, {})
    check_invariants(partitions)
    assert [len(partition.parts) for partition in partitions] == [1, 1, 1, 1]


def test_messages_between_two_ranks_are_numbered_from_zero():
    x = placeholder()
    held, got = x, x
    for tag in "cab":
        held = staple(x, 1, tag, held)
        got = got + recv(0, tag)
    partitions = partition_all({"y": held}, {"y": got})
    for partition in partitions:
        assert sorted(partition.numbers.values()) == [0, 1, 2]
    assert partitions[0].numbers == partitions[1].numbers


# Messages that do not match.

x2 = placeholder()


UNMATCHED = {
    "sends": (
        graph.DuplicateSendError,
        r"(?s)'b' from rank 0 to rank 1.*'a'",
        staple(x2, 1, "a", staple(x2, 1, "a", staple(x2, 1, "b", staple(x2, 1, "b", x2)))),
        recv(0, "a") + recv(0, "b"),
    ),
    "recvs": (
        graph.DuplicateRecvError,
        "'a' from rank 0 to rank 1",
        staple(x2, 1, "a", x2),
        recv(0, "a") + recv(0, "a", shape=(1,)),
    ),
    "no send": (
        graph.MissingSendError,
        r"(?s)'a' from rank 0 to rank 1.*'b'",
        x2,
        recv(0, "a") + recv(1, "b"),
    ),
    "no recv": (graph.MissingRecvError, "'a' from rank 0", staple(x2, 1, "a", x2), x2),
    "own": (
        graph.CycleError,
        "'t' from rank 0 to rank 0",
        staple(recv(0, "t") + 1, 0, "t", x2),
        x2,
    ),
}


@pytest.mark.parametrize("case", UNMATCHED)
def test_messages_without_a_counterpart_are_all_named(case):
    kind, text, one, two = UNMATCHED[case]
    with pytest.raises(kind, match=text):
        partition_all({"y": one}, {"y": two})


def test_other_shapes_and_types_are_all_named():
    sends = staple(x2, 1, "a", staple(x2, 1, "b", staple(x2, 1, "c", x2)))
    receives = {"a": recv(0, "a", (3,)), "b": recv(0, "b", dtype="f4"), "c": recv(0, "c")}
    with pytest.raises(graph.MessageMismatchError) as caught:
        partition_all({"y": sends}, receives)
    text = str(caught.value)
    assert "float64 of shape (2,), to be received: float64 of shape (3,)" in text
    assert "float64 of shape (2,), to be received: float32 of shape (2,)" in text
    assert "'c'" not in text


def test_messages_that_wait_for_each_other_are_all_named():
    other, to, fro = recv(0, "before"), recv(1, "to"), recv(0, "fro")
    one = {"y": staple(to * 2, 1, "fro", staple(x2, 1, "before", x2))}
    two = {
        "y": staple(fro + other, 0, "to", fro),
        "late": staple(fro, 1, "after", recv(1, "after")),
    }
    with pytest.raises(graph.CycleError) as caught:
        partition_all(one, two)
    lines = sorted(str(caught.value).splitlines()[1:])
    assert lines == ["  'fro' from rank 0 to rank 1", "  'to' from rank 1 to rank 0"]


def test_ranks_must_exist():
    for node in (recv(2, "t"), staple(x2, 2, "t", x2)):
        with pytest.raises(ArgumentError, match=r"ranks 0\.\.1"):
            RankGraph({"y": node}, 0, 2)


# Size and order.


def test_long_chains_of_messages_stay_linear():
    node = x2
    for n in range(2_000):  # sets of messages, copied from node to node, would be 2 million
        node = staple(node, 0, n, node) * recv(0, n)
    traced = RankGraph({"y": node}, 0, 1)
    assert sum(map(len, traced.report.needs.values())) < 10_000
    (partition,) = partition_all({"y": node})
    assert len(partition.parts) == 2_001


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from test_graph_find import *
from pencils.graph.program import program_of_nodes
x = placeholder()
shared, tag = np.sin(x), frozenset({{"p", "q"}})
both = [
    {{"y": staple(shared, 1, ("a", 1), shared * recv(1, tag)) + x, "x": shared}},
    {{"y": staple(x, 0, tag, recv(0, ("a", 1)))}},
]
for rank, partition in enumerate(partition_all(*both)):
    print(partition.numbers[[*partition.numbers][0]], list(partition.name_to_output))
    for part in partition.parts.values():
        print(sorted(part.output_names))
        print(list(part.name_to_recv_node), list(part.name_to_send_nodes))
        print(partition.nodes_of(part))
    program = program_of_nodes(partition, rank)
    print([step[1:] for step in program.steps], program.inputs, program.outputs)
"""


def test_the_same_in_every_run():
    def run(seed):
        script = SCRIPT.format(folder=str(Path(__file__).parent))
        env = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-O", "-c", script]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    assert run("1") == run("2") == run("77")
