"""Progress of exchanges while a program computes: when MPI is called, and equal results."""

from contextlib import contextmanager

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import all_raise, everywhere, ways

import pencils
from pencils import Pencil, Transposition
from pencils.comm import exchange, pool, progress
from pencils.errors import ArgumentError
from pencils.fft import PencilFFT

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (12, 10, 7)


@pytest.fixture(name="calls")
def _calls(monkeypatch):
    """Count the calls that `poll` makes, all of which are due."""
    calls = []
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    monkeypatch.setattr(progress, "progress", lambda: calls.append(None))
    return calls


@contextmanager
def started(comm, method="messages"):
    """Start a transpose in the block, and check at its end what has arrived."""
    rows = Pencil(SHAPE, comm, decomp=0)
    columns = rows.with_(decomp=1)
    u, v = pencils.from_function(rows, value), pencils.zeros(columns)
    with Transposition(rows, columns, method=method, check=False) as plan:
        handle = plan.start(u, v)
        yield handle
        result = handle.wait()
        expected = pencils.from_function(columns, value)
        assert everywhere(comm, result is v and np.array_equal(v.local, expected.local))


def value(i, j, k):
    return 100.0 * i + 10 * j + k


def fields(comm):
    pencil = Pencil(SHAPE, comm, order=(1, 2, 0))
    return [pencils.from_function(pencil, value), pencils.random.uniform(pencil, rng=1)]


WORK = {
    "operator": lambda a, b: a + b,
    "operator with a number": lambda a, _: 2.0 - a,
    "in place": lambda a, b: a.copy().__imul__(b),
    "negative": lambda a, _: -a,
    "power": lambda a, _: a**2,
    "comparison": lambda a, b: a < b,
    "other type": lambda a, b: a * (1j * b),
    "ufunc": np.hypot,
    "ufunc with out": lambda a, b: np.add(a, b, out=a.copy()),
    "function": lambda a, b: np.where(a > b, a, b),
    "replicated": lambda a, _: a * np.hanning(SHAPE[-1]),
    "shifted": lambda a, b: a[1:-1] - b[1:-1],
}


@pytest.mark.parametrize("sizes", [(1, 0), (256, 0), (2**30, 0), (2**30, 2**30)], ids=str)
@pytest.mark.parametrize("work", WORK)
def test_functions_of_fields_make_progress(comm, monkeypatch, calls, work, sizes):
    slab, least = sizes
    monkeypatch.setattr(progress, "SLAB", slab)
    monkeypatch.setattr(pool, "LEAST", least)
    a, b = fields(comm)
    expected = WORK[work](a, b)
    assert everywhere(comm, not calls)
    with started(comm):
        found = WORK[work](a, b)
        assert everywhere(comm, len(calls) > 0)
    calls.clear()
    WORK[work](a, b)
    assert everywhere(comm, not calls)
    same = np.array_equal(found.local, expected.local) and found.dtype == expected.dtype
    assert everywhere(comm, same and found.local.strides == expected.local.strides)


def test_large_results_are_computed_in_slabs(comm, monkeypatch, calls):
    monkeypatch.setattr(pool, "LEAST", 0)
    a, b = fields(comm)
    monkeypatch.setattr(progress, "SLAB", 1)
    with started(comm):
        result = a + b
        # The slowest dimension is the second one.
        planes = result.local.shape[1] if result.local.size else 0
        assert everywhere(comm, len(calls) >= planes)
    assert everywhere(comm, np.array_equal(result.local, a.local + b.local))


def test_transforms_make_progress(comm, monkeypatch, calls):
    pencil = Pencil(SHAPE, comm, periodic=True)
    u = pencils.from_function(pencil, value)
    monkeypatch.setattr(progress, "SLAB", 64)
    with PencilFFT(pencil, float, backend="scipy", check=False) as plan:
        expected = plan.forward(u)
        assert everywhere(comm, not calls)
        with started(comm):
            found = plan.forward(u)
            assert everywhere(comm, bool(calls))
    assert everywhere(comm, np.array_equal(found.local, expected.local))


@ways
def test_tests_until_everything_has_arrived(comm, method):
    with started(comm, method) as handle:
        handle.test()  # which need not find anything
        pencils.progress()
    with started(comm, method) as handle:
        while not handle.test():
            pass
        assert everywhere(comm, handle.test())
    assert everywhere(comm, handle.test())


def test_progress_calls_mpi_only_while_an_exchange_is_under_way(comm):
    state = progress._open()
    pencils.progress()
    assert everywhere(comm, not state.comms and not progress.under_way.on)
    with started(comm), started(comm):
        assert everywhere(comm, len(state.comms) == 2 and progress.under_way.on)
        pencils.progress()
    assert everywhere(comm, not state.comms and not progress.under_way.on)


@pytest.mark.parallel([2, 3, 4, 6])  # one rank has no messages
def test_a_failure_is_raised_by_wait(comm, monkeypatch):
    class Failing:
        class Request(MPI.Request):
            @staticmethod
            def Testall(_requests):
                raise MPI.Exception(MPI.ERR_OTHER)

        def __getattr__(self, name):
            return getattr(MPI, name)

    rows = Pencil(SHAPE, comm, decomp=0)
    u = pencils.ones(rows)
    with Transposition(rows, rows.with_(decomp=1), method="messages", check=False) as plan:
        handle = plan.start(u)
        started = handle._started
        monkeypatch.setattr(exchange, "MPI", Failing())
        while not handle.test():  # when the last message has come, nothing is left to wait for
            pass
        with pytest.raises(MPI.Exception):
            handle.wait()
        assert everywhere(comm, not progress.under_way.on)
        started.complete()  # which the failure stands for


def test_a_failure_of_progress_is_left_to_wait(comm, monkeypatch):
    class Failing:
        def Iprobe(self, *_):
            raise MPI.Exception(MPI.ERR_OTHER)

    with started(comm):
        monkeypatch.setattr(progress._open(), "comms", [Failing()])
        pencils.progress()
        monkeypatch.undo()


@pytest.mark.skipif(MPI.Query_thread() != MPI.THREAD_MULTIPLE, reason="MPI permits no threads")
def test_a_thread_makes_progress_in_place_of_functions(comm):
    with pencils.ProgressThread() as thread:
        with started(comm) as handle:
            assert everywhere(comm, thread.wake.is_set() and not progress.under_way.on)
            handle.test()
        assert everywhere(comm, not thread.wake.is_set())
        another = pencils.ProgressThread()
        all_raise(comm, ArgumentError, "one is enough", another.__enter__)
    with started(comm):
        assert everywhere(comm, progress.under_way.on)
        with thread:  # again
            assert everywhere(comm, thread.wake.is_set() and not progress.under_way.on)
        assert everywhere(comm, progress.under_way.on)


@pytest.mark.parallel([1])
def test_simulated_ranks_may_ask_for_a_thread():
    def program():
        from mpi4py import MPI

        with pencils.ProgressThread(), started(MPI.COMM_WORLD) as handle:
            handle.test()
        return progress.under_way.on

    assert pencils.simulate(2, program) == [False, False]
