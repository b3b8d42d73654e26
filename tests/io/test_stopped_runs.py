"""Whole programs that are sent signals or killed: they go on later as if nothing had happened."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest
from mpi4py import MPI
from mpi_helpers import ended, forked

import pencils

PROGRAM = """
import os, sys, time
import numpy as np
import pencils

folder, steps, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
pen = pencils.Pencil((6, 5, 4))
with pencils.CheckpointSeries(folder + "/run", keep=2, every=1000) as checkpoints:
    state = checkpoints.resume(pen)
    u = state["u"] if state else pencils.zeros(pen)
    with open(f"{folder}/pid-{pen.rank}", "w") as file:
        file.write(str(os.getpid()))
    for step in range(state.step + 1 if state else 1, steps + 1):
        u += 1
        time.sleep(pause)
        stop = checkpoints.should_stop()
        if stop or step == steps or checkpoints.due(step):
            checkpoints.save(step, {"u": u}, time=0.1 * step)
        if stop:
            break
print("steps", pen.comm.allgather(step), flush=True) if pen.rank == 0 else pen.comm.allgather(step)
"""
RANKS = 3


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.01)


def start(folder, steps, pause):
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec if mpiexec.exists() else "mpiexec", "-n", str(RANKS), sys.executable]
    return subprocess.Popen(
        [*command, "-c", PROGRAM, folder, str(steps), str(pause)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),  # without what MPI_Init added behind Python's back
    )


def test_a_program_that_is_sent_a_signal_saves_and_goes_on_later(tmp_path):
    process = start(tmp_path, 100_000, 0.005)
    try:
        pids = [tmp_path / f"pid-{rank}" for rank in range(RANKS)]
        wait_for(lambda: all(pid.exists() and pid.read_text() for pid in pids))
        time.sleep(0.1)
        os.kill(int(pids[1].read_text()), signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert out.startswith("steps [")
    stopped = {int(step) for step in out.strip().removeprefix("steps [").rstrip("]").split(",")}
    assert len(stopped) == 1
    (file,) = (tmp_path / "run").iterdir()
    (step,) = stopped
    assert file.name == f"checkpoint-{step:08}.h5"
    assert pencils.verify(file, MPI.COMM_SELF) == ["u"]
    state = pencils.load(file, pencils.Pencil((6, 5, 4), MPI.COMM_SELF))
    assert (state["u"].local == step).all()
    again = start(tmp_path, step + 3, 0)
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert out == f"steps {[step + 3] * RANKS}\n"
    state = pencils.load(
        tmp_path / "run" / f"checkpoint-{step + 3:08}.h5", pencils.Pencil((6, 5, 4), MPI.COMM_SELF)
    )
    assert (state["u"].local == step + 3).all()


def program(folder):
    """Write an output at each step, and a checkpoint at each second one; it may die at a yield."""
    pen = pencils.Pencil((4, 5), MPI.COMM_SELF)
    output = pencils.TimeSeries(folder / "out", comm=MPI.COMM_SELF)
    yield
    checkpoints = pencils.CheckpointSeries(folder / "run", every=2, keep=1, comm=MPI.COMM_SELF)
    yield
    with output, checkpoints:
        state = checkpoints.resume(pen, outputs=[output])
        yield
        u = state["u"] if state else pencils.ones(pen)
        step = state.step if state else 0
        while step < 3:
            step += 1
            u = 0.7 * u + step
            output.append(step, {"u": u, "total": u.sum()})
            yield
            if checkpoints.due(step):
                checkpoints.save(step, {"u": u}, time=step)
                yield
    yield


def run(folder, last):
    """Run the program; kill this process at that yield."""
    for number, _ in enumerate(program(folder)):
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)


def results(folder):
    """Look at what a run has left: the output, and the names of all files that count."""
    with h5py.File(folder / "out") as file:
        found = [file[name][...].tobytes() for name in ("time", "u", "total")]
    return found, sorted(path.name for path in (folder / "run").iterdir())


@pytest.mark.mpiexec("kills processes")
def test_a_program_that_is_killed_between_any_two_lines_is_started_again(memory_path):
    for last in itertools.count():
        folder = memory_path / str(last)
        folder.mkdir()
        # Killed there, and then where it has just gone on.
        killed = [ended(forked(run, folder, place))[0] for place in (last, 2)]
        assert ended(forked(run, folder, -1)) == [0]
        if last == 0:
            whole = results(folder)
        assert results(folder) == whole, last
        if killed[0] == 0:
            break
    assert last == 8
    assert killed == [0, -signal.SIGKILL]
