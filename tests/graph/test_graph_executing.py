"""Partitions are executed by all ranks, with everything that MPI has to do with it."""

import weakref
from dataclasses import replace
from time import perf_counter, sleep

import numpy as np
import pytest
from mpi4py import MPI
from together import everywhere, named, raise_together, ranks_at_fault, same

from pencils import graph
from pencils.comm import mailbox
from pencils.errors import ArgumentError, RankDisagreementError
from pencils.graph.executing import generate_code_for_partition

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def execute(comm, outputs, programs=None, **inputs):
    partition = graph.find_distributed_partition(comm, outputs)
    graph.verify_distributed_partition(comm, partition)
    made = generate_code_for_partition(partition) if programs else None
    return graph.execute_distributed_partition(partition, made, None, comm, input_args=inputs)


def ring(comm, shape=(3,), dtype=float, tag="ring"):
    """Graph in which every rank adds what it has to twice what the rank before has."""
    x = graph.make_placeholder("x", shape, dtype)
    held = graph.staple_distributed_send(2 * x, (comm.rank + 1) % comm.size, tag, x)
    return {"y": held + graph.make_distributed_recv((comm.rank - 1) % comm.size, tag, shape, dtype)}


def expected(comm, shape=(3,)):
    return np.full(shape, comm.rank + 2.0 * ((comm.rank - 1) % comm.size))


@pytest.mark.parametrize("programs", [False, True], ids=["nodes", "programs"])
@pytest.mark.parametrize("shape", [(3,), (), (0, 2), (300, 200)])
def test_a_ring(comm, shape, programs):
    found = execute(comm, ring(comm, shape), programs, x=np.full(shape, float(comm.rank)))
    assert everywhere(comm, same(found["y"], expected(comm, shape)))


@pytest.mark.parametrize("dtype", ["f4", ">f8", "c16", "?", "u2", "M8[s]", "S5", "i4,f8"])
def test_any_type_can_be_sent(comm, dtype):
    values = np.zeros((2, 3), dtype)
    values[0] = np.ones(3, "u1").astype(dtype) if dtype != "i4,f8" else (3, 0.5)
    x = graph.make_placeholder("x", (2, 3), dtype)
    held = graph.staple_distributed_send(x.T, (comm.rank + 1) % comm.size, 0, x)
    got = graph.make_distributed_recv((comm.rank - 1) % comm.size, 0, (3, 2), dtype)
    found = execute(comm, {"x": held, "y": got}, x=values)
    assert everywhere(comm, same(found["y"], values.T.copy()) and same(found["x"], values))


@pytest.mark.parametrize("programs", [False, True], ids=["nodes", "programs"])
def test_everybody_to_everybody_and_back(comm, programs):
    x = graph.make_placeholder("x", (2,))
    total, held = x, x
    for peer in range(comm.size):
        held = graph.staple_distributed_send(x * (peer + 1), peer, "there", held)
        got = graph.make_distributed_recv(peer, "there", (2,), float)
        held = graph.staple_distributed_send(got * 10, peer, "back", held)
        total = total + graph.make_distributed_recv(peer, "back", (2,), float)
    found = execute(comm, {"y": total + 0 * held}, programs, x=np.full(2, comm.rank + 1.0))
    factor = 1 + 10 * sum(range(1, comm.size + 1))
    assert everywhere(comm, same(found["y"], np.full(2, factor * (comm.rank + 1.0))))


def test_a_relay_around_all_ranks(comm):
    x = graph.make_placeholder("x", ())
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    node = x
    for lap in range(5):
        if comm.rank == 0:
            held = graph.staple_distributed_send(node, after, lap, node)
            node = graph.make_distributed_recv(before, lap, (), float) + 0 * held
        else:
            new = graph.make_distributed_recv(before, lap, (), float) + 1
            node = graph.staple_distributed_send(new, after, lap, new + 0 * node)
    found = execute(comm, {"y": node}, x=0.0)
    laps = 5 if comm.rank == 0 else 4
    assert everywhere(comm, found["y"] == laps * (comm.size - 1) + comm.rank)


def test_executed_again_and_again(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    program = partition.program
    for n in range(50):
        found = graph.execute_distributed_partition(
            partition, None, None, comm, input_args={"x": np.full(3, comm.rank + float(n))}
        )
        right = same(found["y"], expected(comm) + 3 * n)
        assert everywhere(comm, right) if n % 10 == 0 else right
        if comm.rank == n % comm.size:
            sleep(0.001)  # ranks may be far apart
    assert partition.program is program


def test_communicators_are_not_used_up(comm):
    private = comm.Dup()
    for n in range(30):
        found = execute(private, ring(private, tag=n), x=np.full(3, float(comm.rank)))
        assert everywhere(comm, same(found["y"], expected(comm)))
    private.Free()


def test_messages_of_the_user_do_not_interfere(comm):
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    inbox = np.zeros(3)
    request = comm.Irecv(inbox, source=before, tag=MPI.ANY_TAG)
    found = execute(comm, ring(comm), x=np.full(3, float(comm.rank)))
    comm.Send(np.full(3, 7.0), after, 0)
    request.Wait()
    assert everywhere(comm, same(found["y"], expected(comm)) and (inbox == 7).all())


def test_outputs_may_have_the_names_of_inputs(comm):
    (y,) = ring(comm).values()
    found = execute(comm, {"x": y, "_0": y + 1}, x=np.full(3, float(comm.rank)))
    assert everywhere(comm, same(found["x"], expected(comm)))
    assert everywhere(comm, same(found["_0"], expected(comm) + 1))


def test_values_are_dropped_after_their_last_use(comm):
    made = []
    most = 0

    class Watched(np.ndarray):
        pass

    def step(values):
        nonlocal most
        new = values.view(Watched) + 1
        made.append(weakref.ref(new))
        most = max(most, sum(each() is not None for each in made))
        return new

    x = node = graph.make_placeholder("x", (3,))
    for lap in range(20):
        node = graph.Call(step, (node,), {}, (3,), np.dtype(float))
        held = graph.staple_distributed_send(node, (comm.rank + 1) % comm.size, lap, node)
        node = held + graph.make_distributed_recv((comm.rank - 1) % comm.size, lap, (3,), float)
    execute(comm, {"y": node}, x=np.zeros(3))
    assert everywhere(comm, most <= 6)
    assert x.name == "x"


def test_receives_are_asked_for_shortly_before_they_are_due(comm, monkeypatch):
    posted = []

    class Spied(mailbox.Mailbox):
        def expect(self, letter):
            super().expect(letter)
            posted.append(self.expected)

    monkeypatch.setattr("pencils.graph.executing.Mailbox", Spied)
    node = graph.make_placeholder("x", (3,))
    for lap in range(40):
        held = graph.staple_distributed_send(node, (comm.rank + 1) % comm.size, lap, node)
        node = held + graph.make_distributed_recv((comm.rank - 1) % comm.size, lap, (3,), float)
    execute(comm, {"y": node}, x=np.zeros(3))
    assert everywhere(comm, len(posted) == 40 and max(posted) <= 3)


# Overlap.


def late(seconds):
    def wait(values):
        sleep(seconds)
        return values

    return wait


def test_independent_work_is_done_while_messages_are_under_way(comm):
    x = graph.make_placeholder("x", (3,))
    slow = graph.call(late(0.4 if comm.rank == 0 else 0), x)
    held = graph.staple_distributed_send(slow, (comm.rank + 1) % comm.size, "late", x)
    got = graph.make_distributed_recv((comm.rank - 1) % comm.size, "late", (3,), float)
    work = x
    for _ in range(6):
        work = graph.call(late(0.05 if comm.rank == 1 else 0), work)
    partition = graph.find_distributed_partition(comm, {"y": got + held + work})
    comm.Barrier()
    start = perf_counter()
    graph.execute_distributed_partition(partition, None, None, comm, input_args={"x": np.ones(3)})
    took = perf_counter() - start
    assert everywhere(comm, took < 0.6)  # one after the other: 0.7


def test_what_others_wait_for_is_computed_first(comm):
    x = graph.make_placeholder("x", (3,))
    work = graph.call(late(0.3 if comm.rank == 0 else 0), x)  # comes first in the expression
    held = graph.staple_distributed_send(2 * x, (comm.rank + 1) % comm.size, 0, x)
    got = graph.make_distributed_recv((comm.rank - 1) % comm.size, 0, (3,), float)
    arrived = []

    def note(values):
        arrived.append(perf_counter())
        return values

    outputs = {"work": work, "y": graph.call(note, got) + held}
    partition = graph.find_distributed_partition(comm, outputs)
    comm.Barrier()
    start = perf_counter()
    graph.execute_distributed_partition(partition, None, None, comm, input_args={"x": np.ones(3)})
    assert everywhere(comm, comm.rank != 1 or arrived[0] - start < 0.2)


# Programs.


def test_programs_get_what_is_documented(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    seen = []

    def recorded(pid, program):
        def run(queue, allocator=None, **inputs):
            seen.append((pid, queue, allocator, sorted(inputs)))
            _, results = program(queue, allocator=allocator, **inputs)
            return "event", results

        return run

    programs = {
        pid: recorded(pid, program)
        for pid, program in generate_code_for_partition(partition).items()
    }
    found = graph.execute_distributed_partition(
        partition,
        programs,
        "queue",
        comm,
        allocator="allocator",
        input_args={"x": np.full(3, float(comm.rank)), "unused": None},
    )
    names = {pid: sorted(part.all_input_names()) for pid, part in partition.parts.items()}
    assert everywhere(comm, seen == [(pid, "queue", "allocator", names[pid]) for pid in (0, 1)])
    assert everywhere(comm, same(found["y"], expected(comm)))


# Numbers for tags.


def test_tags_can_be_numbered(comm):
    partition = graph.find_distributed_partition(comm, ring(comm, tag=("my", "tag")))
    numbered, following = graph.number_distributed_tags(comm, partition, 12)
    tags = [
        send.comm_tag
        for part in numbered.parts.values()
        for many in part.name_to_send_nodes.values()
        for send in many
    ]
    assert everywhere(comm, tags == [12] and following == 13)
    graph.verify_distributed_partition(comm, numbered)
    inputs = {"x": np.full(3, float(comm.rank))}
    found = graph.execute_distributed_partition(numbered, None, None, comm, input_args=inputs)
    assert everywhere(comm, same(found["y"], expected(comm)))


def test_numbers_stay_below_what_mpi_permits(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    limit = comm.Get_attr(MPI.TAG_UB)
    graph.number_distributed_tags(comm, partition, limit)
    for base in (limit + 1, -1):
        raise_together(
            comm,
            ArgumentError,
            "what MPI permits",
            call=lambda base=base: graph.number_distributed_tags(comm, partition, base),
        )
    if comm.size > 1:
        raise_together(
            comm,
            RankDisagreementError,
            "base_tag",
            call=lambda: graph.number_distributed_tags(comm, partition, comm.rank),
        )


def test_partitions_made_by_hand_need_numbers(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    by_hand = graph.DistributedGraphPartition(
        partition.parts, partition.name_to_output, partition.overall_output_names
    )
    graph.verify_distributed_partition(comm, by_hand)
    with pytest.raises(ArgumentError, match="number_distributed_tags"):
        graph.execute_distributed_partition(by_hand, None, None, comm)


def test_a_partition_that_was_broken_on_one_rank(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    mute = replace(partition.parts[0], name_to_send_nodes={})
    broken = replace(partition, parts=partition.parts | {0: mute})
    for culprit in ranks_at_fault(comm):
        mine = broken if comm.rank == culprit else partition
        text = f"'ring' from rank {culprit} to rank {(culprit + 1) % comm.size}"
        raise_together(
            comm,
            graph.MissingSendError,
            text,
            call=lambda mine=mine: graph.verify_distributed_partition(comm, mine),
        )
        wrong = None if comm.rank == culprit else partition
        raise_together(
            comm,
            TypeError,
            "must be a DistributedGraphPartition",
            named(comm, culprit),
            call=lambda wrong=wrong: graph.verify_distributed_partition(comm, wrong),
        )


# One rank fails.


@pytest.mark.parametrize("programs", [False, True], ids=["nodes", "programs"])
def test_who_waits_for_a_rank_that_failed_fails_too(comm, programs):
    def break_down(values):
        if broken:
            msg = "out of order"
            raise ZeroDivisionError(msg)
        return values

    x = graph.make_placeholder("x", (3,))
    node = x
    for lap in range(4):
        if comm.rank == comm.size - 1 and lap == 1:
            node = graph.call(break_down, node)
        held = graph.staple_distributed_send(node, (comm.rank + 1) % comm.size, lap, node)
        node = held + graph.make_distributed_recv((comm.rank - 1) % comm.size, lap, (3,), float)
    partition = graph.find_distributed_partition(comm, {"y": node})
    made = generate_code_for_partition(partition) if programs else None

    def run():
        inputs = {"x": np.ones(3)}
        return graph.execute_distributed_partition(partition, made, None, comm, input_args=inputs)

    for broken in (True, False, True, False):  # and then it works again
        kind = None
        try:
            found = run()
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
            graph.execute_distributed_partition(partition, None, None, comm, input_args=inputs)
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
    inputs = {"x": np.ones(3)}
    good = generate_code_for_partition(partition)
    for programs, text in (
        ({}, "no program for part 0"),
        (
            good | {1: lambda _queue, allocator=None, **_inputs: (allocator, {})},
            "does not return y",
        ),
    ):
        with pytest.raises(ArgumentError, match=text):
            graph.execute_distributed_partition(partition, programs, None, comm, input_args=inputs)


def test_no_progress_is_an_error(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    program = partition.program
    program.waiting[-1] += 1  # it waits for something that never comes
    with pytest.raises(graph.ExecutionError, match="1 steps"):
        graph.execute_distributed_partition(
            partition, None, None, comm, input_args={"x": np.ones(3)}
        )


# What one rank gets wrong when the graph is cut.


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
    for culprit in ranks_at_fault(comm):
        mine = outputs(x) if comm.rank == culprit else {"y": x}
        raise_together(
            comm,
            kind,
            text,
            named(comm, culprit),
            call=lambda mine=mine: graph.find_distributed_partition(comm, mine),
        )


@pytest.mark.parametrize(
    ("kind", "text", "wrong"),
    [
        (graph.DuplicateSendError, "more than once", "send"),
        (graph.DuplicateRecvError, "more than once", "recv"),
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
        after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        shape, dtype = (4 if here == "shape" else 3), ("f4" if here == "dtype" else "f8")
        got = graph.make_distributed_recv(before, "t", shape, dtype)
        node = got.sum()
        if here == "recv":
            node = node + graph.make_distributed_recv(before, "t", shape, dtype)
        if here == "no recv":
            node = x
        data = got[:3] * 1.0 if here == "cycle" else x
        for _ in range({"send": 2, "no send": 0}.get(here, 1)):
            node = graph.staple_distributed_send(data, after, "t", node)
        raise_together(
            comm,
            kind,
            text,
            "'t' from rank",
            call=lambda node=node: graph.find_distributed_partition(comm, {"y": node}),
        )
