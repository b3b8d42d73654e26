"""What `simulate` promises, and that nothing a program does keeps it from ending."""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import pencils
from pencils import simulate
from simmpi import Fault, Simulation, point, scheduler
from simmpi.errors import DeadlockError, RankKilledError, SimulationError, UsageError
from simmpi.process import PerProcess
from simmpi.types import buffers

HERE = Path(__file__).name


def barrier():
    MPI.COMM_WORLD.Barrier()


def deadlock():
    MPI.COMM_WORLD.recv(source=MPI.COMM_WORLD.rank)


def test_results_are_by_rank_and_arguments_are_shared():
    seen = []

    def main(values, name):
        values.append((MPI.COMM_WORLD.rank, name))
        return MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, MPI.COMM_SELF.size

    assert simulate(3, main, seen, "a") == [(0, 3, 1), (1, 3, 1), (2, 3, 1)]
    assert seen == [(0, "a"), (1, "a"), (2, "a")]
    # A thousand ranks.
    assert sum(simulate(1000, lambda: MPI.COMM_WORLD.allreduce(1))) == 1_000_000
    # State of the library belongs to a rank.
    count = PerProcess(list)

    def main():
        count().append(MPI.COMM_WORLD.rank)
        MPI.COMM_WORLD.Barrier()
        return count()

    assert simulate(3, main) == [[0], [1], [2]]
    assert count() == []


def test_names_and_cores_are_restored():
    cores = getattr(os, "sched_getaffinity", str)
    before, names = cores(0), dict(vars(MPI))
    for size in (2, 5, 1):
        assert simulate(size, lambda: MPI.COMM_WORLD.allreduce(1)) == [size] * size
    with pytest.raises(DeadlockError):
        simulate(2, deadlock)
    assert (cores(0), dict(vars(MPI))) == (before, names)


def test_runs_of_one_simulation_keep_communicators():
    simulation = Simulation(3)
    made = {}

    def make():
        made[MPI.COMM_WORLD.rank] = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2)

    def use():
        return made[MPI.COMM_WORLD.rank].allreduce(MPI.COMM_WORLD.rank)

    def free():
        made[MPI.COMM_WORLD.rank].Free()

    with pytest.raises(SimulationError, match="call them in"):
        simulation.run(barrier)
    with simulation.installed():
        assert (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size) == (0, 3)
        simulation.run(make)
        point("a")  # outside of ranks it does nothing
        assert simulate(4, lambda: MPI.COMM_WORLD.size) == [4] * 4  # inside of another one
        assert simulation.run(use) == [2, 1, 2]
        simulation.run(free)
        simulation.close()
        with pytest.raises(SimulationError, match="the simulation has ended"):
            simulation.run(use)
    point("a")


def calls_and_results(seed):
    """Exchange messages from any source, and test: all that the seed chooses."""

    def mixed():
        comm = MPI.COMM_WORLD
        requests = [comm.isend(comm.rank, dest) for dest in range(comm.size)]
        order = [comm.recv() for _ in range(comm.size)]
        while not MPI.Request.testall(requests)[0]:
            point("test")
        comm.bcast(order, root=1)
        return order

    simulation = Simulation(4, seed=seed)
    with simulation.installed():
        results = simulation.run(mixed)
        simulation.close()
    return simulation.calls, results


def test_the_same_seed_gives_the_same_calls_and_results():
    for seed in range(5):
        assert calls_and_results(seed) == calls_and_results(seed)
    assert len({repr(calls_and_results(seed)) for seed in range(20)}) > 10
    # Calls name what ranks have called.
    simulation = Simulation(2)

    def main():
        MPI.COMM_WORLD.Barrier()
        point("np.empty")
        MPI.COMM_WORLD.isend(0, MPI.COMM_WORLD.rank).wait()
        MPI.COMM_WORLD.recv()

    with simulation.installed():
        simulation.run(main)
    assert simulation.calls == [["Barrier", "np.empty", "isend", "Wait", "recv"]] * 2


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(None, [4] * 4), (2, [2] * 4), ([0, 1, 1, 1], [1, 3, 3, 3]), (4, [1] * 4)],
)
def test_ranks_of_a_node_share_memory(nodes, expected):
    def main():
        comm = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
        size = comm.size
        comm.Free()
        return size, MPI.Get_processor_name()

    found = simulate(4, main, nodes=nodes)
    assert [size for size, _ in found] == expected
    assert len({name for _, name in found}) == round(sum(1 / size for size in expected))


@pytest.mark.parametrize("seed", [None, 3])
def test_an_error_of_several_ranks_is_told_once(seed):
    def main(some):
        if MPI.COMM_WORLD.rank != some:
            raise ValueError("the text\nof two lines")

    named = "" if seed is None else " (seed=3)"
    for some, note in ((None, "all 3 ranks"), (1, "ranks 0, 2 of 3")):
        with pytest.raises(ValueError, match="of two lines") as caught:
            simulate(3, main, some, seed=seed)
        rest = "" if some is None else "\nrank 1 returned"
        assert caught.value.__notes__ == [f"{note} raised this{named}{rest}"]


def test_faults_raise_at_a_call():
    def main():
        barrier()
        point("here")
        try:
            barrier()
        except MemoryError:
            return "caught"
        return MPI.COMM_WORLD.rank

    with pytest.raises(DeadlockError, match="for rank 1, which returned"):
        simulate(2, main, faults=[Fault(1, 2, MemoryError)])
    with pytest.raises(OSError, match="disk") as caught:
        simulate(2, main, faults=[Fault(0, 1, OSError("disk"))])
    assert "rank 0 of 2 raised this" in caught.value.__notes__[0]
    assert simulate(2, main, faults=[Fault(1, 9)]) == [0, 1]
    # Killed ranks are named.
    with pytest.raises(DeadlockError, match=r"rank 0 waits in Barrier .* rank 1, which was killed"):
        simulate(2, barrier, faults=[Fault(1, 0)])
    with pytest.raises(
        RankKilledError, match="rank 1 killed by a fault, all other ranks"
    ) as caught:
        simulate(2, lambda: point("a"), faults=[Fault(1, 0)], seed=4)
    assert caught.value.seed == 4
    # Blocks of killed ranks run at the end only.
    log = []

    def main():
        if MPI.COMM_WORLD.rank == 1:
            request = MPI.COMM_WORLD.irecv()
            try:
                point("killed here")
            finally:
                log.append("finally")
                request.wait()
                log.append("not reached")
        log.append("other")

    with pytest.raises(RankKilledError):
        simulate(2, main, faults=[Fault(1, 1)])
    assert log == ["other", "finally"]


def test_ranks_that_catch_everything_end():
    log = []

    def once():
        try:
            deadlock()
        except BaseException:  # noqa: BLE001
            deadlock()

    def always():
        while True:
            with contextlib.suppress(BaseException):
                deadlock()

    class Closed:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            log.append("exit")
            barrier()

    def communicates():
        with Closed():
            try:
                deadlock()
            finally:
                log.append("finally")
                barrier()

    for main in (once, always, communicates):
        with pytest.raises(DeadlockError):
            simulate(2, main)
    assert log == ["finally", "exit"] * 2
    assert simulate(2, MPI.COMM_WORLD.__class__.__name__.upper) == ["INTRACOMM"] * 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_generators_and_finalizers_that_communicate_at_the_end():
    class Finalized:
        def __del__(self):
            barrier()

    def steps():
        try:
            yield
        finally:
            barrier()

    def main():
        kept = Finalized(), steps()
        next(kept[1])
        deadlock()

    with pytest.raises(DeadlockError):
        simulate(2, main)
    gc.collect()


def for_ever():
    while True:
        pass


def barriers_for_ever():
    while True:
        point("a")


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to threads")
@pytest.mark.parametrize("in_rank", [for_ever, barriers_for_ever])
def test_interrupts_end_all_ranks(in_rank, monkeypatch):
    """Ctrl-C arrives while rank 1 runs this function."""

    def main():
        barrier()
        if MPI.COMM_WORLD.rank == 1:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            in_rank()
        barrier()

    monkeypatch.setattr(scheduler, "INTERVAL", 0.01)
    before = threading.active_count()
    # Python's own handler is not set where a shell started it in the background.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            simulate(3, main)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert "rank 1 is running" in "\n".join(caught.value.__notes__)
    assert threading.active_count() == before


@pytest.mark.parametrize("code", [3, "text"])
def test_exits_of_ranks(code):
    with pytest.raises(SystemExit) as caught:
        simulate(2, lambda: MPI.COMM_WORLD.rank and sys.exit(code))
    assert caught.value.code == code
    assert "rank 1 of 2" in caught.value.__notes__[0]
    assert simulate(2, lambda: MPI.COMM_WORLD.rank and sys.exit()) == [0, None]


def test_no_thread_can_be_started(monkeypatch):
    start = threading.Thread.start
    started = []

    def fail(thread):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match="can't start") as caught:
        simulate(4, barrier)
    assert "no thread for rank 2 of 4" in caught.value.__notes__[0]
    assert not any(thread.is_alive() for thread in started)


def test_threads_of_ranks_cannot_call_mpi():
    def main():
        errors = []

        def work():
            for call in (barrier, lambda: MPI.COMM_WORLD.rank, lambda: MPI.COMM_WORLD.isend(1, 0)):
                try:
                    call()
                except UsageError as error:
                    errors.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return errors

    for errors in simulate(2, main):
        assert len(errors) == 3
        assert all("this thread is no simulated rank" in error for error in errors)


def test_simulate_while_another_thread_does():
    running, go_on = threading.Event(), threading.Event()

    def main():
        running.set()
        go_on.wait()
        return MPI.COMM_WORLD.size

    found = []
    thread = threading.Thread(target=lambda: found.append(simulate(2, main)))
    thread.start()
    running.wait()
    with pytest.raises(
        SimulationError, match="a simulation is running; start another one after it"
    ):
        simulate(3, barrier)
    go_on.set()
    thread.join()
    assert found == [[2, 2]]


def test_simulate_in_processes_of_mpiexec(mpirun, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from mpi4py import MPI\n"
        "from pencils import simulate\n"
        "real = MPI.COMM_WORLD\n"
        "found = simulate(3, lambda: MPI.COMM_WORLD.allreduce(1))\n"
        "assert MPI.COMM_WORLD is real and found == [3] * 3\n"
        "print(real.allreduce(1))\n"
    )
    done = mpirun(2, program)
    # Lines of two processes may mix.
    assert (done.returncode, done.stdout.count("2")) == (0, 2), done.stderr


def test_handles_belong_to_one_rank():
    box = {}

    def main(use):
        comm = MPI.COMM_WORLD
        if comm.rank == 0:
            box["request"] = comm.irecv(source=1)
        comm.Barrier()
        if comm.rank == 1:
            comm.send(1, 0)
            use(box["request"])

    for name in ("wait", "test", "Cancel", "get_status"):
        with pytest.raises(RuntimeError, match="uses a request of rank 0"):
            simulate(2, main, lambda request, name=name: getattr(request, name)())
    for name in ("waitall", "testall", "waitany", "testany", "waitsome", "testsome"):
        with pytest.raises(RuntimeError, match="uses a request of rank 0"):
            simulate(2, main, lambda request, name=name: getattr(MPI.Request, name)([request]))

    def communicators():
        box[MPI.COMM_WORLD.rank] = MPI.COMM_WORLD.Dup()
        MPI.COMM_WORLD.Barrier()
        box[0].Barrier()

    with pytest.raises(RuntimeError, match="rank 1 uses the handle that rank 0 has of"):
        simulate(2, communicators)


def of(call, *args):
    """Name of the error that a call raises; its number depends on the MPI library."""
    names = {MPI.SUCCESS: "SUCCESS", MPI.ERR_REQUEST: "ERR_REQUEST"}
    try:
        call(*args)
    except MPI.Exception as error:
        return names.get(error.Get_error_class(), str(error))
    return names[MPI.SUCCESS]


def wrong_requests():
    comm = MPI.COMM_SELF
    values = np.zeros(1)
    request = comm.Recv_init(values, 0)
    found = [of(MPI.Prequest().Start), of(MPI.Request().Free), of(MPI.Request().Cancel)]
    request.Start()
    found += [of(request.Start), bool(request)]
    comm.Send(np.ones(1), 0)
    request.Wait()
    found += [of(request.Wait), bool(request), MPI.Request.Testall([request]), values[0]]
    request.Free()
    found += [of(request.Start), bool(request), MPI.Request().Wait(), MPI.Request().free()]
    request = comm.Ibarrier()
    found += [of(request.Free), of(request.Cancel)]
    request.Wait()
    return found


def test_wrong_uses_of_requests():
    expected = wrong_requests()
    assert simulate(2, wrong_requests) == [[*expected[:-2], "ERR_REQUEST", "ERR_REQUEST"]] * 2

    # Cancelled messages.
    def main():
        comm, status, values = MPI.COMM_SELF, MPI.Status(), np.full(1, 5.0)
        found = []
        for start, late in ((comm.Irecv, False), (comm.Issend, False), (comm.Irecv, True)):
            request = start(values, 0)
            if late:
                comm.Send(np.ones(1), 0)
            request.Cancel()
            request.Wait(status)
            found += [status.Is_cancelled(), comm.Iprobe(), values[0]]
        return found

    assert simulate(1, main) == [[True, False, 5.0, True, False, 5.0, False, False, 1.0]]


def freed_requests():
    comm = MPI.COMM_WORLD
    dest, source = (comm.rank + 1) % comm.size, comm.rank - 1 if comm.rank else comm.size - 1
    values, more = np.zeros(1), np.zeros(1)
    comm.Irecv(values, source, 1).Free()
    request = comm.Recv_init(more, source, 2)
    request.Start()
    request.Free()
    comm.Isend(np.full(1, 7.0), dest, 1).Free()
    comm.Ssend(np.full(1, 8.0), dest, 2)
    comm.Barrier()
    comm.Barrier()
    return values[0], more[0], bool(request)


@pytest.mark.parametrize("seed", [None, *range(5)])
def test_requests_that_are_freed_complete_by_themselves(seed):
    assert simulate(3, freed_requests, seed=seed) == [(7.0, 8.0, False)] * 3


def test_fields_and_requests_after_the_end():
    results = simulate(2, lambda: pencils.ones(pencils.Pencil((8, 8))))
    assert [u.local.sum() for u in results] == [32.0, 32.0]
    assert (results[0] + results[0]).local.sum() == 64.0
    assert "rank 0 of 2" in repr(results[0])
    with pytest.raises((ValueError, RuntimeError), match="was freed"):
        results[0].sum()
    (request,) = simulate(1, lambda: MPI.COMM_WORLD.isend(1, 0), strict=False)
    with pytest.raises(UsageError, match="Wait: the simulation has ended"):
        request.wait()
    request.free()


@pytest.mark.parametrize("fault", [None, Fault(1, 5), Fault(1, 5, ValueError)])
def test_nothing_remains_of_a_simulation(fault):
    def main():
        keyval = MPI.Comm.Create_keyval(delete_fn=lambda *_: None)
        MPI.COMM_WORLD.Set_attr(keyval, main)
        u = pencils.ones(pencils.Pencil((8, 8), periodic=True), halo=1)
        u.sum()

    simulate(2, main)
    before = len(buffers.foreign), threading.active_count()
    simulation = Simulation(2, faults=[] if fault is None else [fault])
    try:
        with simulation.installed():
            simulation.run(main)
            simulation.close()
    except (SimulationError, ValueError):
        assert fault is not None
    world = weakref.ref(simulation.world)
    del simulation
    while world() is not None:  # threads of killed ranks may need a moment
        gc.collect()
        time.sleep(0.01)
    assert (len(buffers.foreign), threading.active_count()) == before
