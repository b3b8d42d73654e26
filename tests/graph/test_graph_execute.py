"""Partitions are executed by all ranks: messages, overlap, programs and tags."""

import gc
import weakref
from dataclasses import replace
from functools import partial
from time import monotonic, perf_counter, sleep

import numpy as np
import pytest
from graphs import execute, expected, receive, ring, run, send
from mpi4py import MPI
from mpi_helpers import all_raise, everywhere, same

from pencils import graph
from pencils.comm import mailbox, progress
from pencils.comm.topology import topology_of
from pencils.errors import ArgumentError, RankDisagreementError
from pencils.graph import fuse
from pencils.graph.execute import generate_code_for_partition
from pencils.graph.program import programs as prepared_programs

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])
several = pytest.mark.parallel([2, 3, 4, 6])


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
    outputs = {"x": send(comm, x.T, x), "y": receive(comm, shape=(3, 2), dtype=dtype)}
    found = execute(comm, outputs, x=values)
    assert everywhere(comm, same(found["y"], values.T.copy()) and same(found["x"], values))


def test_messages_to_the_own_rank_may_have_tags_of_others(comm):
    """Rank 0 sends to itself what all others send to it, by the same tags in another order."""
    held = x = graph.make_placeholder("x", (2,))
    for n, tag in enumerate("abc" if comm.rank == 0 else "cba"):
        held = graph.staple_distributed_send(x + n, 0, tag, held)
    outputs = {"x": held}
    for peer in range(comm.size if comm.rank == 0 else 0):
        for tag in "abc":
            outputs[f"{peer}{tag}"] = graph.make_distributed_recv(peer, tag, (2,), float)
    found = execute(comm, outputs, x=np.full(2, 10.0 * comm.rank))
    del found["x"]
    right = [
        (
            values == 10 * int(name[:-1]) + ("abc" if name[:-1] == "0" else "cba").index(name[-1])
        ).all()
        for name, values in found.items()
    ]
    assert everywhere(comm, all(right))


def test_executed_again_and_again(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    program = None
    for n in range(50):
        found = run(comm, partition, x=np.full(3, comm.rank + float(n)))
        right = same(found["y"], expected(comm) + 3 * n)
        assert everywhere(comm, right) if n % 10 == 0 else right
        if comm.rank == n % comm.size:
            sleep(0.001)  # ranks may be far apart
        program = program or prepared_programs(topology_of(comm))[partition]
    assert prepared_programs(topology_of(comm))[partition] is program  # all is prepared once


def test_a_partition_that_was_executed_is_released(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    run(comm, partition, x=np.ones(3))
    alive = weakref.ref(partition)
    del partition
    gc.collect()
    assert everywhere(comm, alive() is None)


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


class Watched(np.ndarray):
    """An array with weak references."""


def test_values_are_dropped_after_their_last_use(comm):
    made, alive = [], []

    def step(values):
        new = values.view(Watched) + 1
        made.append(weakref.ref(new))
        alive.append(sum(each() is not None for each in made))
        return new

    node = graph.make_placeholder("x", (3,))
    for lap in range(20):
        node = graph.Call(step, (node,), {}, (3,), np.dtype(float))
        node = send(comm, node, node, lap) + receive(comm, lap)
    execute(comm, {"y": node}, x=np.zeros(3))
    assert everywhere(comm, max(alive) <= 6)


def test_receives_are_posted_shortly_before_they_are_due(comm, monkeypatch):
    posted = []

    class Spied(mailbox.Mailbox):
        def expect(self, receive):
            super().expect(receive)
            posted.append(self.expected)

    monkeypatch.setattr("pencils.graph.execute.Mailbox", Spied)
    node = graph.make_placeholder("x", (3,))
    for lap in range(40):
        node = send(comm, node, node, lap) + receive(comm, lap)
    execute(comm, {"y": node}, x=np.zeros(3))
    assert everywhere(comm, len(posted) == 40 and max(posted) <= 3)


# Overlap.


class Signal:
    """A message outside of the graph, from a step of one rank to a step of another."""

    def __init__(self, comm):
        self.comm = comm.Dup()
        self.received = []

    def wait(self, values, *, rank, source):
        """Wait on a rank for the signal of another one, for a minute at most."""
        if self.comm.rank == rank:
            end = monotonic() + 60
            while not self.comm.iprobe(source) and monotonic() < end:
                sleep(0.001)
            self.received.append(self.comm.iprobe(source))
        return values

    def send(self, values, *, rank, dest):
        """Send it."""
        if self.comm.rank == rank:
            self.comm.send(None, dest)
        return values

    def arrived(self, *, rank):
        """Whether it arrived in time."""
        received = self.comm.bcast(self.received, rank)
        while self.comm.iprobe():
            self.comm.recv()
        self.comm.Free()
        return received == [True]


@pytest.mark.parametrize("ufunc", [np.add, np.arctan2, np.less])
@pytest.mark.parametrize("order", ["C", "F"])
def test_large_nodes_are_computed_as_numpy_does(comm, ufunc, order):
    values = np.asarray(np.random.default_rng(comm.rank).random((300, 100)), order=order)
    x = graph.make_placeholder("x", (300, 100))
    outputs = {"a": ufunc(x, x * x), "b": ufunc(x, 0.5), "c": ufunc(x, x[:1]), "d": -x[::2]}
    found = execute(comm, outputs, x=values)
    right = {"a": (values, values * values), "b": (values, 0.5), "c": (values, values[:1])}
    assert everywhere(comm, all(same(found[name], ufunc(*args)) for name, args in right.items()))
    assert everywhere(comm, same(found["d"], -values[::2]))
    assert everywhere(comm, found["a"].flags.c_contiguous == (order == "C"))


def test_messages_move_within_a_large_node(comm, monkeypatch):
    polls = []
    monkeypatch.setattr(fuse, "_POINTS", 2**13)
    monkeypatch.setattr(fuse, "poll", lambda: polls.append(1))
    x = graph.make_placeholder("x", (2**12, 10))
    found = execute(comm, {"y": 2 * x}, x=np.ones((2**12, 10)))
    assert everywhere(comm, np.all(found["y"] == 2) and len(polls) >= 5)
    assert everywhere(comm, not progress.under_way.on)


@several
def test_independent_work_is_done_while_messages_are_under_way(comm):
    """Rank 0 sends when rank 1 has computed everything that does not need the message."""
    signal = Signal(comm)
    x = graph.make_placeholder("x", (3,))
    held = send(comm, graph.call(partial(signal.wait, rank=0, source=1), x), x)
    work = graph.call(partial(signal.send, rank=1, dest=0), 3 * x)
    execute(comm, {"y": receive(comm) + held + work}, x=np.ones(3))
    assert signal.arrived(rank=0)


@several
def test_values_that_other_ranks_wait_for_are_computed_first(comm):
    """Rank 0 begins its own work when its message has arrived at rank 1."""
    signal = Signal(comm)
    x = graph.make_placeholder("x", (3,))
    work = graph.call(partial(signal.wait, rank=0, source=1), x)  # comes first in the expression
    noted = graph.call(partial(signal.send, rank=1, dest=0), receive(comm))
    execute(comm, {"work": work, "y": noted + send(comm, 2 * x, x)}, x=np.ones(3))
    assert signal.arrived(rank=0)


# Programs.


def wrapped(partition, before, after=lambda results: results):
    """Make programs of which `before` sees the arguments, and `after` the results."""

    def wrap(pid, program):
        def run(queue, allocator=None, **inputs):
            before(pid, queue, allocator, sorted(inputs))
            _, results = program(queue, allocator=allocator, **inputs)
            return "event", after(results)

        return run

    made = generate_code_for_partition(partition).items()
    return {pid: wrap(pid, program) for pid, program in made}


def test_arguments_of_programs(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    seen = []
    programs = wrapped(partition, lambda *args: seen.append(args))
    inputs = {"x": np.full(3, float(comm.rank)), "unused": None}
    found = graph.execute_distributed_partition(
        partition, programs, "queue", comm, allocator="allocator", input_args=inputs
    )
    names = {pid: sorted(part.all_input_names()) for pid, part in partition.parts.items()}
    assert everywhere(comm, seen == [(pid, "queue", "allocator", names[pid]) for pid in (0, 1)])
    assert everywhere(comm, same(found["y"], expected(comm)))


def test_results_of_programs_are_dropped_when_nothing_needs_them(comm):
    refs, alive = [], []

    def watched(results):
        results = {name: np.array(value).view(Watched) for name, value in results.items()}
        refs.extend(map(weakref.ref, results.values()))
        return results

    partition = graph.find_distributed_partition(comm, ring(comm))
    count = lambda *_: alive.append(sum(ref() is not None for ref in refs))  # noqa: E731
    run(comm, partition, wrapped(partition, count, watched), x=np.ones(3))
    assert everywhere(comm, alive == [0, 0])


def test_programs_wait_for_all_that_their_part_receives(comm):
    """Also for what only later parts read: here, of another rank, which is late."""
    x = graph.make_placeholder("x", (3,))
    slow = graph.call(lambda values: sleep(0.1 if comm.rank == 0 else 0) or values, x)
    held = send(comm, slow, send(comm, x, x, "early"), "late", by=-1)
    held = send(comm, receive(comm, "early") * 2, held, "again")
    outputs = {"y": held + receive(comm, "late", by=-1) + receive(comm, "again")}
    partition = graph.find_distributed_partition(comm, outputs)
    times = {}
    programs = wrapped(partition, lambda pid, *_: times.update({pid: perf_counter()}))
    comm.Barrier()
    start = perf_counter()
    run(comm, partition, programs, x=np.ones(3))
    waits = comm.rank == comm.size - 1
    assert everywhere(comm, len(times) == 3 and (not waits or times[1] - start > 0.09))


def test_inputs_of_programs_are_checked(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    programs = generate_code_for_partition(partition)
    for value, text in ((np.ones(7), r"shape \(7,\)"), (np.ones(3, "f4"), "float32")):
        with pytest.raises(ArgumentError, match=text):
            run(comm, partition, programs, x=value)


@pytest.mark.parametrize("name", ["self", "_queue", "allocator"])
def test_names_of_inputs_of_programs(name):
    outputs = {"y": 2 * graph.make_placeholder(name, ())}
    if name == "allocator":
        with pytest.raises(ArgumentError, match="argument of all programs: rename it"):
            execute(MPI.COMM_SELF, outputs, "programs", **{name: 2.0})
        return
    assert execute(MPI.COMM_SELF, outputs, "programs", **{name: 2.0})["y"] == 4


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
    found = run(comm, numbered, x=np.full(3, float(comm.rank)))
    assert everywhere(comm, same(found["y"], expected(comm)))


def test_numbers_stay_below_what_mpi_permits(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    limit = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    number = partial(graph.number_distributed_tags, comm, partition)
    number(limit)
    for base in (limit + 1, -1):
        all_raise(comm, ArgumentError, "range that MPI permits", number, base)
    if comm.size > 1:
        all_raise(comm, RankDisagreementError, "base_tag", number, comm.rank)


def test_parts_may_be_made_by_hand_and_come_in_any_order(comm):
    """Parts that do not need each other may still depend on each other by messages."""
    x, r0, r1 = (graph.make_placeholder(name, (2,)) for name in ("x", "r0", "r1"))
    outputs = {"s0": x + 1, "s1": r0 * 2, "z": r1 + 3}

    def to_next(data, tag):
        return graph.make_distributed_send(data, (comm.rank + 1) % comm.size, tag)

    def part(pid, inputs, output, *, needs=(), recv=None, send=None):
        got = {} if recv is None else {f"r{recv}": receive(comm, recv, 2)}
        sends = {} if send is None else {output: [to_next(outputs[output], send)]}
        names = frozenset(inputs) - {"x"}
        return graph.DistributedGraphPart(
            pid, frozenset(needs), frozenset(inputs) - names, names, frozenset({output}), got, sends
        )

    parts = [
        part("end", ["r1"], "z", recv=1),
        part("middle", ["r0"], "s1", needs=["begin"], recv=0, send=1),
        part("begin", ["x"], "s0", send=0),
    ]
    partition = graph.DistributedGraphPartition({each.pid: each for each in parts}, outputs, ["z"])
    graph.verify_distributed_partition(comm, partition)
    for programs in (None, generate_code_for_partition(partition)):
        found = run(comm, partition, programs, x=np.full(2, float(comm.rank)))
        expected = 2 * ((comm.rank - 2) % comm.size + 1.0) + 3
        assert everywhere(comm, (found["z"] == expected).all())


def test_partitions_made_by_hand_need_numbers(comm):
    partition = graph.find_distributed_partition(comm, ring(comm))
    by_hand = replace(partition, numbers={})
    for use in (partial(graph.verify_distributed_partition, comm), partial(run, comm)):
        all_raise(comm, ArgumentError, "number_distributed_tags", use, by_hand)
