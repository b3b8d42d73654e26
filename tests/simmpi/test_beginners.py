"""Typical mistakes in MPI programs: each error names the ranks, the calls and what to do."""

import re
import sys
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
    return text_of(caught.value)


def line_of(program, code):
    """Return file and line of some code of a function."""
    lines = code_lines(program)
    number = next(i for i, line in enumerate(lines) if code in line)
    return f"{__file__}:{program.__code__.co_firstlineno + number}"


def code_lines(program):
    first = program.__code__.co_firstlineno - 1
    return Path(__file__).read_text().splitlines()[first:]


# ---- calls that other ranks do not make ----


def test_a_sum_on_one_rank_only():
    def program():
        u = pencils.ones(pencils.Pencil((8, 8)))
        if MPI.COMM_WORLD.rank == 0:
            u.sum()

    text = error_of(4, program, DeadlockError)
    assert "rank 0 waits in Allgather (collective 4 on communicator 1 of ranks 0-3)" in text
    assert "for ranks 1-3, which returned" in text
    assert f"{line_of(program, 'u.sum()')} in program: u.sum()" in text
    assert "call it on all ranks, and print on one" in text


def test_a_loop_that_is_longer_on_one_rank():
    def program():
        comm = MPI.COMM_WORLD
        for _ in range(3 + (comm.rank == 1)):
            comm.allreduce(1)

    text = error_of(4, program, DeadlockError)
    assert "rank 1 waits in allreduce (collective 3 on COMM_WORLD) for ranks 0, 2-3" in text
    assert "the same collective calls in the same order" in text


def test_different_collectives():
    def program():
        if MPI.COMM_WORLD.rank == 0:
            MPI.COMM_WORLD.bcast(1)
        else:
            MPI.COMM_WORLD.Barrier()

    text = error_of(2, program, MismatchError)
    assert f"rank 0 calls bcast(root=0) at {line_of(program, 'bcast')}" in text
    assert f"rank 1 calls Barrier() at {line_of(program, 'Barrier')}" in text
    assert "all ranks must make the same call" in text


@pytest.mark.parametrize(
    "call",
    [
        lambda comm: comm.bcast(1, root=comm.rank),
        lambda comm: comm.Bcast(np.ones(4 + comm.rank)),
        lambda comm: comm.Allreduce(MPI.IN_PLACE, np.ones(4 + comm.rank)),
        lambda comm: comm.Allreduce(MPI.IN_PLACE, np.ones(4, "di"[comm.rank])),
        lambda comm: comm.Allreduce(MPI.IN_PLACE, np.ones(4), [MPI.SUM, MPI.MAX][comm.rank]),
    ],
    ids=["root", "counts", "counts of a reduction", "types", "operations"],
)
def test_different_arguments(call):
    text = error_of(2, lambda: call(MPI.COMM_WORLD), MismatchError)
    assert "rank 0 calls" in text
    assert "rank 1 calls" in text
    assert "with the same root, counts and types" in text


# ---- messages ----


@pytest.mark.parametrize("options", [{"count": 100_000}, {"count": 10, "seed": 0}])
def test_two_ranks_that_both_send_first(options):
    """Large messages wait for their receive; small ones do with some seeds."""
    count = options.pop("count")

    def program():
        comm = MPI.COMM_WORLD
        mine, theirs = np.ones(count), np.empty(count)
        comm.Send(mine, 1 - comm.rank)
        comm.Recv(theirs, 1 - comm.rank)

    text = error_with_some_seed(program, **options)
    assert "rank 0 waits in Send (to rank 1 with tag 0 on COMM_WORLD)" in text
    assert "for rank 1, which waits in Send" in text
    assert "call Sendrecv" in text


def error_with_some_seed(program, seed=None):
    found = DeadlockError("no deadlock with these seeds")
    for each in [None] if seed is None else range(seed, seed + 50):
        try:
            pencils.simulate(2, program, seed=each)
        except DeadlockError as error:
            found = error
            break
    assert found.seed == each
    assert re.findall("seed=.*?[)]", str(found)) == ([] if each is None else [f"seed={each})"])
    return text_of(found)


def test_two_ranks_that_both_receive_first():
    def program():
        comm = MPI.COMM_WORLD
        comm.recv(source=1 - comm.rank)
        comm.send(1, dest=1 - comm.rank)

    text = error_of(2, program, DeadlockError)
    assert "rank 1 waits in recv (from rank 0 with any tag on COMM_WORLD)" in text
    assert "Look for the send" in text


def test_another_tag():
    def program():
        comm = MPI.COMM_WORLD
        if comm.rank == 0:
            comm.send("hello", dest=1, tag=11)
        else:
            comm.recv(source=0, tag=12)

    text = error_of(2, program, DeadlockError)
    assert "rank 1 waits in recv (from rank 0 with tag 12 on COMM_WORLD)" in text
    assert "rank 1 has not received a message from rank 0 with tag 11" in text


def test_a_message_that_is_never_sent():
    def program():
        if MPI.COMM_WORLD.rank == 1:
            MPI.COMM_WORLD.recv(source=0)

    text = error_of(2, program, DeadlockError)
    assert "for rank 0, which returned" in text
    assert "has not received" not in text


def test_a_message_that_is_never_received():
    def program():
        if MPI.COMM_WORLD.rank == 0:
            MPI.COMM_WORLD.send("hello", dest=1, tag=11)

    text = error_of(2, program, UsageError)
    assert "rank 1 has not received a message from rank 0 with tag 11 on COMM_WORLD" in text
    assert "receive every message" in text
    assert pencils.simulate(2, program, strict=False) == [None, None]


def test_a_buffer_that_is_too_short():
    def program():
        if MPI.COMM_WORLD.rank == 0:
            MPI.COMM_WORLD.Send(np.ones(10), dest=1)
        else:
            MPI.COMM_WORLD.Recv(np.empty(5), source=0)

    text = error_of(2, program, RuntimeError)
    assert "has 80 bytes, the buffer 40; pass a buffer that is as long" in text
    assert "rank 1 of 2 raised this" in text


def test_another_type():
    def program():
        if MPI.COMM_WORLD.rank == 0:
            MPI.COMM_WORLD.Send(np.ones(10), dest=1)
        else:
            MPI.COMM_WORLD.Recv(np.empty(10, np.float32), source=0)

    text = error_of(2, program, MismatchError)
    assert "rank 0 sends MPI_DOUBLE by Send, rank 1 receives MPI_FLOAT by Recv" in text


@pytest.mark.parametrize("upper", [False, True])
def test_objects_and_memory(upper):
    def program():
        comm = MPI.COMM_WORLD
        if comm.rank == 0:
            (comm.Send if upper else comm.send)(np.ones(3), dest=1)
        elif upper:
            comm.recv(source=0)
        else:
            comm.Recv(np.empty(100), source=0)

    text = error_of(2, program, MismatchError)
    assert "uppercase methods transfer memory, lowercase ones objects" in text


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


# ---- requests ----


def test_a_send_that_is_not_completed():
    def program():
        if MPI.COMM_WORLD.rank == 0:
            MPI.COMM_WORLD.Isend(np.ones(3), dest=1)
        else:
            MPI.COMM_WORLD.Recv(np.empty(3))

    text = error_of(2, program, UsageError)
    assert "rank 0 has not completed Isend (to rank 1 with tag 0 on COMM_WORLD)" in text
    assert "Complete every request with wait or test" in text


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


def test_a_program_that_tests_for_ever(monkeypatch):
    monkeypatch.setattr("simmpi.polls.SECONDS", 0)

    def program():
        while MPI.COMM_WORLD.rank == 0 and not MPI.COMM_WORLD.iprobe():
            pass

    assert "no rank makes progress" in error_of(2, program, DeadlockError)


def test_a_loop_that_never_ends():
    def program():
        while True:
            MPI.COMM_WORLD.allreduce(1)

    text = error_of(2, program, StepLimitError, max_steps=50)
    assert "more calls of MPI than max_steps=50" in text


# ---- arguments ----


@pytest.mark.parametrize(
    ("given", "error", "expected"),
    [
        ([1, 2, 3], ValueError, "3 objects were given; pass 2, one for each rank"),
        (None, TypeError, "None was given; pass a sequence of 2 objects, one for each rank"),
    ],
)
def test_what_scatter_takes(given, error, expected):
    assert expected in error_of(2, lambda: MPI.COMM_WORLD.scatter(given), error)


@pytest.mark.parametrize("given", [None, [1, 2, 3], 5, "hello", {}])
def test_what_a_buffer_is_not(given):
    text = error_of(1, lambda: MPI.COMM_WORLD.Send(given, 0), TypeError)
    assert "pass a NumPy array" in text
    assert "lowercase names take any object" in text


def test_memory_with_gaps():
    def program():
        MPI.COMM_WORLD.Send(np.ones((4, 4))[:, 1], 0)

    assert "MPI needs contiguous memory: pass a copy" in error_of(1, program, BufferError)


def test_a_communicator_that_is_freed():
    def program():
        comm = MPI.COMM_WORLD.Dup()
        comm.Free()
        comm.Barrier()

    assert "this rank has freed it" in error_of(2, program, RuntimeError)


@pytest.mark.filterwarnings("default::ResourceWarning")
def test_a_communicator_that_is_never_freed():
    def program():
        MPI.COMM_WORLD.Dup()

    with pytest.warns(ResourceWarning, match="call Free") as caught:
        pencils.simulate(2, program)
    assert "never freed: a copy of COMM_WORLD" in str(caught[0].message)
    assert line_of(program, "Dup()") in str(caught[0].message)


def test_the_private_communicators_of_fields_are_freed(recwarn):
    pencils.simulate(3, lambda: pencils.ones(pencils.Pencil((8, 8))).sum())
    assert [each for each in recwarn if each.category is ResourceWarning] == []


# ---- errors of one rank ----


def test_an_error_of_one_rank():
    def program():
        if MPI.COMM_WORLD.rank == 1:
            raise ValueError("bad input")
        MPI.COMM_WORLD.Barrier()

    text = error_of(3, program, ValueError)
    assert text.startswith("bad input\nrank 1 of 3 raised this")
    assert "ranks 0, 2 wait in Barrier (collective 0 on COMM_WORLD) for rank 1" in text
    assert "the same collective calls" not in text  # the cause is the error


def test_the_error_of_the_lowest_rank():
    def program():
        raise ValueError(f"of rank {MPI.COMM_WORLD.rank}")

    text = error_of(3, program, ValueError)
    assert text.startswith("of rank 0")
    assert "rank 1 raised ValueError: of rank 1" in text


def test_an_exit_of_one_rank():
    def program():
        if MPI.COMM_WORLD.rank == 1:
            sys.exit("no such file")
        MPI.COMM_WORLD.Barrier()

    assert error_of(3, program, SystemExit).startswith("no such file\nrank 1 of 3 raised this")


def test_abort():
    def program():
        if MPI.COMM_WORLD.rank == 1:
            MPI.COMM_WORLD.Abort(3)
        MPI.COMM_WORLD.Barrier()

    assert error_of(3, program, SystemExit).startswith("3\nrank 1 called Abort(3)")


# ---- arguments of simulate ----


@pytest.mark.parametrize(
    ("arguments", "error", "expected"),
    [
        ((0, print), ValueError, "nranks=0 must be 1 or more"),
        ((-2, print), ValueError, "nranks=-2 must be 1 or more"),
        ((2.5, print), TypeError, "nranks=2.5 must be an integer"),
        (("4", print), TypeError, "nranks='4' must be an integer"),
        ((print, 4), TypeError, "function must be callable"),
    ],
)
def test_arguments(arguments, error, expected):
    with pytest.raises(error, match=expected):
        pencils.simulate(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"nodes": 0}, ValueError, "nodes=0 must be 1 or more"),
        ({"nodes": [0, 1]}, ValueError, "2 entries for 3 ranks"),
        ({"nodes": "ab"}, TypeError, "nodes="),
        ({"nodes": 1.5}, TypeError, "nodes=1.5 must be an integer"),
        ({"seed": "a"}, TypeError, "seed='a' must be an integer"),
        ({"seed": 1.5}, TypeError, "seed=1.5 must be an integer"),
        ({"max_steps": 0}, ValueError, "max_steps=0 must be 1 or more"),
        ({"max_steps": "a"}, TypeError, "max_steps='a' must be an integer"),
        ({"faults": 5}, TypeError, "faults=5"),
        ({"faults": [3]}, TypeError, "faults="),
    ],
)
def test_options(options, error, expected):
    with pytest.raises(error, match=expected):
        pencils.simulate(3, lambda: None, **options)


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


def test_arguments_that_were_made_outside(own):
    with pytest.raises(ValueError, match=r"uses args\[0\], a PencilArray that was made outside"):
        pencils.simulate(2, pencils.gather, own["field"])


def test_attributes_and_local_variables_may_have_names_that_exist_outside(own):
    exec(
        """
def program(field):
    pencil = pencils.Pencil((8, 8))
    return pencil.comm.rank, field
""",
        own,
    )
    assert pencils.simulate(2, own["program"], 1) == [(0, 1), (1, 1)]


def test_a_simulation_in_a_simulated_rank():
    text = error_of(2, lambda: pencils.simulate(2, print), SimulationError)
    assert "do it outside" in text
