"""Signals that reach one process end the run of all of them, at the same step."""

import os
import signal
import threading

import pytest

import pencils
from pencils.errors import ArgumentError
from simmpi import process

pytestmark = [
    pytest.mark.parallel([1, 2, 3, 4, 6]),
    pytest.mark.mpiexec("signals reach the main thread, which is no rank"),
]

CAUGHT = (signal.SIGTERM, signal.SIGUSR1)


@pytest.fixture(autouse=True)
def _handlers():
    """Put back the handlers that a test sets."""
    before = {number: signal.getsignal(number) for number in (*CAUGHT, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def folder(mpi_tmp_path):
    return mpi_tmp_path / "run"


@pytest.mark.parametrize("number", CAUGHT)
@pytest.mark.parametrize("rank", [0, -1])
def test_a_signal_to_one_rank_stops_all_at_the_same_step(comm, folder, number, rank, caplog):
    before = signal.getsignal(number)
    with pencils.CheckpointSeries(folder) as checkpoints:
        for step in range(1, 10):
            if step == 5 and comm.rank == rank % comm.size:
                os.kill(os.getpid(), number)
            if checkpoints.should_stop():
                break
        assert comm.allgather(step) == [5] * comm.size
        assert checkpoints.should_stop()
    assert signal.getsignal(number) == before
    if comm.rank == 0:
        assert f"stop of the run requested: {signal.Signals(number).name}" in caplog.text


def test_who_listened_before_still_hears(comm, folder):
    heard = []

    def hear(number, frame):
        heard.append((number, frame is not None))

    signal.signal(signal.SIGTERM, hear)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    with pencils.CheckpointSeries(folder) as checkpoints:
        for number in CAUGHT:
            signal.raise_signal(number)
        assert checkpoints.should_stop()
    assert heard == [(signal.SIGTERM, True)]
    assert signal.getsignal(signal.SIGTERM) is hear
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    comm.barrier()


def test_an_interrupt_may_be_caught_and_does_not_interrupt(comm, folder):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pencils.CheckpointSeries(folder, signals=[signal.SIGINT]) as checkpoints:
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        if comm.rank == 0:
            signal.raise_signal(signal.SIGINT)
        assert checkpoints.should_stop()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("first", [0, 1])
def test_two_series_may_end_in_any_order(folder, first):
    before = signal.getsignal(signal.SIGTERM)
    both = [pencils.CheckpointSeries(folder), pencils.CheckpointSeries(folder)]
    signal.raise_signal(signal.SIGTERM)
    assert all(checkpoints.should_stop() for checkpoints in both)
    both[first].close()
    assert signal.getsignal(signal.SIGTERM) != before
    signal.raise_signal(signal.SIGTERM)
    both[1 - first].close()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_handler_that_came_later_stays(folder):
    checkpoints = pencils.CheckpointSeries(folder)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    checkpoints.close()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_an_error_in_the_run_gives_the_signals_back(folder):
    before = signal.getsignal(signal.SIGTERM)

    def run():
        with pencils.CheckpointSeries(folder):
            msg = "the flow has blown up"
            raise RuntimeError(msg)

    with pytest.raises(RuntimeError):
        run()
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("bad", [3, [signal.SIGKILL], [0], [-1], [9999], ["TERM"], [True], None])
def test_signals_that_cannot_be_caught(folder, bad, lab):
    kind, text = lab.raised(pencils.CheckpointSeries, folder, signals=bad)
    assert issubclass(kind, TypeError | ValueError)
    assert "signal.SIGTERM" in text
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def in_a_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_signals_outside_of_the_main_thread(comm, folder, lab):
    """On one rank only: the others are told."""
    errors = []

    def make(**rest):
        try:
            pencils.CheckpointSeries(folder, **rest).close()
        except ArgumentError as error:
            errors.append(error)

    if comm.rank == comm.size - 1:
        in_a_thread(make)
    else:
        make()
    assert lab.everywhere(len(errors) == 1 and "pass signals=()" in str(errors[0]))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    in_a_thread(lambda: make(signals=()))
    assert lab.everywhere(len(errors) == 1)


@pytest.mark.parallel([1])
def test_simulated_ranks_receive_no_signals(comm, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    own = process.exchange({})
    try:
        with pencils.CheckpointSeries(tmp_path, comm=comm):
            assert signal.getsignal(signal.SIGTERM) == before
    finally:
        process.exchange(own)
    assert signal.getsignal(signal.SIGTERM) == before
