"""Mistakes with windows of simulated ranks; `mpi_programs.windows` has what MPI libraries do."""

import numpy as np
import pytest
from mpi4py import MPI

from pencils import simulate
from simmpi.errors import DeadlockError, MismatchError, UsageError


def window(size=8, **options):
    return MPI.Win.Allocate(size * 8, 8, comm=MPI.COMM_WORLD, **options)


def memory_of(win):
    return np.frombuffer(win.tomemory(), "i8")


ONE = np.ones(1, "i8")


def test_when_accesses_happen():
    def program():
        win = window(1)
        win.Fence()
        win.Put(ONE, (MPI.COMM_WORLD.rank + 1) % 2)
        MPI.COMM_WORLD.Barrier()
        early = int(memory_of(win)[0])
        win.Fence()
        late = int(memory_of(win)[0])
        win.Free()
        return early, late

    assert simulate(2, program) == [(0, 1), (0, 1)]
    found = {early for seed in range(20) for early, _ in simulate(2, program, seed=seed)}
    assert found == {0, 1}

    # Results are not there before their completion.
    def program():
        win, found = window(1), np.array([5], "i8")
        win.Lock(0, MPI.LOCK_SHARED)
        win.Get(found, 0)
        early = int(found[0])
        win.Unlock(0)
        win.Free()
        return early, int(found[0])

    assert simulate(2, program) == [(-1, 0)] * 2
    assert simulate(2, program, strict=False) == [(5, 0)] * 2

    # Many accesses of one epoch.
    def program(count):
        win = window(count)
        win.Lock_all()
        for place in range(MPI.COMM_WORLD.rank, count, 2):
            win.Put(ONE, 0, place)
        win.Unlock_all()
        MPI.COMM_WORLD.Barrier()
        result = int(memory_of(win).sum())
        win.Free()
        return result

    assert simulate(2, program, 2000)[0] == 2000

    # Accesses with gaps conflict in the same bytes only.
    def program(distance):
        win, kind = window(), MPI.INT64_T.Create_vector(3, 1, 2).Commit()
        win.Fence()
        win.Put(np.ones(3, "i8"), 0, (MPI.COMM_WORLD.rank * distance, 1, kind))
        win.Fence()
        kind.Free()
        result = memory_of(win).tolist()
        win.Free()
        return result

    assert simulate(2, program, 1)[0] == [1] * 6 + [0] * 2
    with pytest.raises(UsageError, match="the same bytes"):
        simulate(2, program, 2)


def changes(call):
    def program():
        win = window()
        value, result = np.ones(1, "i8"), np.ones(1, "i8")
        win.Lock_all()
        getattr(win, call)(*([value, result] if "fetch" in call.lower() else [value]), 0)
        value[0] = 2
        win.Unlock_all()
        win.Free()

    return program


@pytest.mark.parametrize("call", ["Put", "Get", "Accumulate", "Fetch_and_op"])
def test_buffers_that_change_before_the_completion_are_reported(call):
    with pytest.raises(UsageError, match=rf"{call} of rank 0 to rank 0: .*changed.* window 1"):
        simulate(1, changes(call))
    simulate(1, changes(call), strict=False)


def conflict(first, second, places=(0, 0)):
    def program():
        win = window()
        win.Fence()
        if MPI.COMM_WORLD.rank < 2:
            call, place = [(first, places[0]), (second, places[1])][MPI.COMM_WORLD.rank]
            getattr(win, call)(np.ones(2, "i8"), 2, place)
        win.Fence()
        win.Free()

    return program


@pytest.mark.parametrize(("first", "second"), [("Put", "Put"), ("Put", "Get"), ("Get", "Put")])
@pytest.mark.parametrize("places", [(0, 0), (0, 1), (2, 1)])
def test_accesses_to_the_same_bytes_in_an_epoch_are_reported(first, second, places):
    with pytest.raises(UsageError, match=r"to rank 2 .*with .* to rank 2 .* same bytes"):
        simulate(3, conflict(first, second, places))


@pytest.mark.parametrize(
    ("first", "second", "places"),
    [("Get", "Get", (0, 0)), ("Accumulate", "Accumulate", (0, 1)), ("Put", "Put", (0, 2))],
)
def test_accesses_that_do_not_conflict_are_allowed(first, second, places):
    simulate(3, conflict(first, second, places))


def waits_for_a_lock(win):
    win.Lock_all()
    MPI.COMM_WORLD.Barrier()
    win.Unlock_all()
    if MPI.COMM_WORLD.rank:
        MPI.COMM_WORLD.Barrier()
    win.Lock(0)
    if MPI.COMM_WORLD.rank == 0:
        MPI.COMM_WORLD.Barrier()
        MPI.COMM_WORLD.Barrier()


def posts_nothing(win):
    if MPI.COMM_WORLD.rank == 0:
        win.Start(MPI.COMM_WORLD.group.Incl([1]))
        win.Complete()


def completes_nothing(win):
    win.Lock_all()
    request = win.Rput(ONE, 0)
    win.Unlock_all()
    win.Free()
    return request


def other_type(win):
    win.Fence()
    win.Put(ONE, 0, (0, 1, MPI.DOUBLE))


HOLDER = r"in Win\.Lock \(exclusive lock of rank 0 on window 1 of COMM_WORLD\) for rank 0"


@pytest.mark.parametrize(
    ("ranks", "program", "kind", "text"),
    [
        (3, waits_for_a_lock, DeadlockError, HOLDER),
        (2, posts_nothing, DeadlockError, r"rank 0 waits in Win.Complete .* for rank 1"),
        (1, completes_nothing, UsageError, "rank 0 has not completed Rput"),
        (1, other_type, MismatchError, "MPI_DOUBLE"),
        (
            2,
            lambda win: win.Fence(MPI.MODE_NOSUCCEED if MPI.COMM_WORLD.rank else 0),
            MismatchError,
            "NOSUCCEED",
        ),
    ],
)
def test_mistakes_are_explained(ranks, program, kind, text):
    with pytest.raises(kind, match=text):
        simulate(ranks, lambda: program(window()))


def test_locks_and_memory():
    def program():
        win = window()
        win.Lock(0, MPI.LOCK_SHARED)
        MPI.COMM_WORLD.Barrier()
        win.Unlock(0)
        win.Lock(0)
        memory = memory_of(win) if MPI.COMM_WORLD.rank == 0 else None
        win.Unlock(0)
        win.Free()
        return memory is None

    assert simulate(3, program, seed=1) == [False, True, True]

    # Memory is shared on one node only.
    def program(split):
        comm = MPI.COMM_WORLD
        comm = comm.Split_type(MPI.COMM_TYPE_SHARED) if split else comm.Dup()
        win = MPI.Win.Allocate_shared(8, comm=comm)
        size = win.group_size
        win.Free()
        comm.Free()
        return size

    with pytest.raises(RuntimeError, match=r"nodes \[0, 1\].*Split_type"):
        simulate(4, program, "", nodes=[0, 0, 0, 1])
    assert simulate(4, program, "split", nodes=[0, 0, 0, 1]) == [3, 3, 3, 1]

    # Memory stays as long as it is used.
    def program():
        win = window()
        memory = np.asarray(win.tomemory())
        memory[:] = MPI.COMM_WORLD.rank
        win.Free()
        return memory

    for rank, memory in enumerate(simulate(3, program)):
        np.zeros(1000)
        assert (memory == rank).all()


def test_loops_that_wait_for_memory_for_ever_are_reported(monkeypatch):
    monkeypatch.setattr("simmpi.scheduler.MOST_POLLS", 500)
    monkeypatch.setattr("simmpi.scheduler.SECONDS", 0)

    def program():
        win = window()
        win.Lock_all()
        found = np.zeros(1, "i8")
        while found[0] == 0:
            win.Get(found, 0)
            win.Flush(0)

    for seed in (None, 1):
        with pytest.raises(DeadlockError, match="no rank makes progress"):
            simulate(2, program, seed=seed)
    with pytest.warns(ResourceWarning, match="never freed: window 1 of COMM_WORLD"):
        simulate(2, lambda: window() and None)


@pytest.mark.parametrize(
    ("target", "text"),
    [(8, "bytes 64 to 72 of 64"), ((0, 9), "here and 72 at the target"), ((7, 1, "i4"), "here")],
)
def test_accesses_outside_of_the_memory_are_refused(target, text):
    def program():
        win = window()
        win.Lock_all()
        with pytest.raises(MPI.Exception, match=text):
            win.Put(ONE, 0, target)
        win.Unlock_all()
        win.Free()

    simulate(1, program)


def test_accesses_that_are_refused():
    def program():
        win = window()
        win.Lock(0, MPI.LOCK_SHARED)
        with pytest.raises(MPI.Exception, match=r"no epoch for rank 1"):
            win.Put(ONE, 1)
        win.Unlock(0)
        win.Fence()
        with pytest.raises(MPI.Exception, match="need Lock"):
            win.Rput(ONE, 1)
        win.Fence(MPI.MODE_NOSUCCEED)
        win.Free()

    simulate(2, program)

    # Dynamic windows need attached memory.
    def program():
        win = MPI.Win.Create_dynamic(comm=MPI.COMM_WORLD)
        memory = np.zeros(4, "i8")
        address = memory.ctypes.data
        win.Lock_all()
        with pytest.raises(MPI.Exception, match="not attached"):
            win.Put(ONE, 0, address)
        win.Attach(memory)
        win.Put(ONE, 0, address + 24)
        with pytest.raises(MPI.Exception, match="not attached"):
            win.Put(ONE, 0, address + 25)
        win.Unlock_all()
        win.Detach(memory)
        with pytest.raises(MPI.Exception, match="not attached"):
            win.Detach(memory)
        win.Free()
        return memory.tolist()

    assert simulate(1, program) == [[0, 0, 0, 1]]
    # Handles belong to one rank.
    box = {}

    def program():
        box[MPI.COMM_WORLD.rank] = win = window()
        MPI.COMM_WORLD.Barrier()
        with pytest.raises(MPI.Exception, match="uses the handle that rank"):
            box[1 - MPI.COMM_WORLD.rank].Fence()
        win.Free()

    simulate(2, program)
