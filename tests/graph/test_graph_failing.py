"""Errors on one rank reach the ranks that wait for it, and leave no messages behind."""

from dataclasses import replace
from functools import partial
from time import sleep

import numpy as np
import pytest
from graphs import receive, ring, run, send
from mpi4py import MPI
from mpi_helpers import all_raise, named, one_is_wrong, ranks_at_fault

from pencils import graph
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError
from pencils.graph.execute import generate_code_for_partition
from pencils.graph.program import programs as prepared_programs

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("programs", [False, True], ids=["nodes", "programs"])
def test_ranks_that_wait_for_a_failed_rank_fail_too(comm, programs):
    def break_down(values):
        if broken:
            raise ZeroDivisionError
        return values

    node = graph.make_placeholder("x", (3,))
    for lap in range(4):
        if comm.rank == comm.size - 1 and lap == 1:
            node = graph.call(break_down, node)
        node = send(comm, node, node, lap) + receive(comm, lap)
    partition = graph.find_distributed_partition(comm, {"y": node})
    made = generate_code_for_partition(partition) if programs else None
    for broken in (True, False, True, False):  # and then it works again
        kind = None
        try:
            found = run(comm, partition, made, x=np.ones(3))
        except (ZeroDivisionError, graph.ExecutionError) as error:
            kind = type(error)
        kinds = comm.allgather(kind)
        if not broken:
            assert kinds == [None] * comm.size
            assert (found["y"] == 16).all()
        else:
            assert kinds[-1] is ZeroDivisionError
            assert kinds[:-1].count(graph.ExecutionError) >= min(3, comm.size - 1)


def test_one_rank_without_an_input(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    for culprit in ranks_at_fault(comm):
        inputs = {} if comm.rank == culprit else {"x": np.full(3, float(comm.rank))}
        try:
            run(comm, partition, **inputs)
            error = None
        except (ArgumentError, graph.ExecutionError) as raised:
            error = str(raised)
        errors = comm.allgather(error)
        assert "no 'x'" in errors[culprit]
        waiting = (culprit + 1) % comm.size
        assert waiting == culprit or f"rank {culprit} failed" in errors[waiting]
        assert sum(each is not None for each in errors) == len({culprit, waiting})


def test_a_program_that_is_missing_or_forgets_something(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    good = generate_code_for_partition(partition)
    forgets = lambda _queue, allocator=None, **_inputs: (allocator, {})  # noqa: E731
    cases = ({}, "no program for part 0"), (good | {1: forgets}, "does not return y")
    for programs, text in cases:
        with pytest.raises(ArgumentError, match=text):
            run(comm, partition, programs, x=np.ones(3))


def big(partition, rank):
    """Give messages from one rank numbers that are too large."""
    return {m: 2**40 if m.src_rank == rank else n for m, n in partition.numbers.items()}


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (lambda _partition, _rank: None, TypeError, "must be a DistributedGraphPartition"),
        (lambda p, _rank: replace(p, numbers={}), ArgumentError, "number_distributed_tags"),
        (lambda p, rank: replace(p, numbers=big(p, rank)), ArgumentError, "MPI permits no tag"),
        (lambda p, _rank: replace(p, overall_output_names=("z",)), ArgumentError, "the result: z"),
    ],
    ids=["no partition", "no numbers", "large numbers", "no such output"],
)
def test_a_partition_that_one_rank_cannot_execute(comm, change, kind, text):
    for culprit in ranks_at_fault(comm):
        partition = graph.find_distributed_partition(comm, ring(comm))
        if comm.rank == culprit:
            partition = change(partition, comm.rank)
        all_raise(comm, kind, (text, named(comm, culprit)), run, comm, partition, x=np.ones(3))


@pytest.mark.parametrize("wrong", ["programs", "inputs", "interrupted"])
def test_all_errors_reach_the_ranks_that_wait(comm, wrong):
    """No other rank fails: messages that do not depend on the failure are still sent."""

    def work(values):
        if wrong == "interrupted" and comm.rank == 0:
            raise KeyboardInterrupt
        sleep(0.05)  # so that the failure is known
        return values

    x = graph.make_placeholder("x", (3,))
    node = send(comm, graph.call(work, x), x) + receive(comm)
    partition = graph.find_distributed_partition(comm, {"y": node})
    bad = 5 if comm.rank == 0 else None
    programs = (bad or generate_code_for_partition(partition)) if wrong == "programs" else None
    inputs = (bad or {"x": np.ones(3)}) if wrong == "inputs" else {"x": np.ones(3)}
    kinds = {"interrupted": KeyboardInterrupt}.get(wrong, TypeError), graph.ExecutionError
    try:
        graph.execute_distributed_partition(partition, programs, None, comm, input_args=inputs)
        kind = None
    except kinds as error:
        kind = type(error)
    expected = [None] * comm.size
    expected[1 % comm.size], expected[0] = graph.ExecutionError, kinds[0]
    assert comm.allgather(kind) == expected


def test_no_progress_is_an_error(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    graph.verify_distributed_partition(comm, partition)
    program = prepared_programs(topology_of(comm))[partition]
    program.waiting[-1] += 1  # it waits for something that never comes
    with pytest.raises(graph.ExecutionError, match="1 steps"):
        run(comm, partition, x=np.ones(3))


# Mistakes of one rank when the graph is partitioned.


@pytest.mark.parametrize(
    ("outputs", "kind", "text"),
    [
        (lambda _x: None, TypeError, "arrays must be a Mapping"),
        (lambda _x: {"y": 3}, TypeError, "output 'y' must be a Array"),
        (lambda x: {"y": graph.staple_distributed_send(x, 99, 0, x)}, ArgumentError, "has ranks 0"),
        (
            lambda x: {"y": graph.staple_distributed_send(x, 0, lambda: 0, x)},
            TypeError,
            "cannot be pickled",
        ),
    ],
)
def test_a_bad_graph_on_one_rank(comm, outputs, kind, text):
    x = graph.make_placeholder("x", (3,))
    find = partial(graph.find_distributed_partition, comm)
    one_is_wrong(comm, kind, text, call=lambda f: find(f(x)), bad=outputs, good=lambda x: {"y": x})


@pytest.mark.parametrize(
    ("kind", "text", "wrong"),
    [
        (graph.MissingSendError, "not sent", "no send"),
        (graph.MissingRecvError, "not received", "no recv"),
        (graph.MessageMismatchError, "(4,)", "shape"),
        (graph.MessageMismatchError, "float32", "dtype"),
        (graph.CycleError, "wait for each other", "cycle"),
    ],
)
def test_messages_that_do_not_fit_raise_the_same_everywhere(comm, kind, text, wrong):
    for culprit in ranks_at_fault(comm):
        here = wrong if comm.rank == culprit or wrong == "cycle" else ""
        x = graph.make_placeholder("x", (3,))
        shape, dtype = (4 if here == "shape" else 3), ("f4" if here == "dtype" else "f8")
        got = receive(comm, "t", shape, dtype)
        node = x if here == "no recv" else got.sum()
        if here != "no send":
            node = send(comm, got[:3] * 1.0 if here == "cycle" else x, node, "t")
        all_raise(
            comm, kind, (text, "'t' from rank"), graph.find_distributed_partition, comm, {"y": node}
        )


class Alone:
    """Equal to itself only, and to no copy."""


class Local:
    """Equal on all ranks, and shown differently on each."""

    def __eq__(self, other):
        return isinstance(other, Local)

    def __hash__(self):
        return 1

    def __repr__(self):
        return f"<at rank {MPI.COMM_WORLD.rank}>"


def test_tags_must_be_equal_to_what_they_are_pickled_to(comm):
    x, tag = graph.make_placeholder("x", (3,)), Alone()
    for culprit in ranks_at_fault(comm):
        node = x
        if comm.rank == culprit:
            node = graph.staple_distributed_send(x, culprit, tag, x)
            node = node + graph.make_distributed_recv(culprit, tag, (3,), float)
        texts = "must be equal to what it is pickled to", named(comm, culprit)
        all_raise(comm, TypeError, texts, graph.find_distributed_partition, comm, {"y": node})


def test_errors_show_tags_alike_on_all_ranks(comm):
    x = graph.make_placeholder("x", (3,))
    node = graph.staple_distributed_send(x, 0, Local(), x) if comm.rank == 0 else x
    with pytest.raises(graph.MissingRecvError, match="<at rank 0> from rank 0") as caught:
        graph.find_distributed_partition(comm, {"y": node})
    assert len(set(comm.allgather(str(caught.value)))) == 1


def test_a_partition_that_was_broken_on_one_rank(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    silent = replace(partition.parts[0], name_to_send_nodes={})
    broken = replace(partition, parts=partition.parts | {0: silent})
    for culprit in ranks_at_fault(comm):
        mine = broken if comm.rank == culprit else partition
        text = f"'ring' from rank {culprit} to rank {(culprit + 1) % comm.size}"
        verify = partial(graph.verify_distributed_partition, comm)
        all_raise(comm, graph.MissingSendError, text, verify, mine)
        wrong = None if comm.rank == culprit else partition
        texts = "must be a DistributedGraphPartition", named(comm, culprit)
        all_raise(comm, TypeError, texts, verify, wrong)
