"""Typical mistakes in MPI programs: each error names the ranks, the calls and what to do."""

import re
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import pencils
from simmpi import DeadlockError, MismatchError, SimulationError, StepLimitError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def text_of(error):
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def error_of(nranks, program, kind, **options):
    """Return the text of the error that a program raises on simulated ranks, with its notes."""
    with pytest.raises(kind) as caught:
        pencils.simulate(nranks, program, **options)
    if isinstance(caught.value, SimulationError):
        assert caught.value.seed == options.get("seed")
    return text_of(caught.value)


def line_of(program, code):
    """Return file and line of some code of a function."""
    first = program.__code__.co_firstlineno - 1
    lines = Path(__file__).read_text().splitlines()[first:]
    started = next(i for i, line in enumerate(lines) if line.lstrip().startswith("def "))
    number = next(i for i, line in enumerate(lines) if i > started and code in line)
    return f"{__file__}:{first + number + 1}"


MISTAKES = {}


def mistake(nranks, kind, *texts, absent="no such text", **options):
    """Add a program, and what its error says: ``<code>`` stands for file and line of the code."""

    def add(program):
        MISTAKES[program.__name__] = program, nranks, kind, texts, absent, options
        return program

    return add


def run(name):
    MISTAKES[name][0](MPI.COMM_WORLD)


@mistake(
    4,
    DeadlockError,
    "no rank can continue\n",
    "rank 0 waits in Allgather (collective 4 on communicator 1 of ranks 0-3)",
    "for ranks 1-3, which returned",
    "<u.sum()> in a_sum_on_one_rank_only: u.sum()",
    "call it on all ranks, and print on one",
)
def a_sum_on_one_rank_only(comm):
    u = pencils.ones(pencils.Pencil((8, 8)))
    if comm.rank == 0:
        u.sum()


@mistake(
    4,
    DeadlockError,
    "no rank can continue (seed=7)\n",
    "rank 1 waits in allreduce (collective 3 on COMM_WORLD) for ranks 0, 2-3",
    "the same collective calls in the same order",
    seed=7,
)
def a_loop_that_is_longer_on_one_rank(comm):
    for _ in range(3 + (comm.rank == 1)):
        comm.allreduce(1)


@mistake(
    2,
    MismatchError,
    "rank 0 calls bcast(root=0) at <comm.bcast>",
    "rank 1 calls Barrier() at <comm.Barrier>",
    "all ranks must make the same call",
    "(seed=3)",
    seed=3,
)
def different_collectives(comm):
    if comm.rank == 0:
        comm.bcast(1)
    else:
        comm.Barrier()


DIFFERENT = {
    "root": lambda comm: comm.bcast(1, root=comm.rank),
    "counts": lambda comm: comm.Bcast(np.ones(4 + comm.rank)),
    "counts of a reduction": lambda comm: comm.Allreduce(MPI.IN_PLACE, np.ones(4 + comm.rank)),
    "types": lambda comm: comm.Allreduce(MPI.IN_PLACE, np.ones(4, "di"[comm.rank])),
    "operations": lambda comm: comm.Allreduce(
        MPI.IN_PLACE, np.ones(4), [MPI.SUM, MPI.MAX][comm.rank]
    ),
}


@pytest.mark.parametrize("call", DIFFERENT.values(), ids=DIFFERENT)
def test_different_arguments(call):
    text = error_of(2, lambda: call(MPI.COMM_WORLD), MismatchError)
    for part in ("rank 0 calls", "rank 1 calls", "with the same root, counts and types"):
        assert part in text


def test_two_ranks_that_both_send_first():
    """Large messages wait for their receive; small ones do with some seeds."""

    def program(count):
        comm = MPI.COMM_WORLD
        mine, theirs = np.ones(count), np.empty(count)
        comm.Send(mine, 1 - comm.rank)
        comm.Recv(theirs, 1 - comm.rank)

    pencils.simulate(2, program, 8192)
    found = [(None, error_of(2, lambda: program(8193), DeadlockError))]
    for seed in range(20):
        try:
            pencils.simulate(2, program, 1, seed=seed)
        except DeadlockError as error:
            found.append((seed, text_of(error)))
    assert 1 < len(found) < 20
    for seed, text in found:
        assert text.startswith(f"no rank can continue{'' if seed is None else f' (seed={seed})'}\n")
        assert "rank 0 waits in Send (to rank 1 with tag 0 on COMM_WORLD)" in text
        assert "for rank 1, which waits in Send" in text
        assert "call Sendrecv" in text


@mistake(
    2,
    DeadlockError,
    "rank 1 waits in recv (from rank 0 with any tag on COMM_WORLD)",
    "Look for the send",
)
def two_ranks_that_both_receive_first(comm):
    comm.recv(source=1 - comm.rank)
    comm.send(1, dest=1 - comm.rank)


@mistake(
    2,
    DeadlockError,
    "rank 1 waits in recv (from rank 0 with tag 12 on COMM_WORLD)",
    "rank 1 has not received a message from rank 0 with tag 11",
)
def another_tag(comm):
    if comm.rank == 0:
        comm.send("hello", dest=1, tag=11)
    else:
        comm.recv(source=0, tag=12)


@mistake(2, DeadlockError, "for rank 0, which returned", absent="has not received")
def a_message_that_is_never_sent(comm):
    if comm.rank == 1:
        comm.recv(source=0)


@mistake(
    2,
    UsageError,
    "rank 1 has not received a message from rank 0 with tag 11 on COMM_WORLD",
    "receive every message",
)
def a_message_that_is_never_received(comm):
    if comm.rank == 0:
        comm.send("hello", dest=1, tag=11)


@mistake(
    2,
    RuntimeError,
    "has 80 bytes, the buffer 40; pass a buffer that is as long",
    "rank 1 of 2 raised this",
)
def a_buffer_that_is_too_short(comm):
    if comm.rank == 0:
        comm.Send(np.ones(10), dest=1)
    else:
        comm.Recv(np.empty(5), source=0)


@mistake(2, MismatchError, "rank 0 sends MPI_DOUBLE by Send, rank 1 receives MPI_FLOAT by Recv")
def another_type(comm):
    if comm.rank == 0:
        comm.Send(np.ones(10), dest=1)
    else:
        comm.Recv(np.empty(10, np.float32), source=0)


@mistake(2, MismatchError, "uppercase methods transfer memory, lowercase ones objects")
def memory_that_is_received_as_an_object(comm):
    if comm.rank == 0:
        comm.Send(np.ones(3), dest=1)
    else:
        comm.recv(source=0)


@mistake(2, MismatchError, "uppercase methods transfer memory, lowercase ones objects")
def an_object_that_is_received_as_memory(comm):
    if comm.rank == 0:
        comm.send(np.ones(3), dest=1)
    else:
        comm.Recv(np.empty(100), source=0)


def test_pickled_bytes_are_memory_and_objects():
    def program():
        comm = MPI.COMM_WORLD
        if comm.rank == 0:
            comm.Send(MPI.pickle.dumps("hello"), dest=1)
            return None
        return comm.recv(source=0)

    assert pencils.simulate(2, program) == [None, "hello"]


@pytest.mark.parametrize("dest", [-5, 2])
def test_a_rank_that_does_not_exist(dest):
    text = error_of(2, lambda: MPI.COMM_WORLD.send(1, dest=dest), RuntimeError)
    assert f"dest={dest}; COMM_WORLD has ranks 0 to 1" in text


@mistake(
    2,
    UsageError,
    "rank 0 has not completed Isend (to rank 1 with tag 0 on COMM_WORLD)",
    "Complete every request with wait or test",
    "(seed=1)",
    seed=1,
)
def a_send_that_is_not_completed(comm):
    if comm.rank == 0:
        comm.Isend(np.ones(3), dest=1)
    else:
        comm.Recv(np.empty(3))


def test_a_buffer_that_is_read_before_it_is_received():
    seen = []

    def program():
        comm = MPI.COMM_WORLD
        if comm.rank == 0:
            comm.Send(np.ones(3), dest=1)
        else:
            buffer = np.zeros(3)
            request = comm.Irecv(buffer, source=0)
            seen.append(buffer.copy())
            request.Wait()
            assert buffer.tolist() == [1, 1, 1]

    pencils.simulate(2, program)
    assert np.isnan(seen[0]).all()


@pytest.mark.parametrize("count", [3, 30_000])
def test_a_buffer_that_changes_while_it_is_sent(count):
    def program():
        comm, values = MPI.COMM_WORLD, np.ones(count)
        if comm.rank == 1:
            comm.Recv(values)
            return
        request = comm.Isend(values, dest=1)
        values[:] = 2
        request.Wait()

    text = error_of(2, program, UsageError)
    assert "Isend (to rank 1 with tag 0 on COMM_WORLD): the program changed the buffer" in text
    assert "wait for it first, or send a copy" in text


def test_without_strict_less_is_reported(recwarn):
    def program():
        comm, values = MPI.COMM_WORLD, np.zeros(2)
        comm.isend(1, 0)  # neither received nor completed
        comm.Dup()
        request = comm.Isend(values, comm.rank)
        values[:] = 1
        comm.Recv(np.empty(2), comm.rank)
        request.Wait()

    pencils.simulate(2, program, strict=False)
    assert not recwarn
    assert "the program changed the buffer" in error_of(2, program, UsageError)


@mistake(
    3,
    DeadlockError,
    "no rank makes progress",
    "Iprobe",
    "is running",
    "are ready",
    absent="ranks 0-2 is",
)
def a_program_that_tests_for_ever(comm):
    while not comm.iprobe():
        pass


@mistake(
    2, StepLimitError, "more calls of MPI than max_steps=50; allow", "<allreduce>", max_steps=50
)
def a_loop_that_never_ends(comm):
    while True:
        comm.allreduce(1)


@mistake(2, ValueError, "3 objects were given; pass 2, one for each rank")
def three_objects_for_two_ranks(comm):
    comm.scatter([1, 2, 3])


@mistake(2, TypeError, "None was given; pass a sequence of 2 objects, one for each rank")
def no_objects_for_two_ranks(comm):
    comm.scatter(None)


@pytest.mark.parametrize("given", [None, [1, 2, 3], 5, "hello", {}])
def test_what_a_buffer_is_not(given):
    text = error_of(1, lambda: MPI.COMM_WORLD.Send(given, 0), TypeError)
    assert "pass a NumPy array" in text
    assert "lowercase names take any object" in text


@mistake(1, BufferError, "MPI needs contiguous memory; pass a copy")
def memory_with_gaps(comm):
    comm.Send(np.ones((4, 4))[:, 1], 0)


@mistake(2, RuntimeError, "this rank has freed it")
def a_communicator_that_is_freed(comm):
    copy = comm.Dup()
    copy.Free()
    copy.Barrier()


@pytest.mark.filterwarnings("default::ResourceWarning")
def test_communicators_that_are_never_freed_are_named(recwarn):
    def program():
        MPI.COMM_WORLD.Dup()

    with pytest.warns(ResourceWarning, match="call Free") as caught:
        pencils.simulate(2, program)
    assert "never freed: a copy of COMM_WORLD" in str(caught[0].message)
    assert line_of(program, "Dup()") in str(caught[0].message)
    # The private communicators of fields are freed.
    pencils.simulate(3, lambda: pencils.ones(pencils.Pencil((8, 8))).sum())
    assert [each for each in recwarn if each.category is ResourceWarning] == []


@mistake(
    4,
    ValueError,
    "bad input\nrank 2 of 4 raised this (seed=5)",
    "ranks 0-1, 3 wait in Barrier (collective 0 on COMM_WORLD)",
    "for rank 2, which raised ValueError\n",  # and no text again
    absent="the same collective calls",  # the cause is the error
    seed=5,
)
def an_error_of_one_rank(comm):
    if comm.rank == 2:
        raise ValueError("bad input")
    comm.Barrier()


@mistake(3, ValueError, "of rank 0\nrank 0 of 3 raised this", "rank 1 raised ValueError: of rank 1")
def other_errors_on_other_ranks(comm):
    raise ValueError(f"of rank {comm.rank}")


@mistake(3, SystemExit, "3\nrank 1 called Abort(3)")
def abort(comm):
    if comm.rank == 1:
        comm.Abort(3)
    comm.Barrier()


@mistake(2, RecursionError, "all 2 ranks")
def recursion_without_end(comm):
    recursion_without_end(comm)


@mistake(2, SimulationError, "a simulation is running", "not on a simulated rank")
def a_simulation_in_a_simulated_rank(_):
    pencils.simulate(2, print)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_explained(name, monkeypatch):
    monkeypatch.setattr("simmpi.scheduler.SECONDS", 0)
    program, nranks, kind, texts, absent, options = MISTAKES[name]
    text = error_of(nranks, lambda: run(name), kind, **options)
    for part in texts:
        assert re.sub("<(.*?)>", lambda code: line_of(program, code[1]), part) in text
    assert absent not in text


@pytest.mark.parametrize(
    ("arguments", "options", "error", "expected"),
    [
        ((0, print), {}, ValueError, "nranks=0 must be 1 or more"),
        ((-2, print), {}, ValueError, "nranks=-2 must be 1 or more"),
        ((2.5, print), {}, TypeError, "nranks=2.5 must be an integer"),
        (("4", print), {}, TypeError, "nranks='4' must be an integer"),
        ((print, 4), {}, TypeError, "function must be callable"),
        ((3, print), {"nodes": 0}, ValueError, "nodes=0 must be 1 or more"),
        ((3, print), {"nodes": [0, 1]}, ValueError, "2 entries for 3 ranks"),
        ((3, print), {"nodes": "ab"}, TypeError, "nodes="),
        ((3, print), {"nodes": 1.5}, TypeError, "nodes=1.5 must be an integer"),
        ((3, print), {"seed": "a"}, TypeError, "seed='a' must be an integer"),
        ((3, print), {"seed": 1.5}, TypeError, "seed=1.5 must be an integer"),
        ((3, print), {"max_steps": 0}, ValueError, "max_steps=0 must be 1 or more"),
        ((3, print), {"max_steps": "a"}, TypeError, "max_steps='a' must be an integer"),
        ((3, print), {"faults": 5}, TypeError, "faults=5"),
        ((3, print), {"faults": [3]}, TypeError, "faults="),
    ],
)
def test_arguments(arguments, options, error, expected):
    with pytest.raises(error, match=expected):
        pencils.simulate(*arguments, **options)


@pytest.fixture
def own():
    """Give a communicator of the process itself, and what uses it, as in a cell of a notebook."""
    comm = MPI.COMM_WORLD.Dup()
    pencil = pencils.Pencil((8, 8), comm)
    yield {"comm": comm, "pencil": pencil, "field": pencils.ones(pencil), "pencils": pencils}
    comm.Free()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("lambda: comm.rank", "comm, a communicator"),
        ("lambda: pencils.ones(pencil)", "pencil, a Pencil"),
        ("lambda: field.sum()", "field, a PencilArray"),
        ("lambda: [field.sum() for _ in range(2)]", "field, a PencilArray"),
        ("lambda: inner()", "comm, a communicator"),
        ("lambda field=field: field.sum()", "a default, a PencilArray"),
        ("field.sum", "its object, a PencilArray"),
        ("(lambda own: lambda: own.sum())(field)", "own, a PencilArray"),
    ],
)
def test_what_was_made_outside(own, source, name):
    own["inner"] = eval("lambda: comm.rank", own)
    with pytest.raises(ValueError, match=f"uses {name} that was made outside") as caught:
        pencils.simulate(2, eval(source, own))
    assert "make it inside the function" in str(caught.value)


def test_other_things_that_were_made_outside(own):
    with pytest.raises(ValueError, match=r"uses args\[0\], a PencilArray that was made outside"):
        pencils.simulate(2, pencils.gather, own["field"])
    # Attributes and local variables may have such names.
    text = "pencil = pencils.Pencil((8, 8))\n    return pencil.comm.rank, field\n"
    exec(f"def program(field):\n    {text}", own)
    assert pencils.simulate(2, own["program"], 1) == [(0, 1), (1, 1)]
