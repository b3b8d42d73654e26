"""Programs go on when processes die; errors of one rank end all; texts name what is needed."""

import importlib.util
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from mpi4py import MPI

import pencils
from pencils.errors import ArgumentError

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "recovery.py"
REPORTS = MPI.Get_library_version().startswith("Open MPI v5")  # that a process has died

needs_reports = pytest.mark.skipif(not REPORTS, reason="needs Open MPI 5")

PROGRAM = """
import os, signal, sys
import pencils
from mpi4py import MPI
from pencils.errors import RanksLostError

rank, kill = MPI.COMM_WORLD.rank, dict(map(int, each.split(":")) for each in sys.argv[2:])
copies, errors = pencils.recovery.BuddyCopies(), []

def program(comm):
    half = comm.Split(comm.rank % 2, comm.rank)
    u = pencils.ones(pencils.Pencil((8, 9), comm, periodic=True), halo=1)
    state = copies.resume({"u": u})
    try:
        for step in range(state.step + 1 if state else 1, 41):
            if kill.get(rank) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            u.exchange_halo()
            u += u.shift((1, 0)) + u.shift((0, -1))
            half.allreduce(step)  # its other ranks do not talk to the one that has died
            if step % 10 == 0:
                copies.save(step, {"u": u})
    except Exception as error:
        errors.append(type(error))
        raise
    return comm.size, u.sum()

size, total = pencils.recovery.recover(program, least=int(sys.argv[1]))
assert set(errors) <= {RanksLostError}, errors
if size == MPI.COMM_WORLD.size - len(kill):
    sys.stdout.write(f"{size} {total == 72 * 3.0**40} {len(errors)}\\n")
"""


# Each of `cases` is what ranks do in a program of collective calls on three of them.
ODD = """
import os, signal, sys, time
import pencils
from mpi4py import MPI
from pencils.tools.recovery import survivors

def program(comm):
    u = pencils.ones(pencils.Pencil((8, 9), comm, periodic=True), halo=1)
    for step in range(20):
        u.exchange_halo()
        if step == 10 and comm.size == 3:
            case(comm)
    return u.sum()

for case in {cases}:
    try:
        text = pencils.recovery.recover(program)
    except (Exception, SystemExit) as error:
        text = type(error).__name__ + f": {{error}}"
    sys.stdout.write(f"{{text}}\\n")
"""
DIE = "os.kill(os.getpid(), signal.SIGKILL)"


def odd(*cases):
    """Run the program for these cases; return the run, and what ranks have written, sorted."""
    functions = ", ".join(f"lambda comm: {case}" for case in cases)
    run = ulfm(3, "-c", ODD.format(cases=f"[{functions}]"))
    assert run.returncode == 0, run.stdout + run.stderr
    return sorted(run.stdout.splitlines())


def ulfm(ranks, *args, options=("--with-ft", "ulfm"), before=()):
    """Run the program, perhaps by a command before it; ranks write whole lines."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, *options, "-n", ranks, *before, sys.executable, *args]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=120, check=False
    )


@needs_reports
@pytest.mark.parametrize("kills", [["0:5", "2:33"], ["1:40"]])
def test_the_ranks_that_are_left_reach_the_same_answer(kills):
    run = ulfm(4, "-c", PROGRAM, 1, *kills)
    left = 4 - len(kills)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines() == [f"{left} True {len(kills)}"] * left


@needs_reports
def test_an_error_of_one_rank_is_raised_on_all():
    lines = odd(
        "comm.rank == 1 and [][3]",
        "int('x')",  # on all ranks
        "comm.rank == 1 and sys.exit(5)",
        "comm.rank == 1 and comm.send(0, 77)",
    )
    assert lines == [
        "Exception: MPI_ERR_RANK: invalid rank",
        "IndexError: list index out of range",
        *["IndexError: rank 1: list index out of range"] * 2,
        *["RuntimeError: rank 1: MPI_ERR_RANK: invalid rank"] * 2,
        *["RuntimeError: rank 1: left the program by SystemExit(5)"] * 2,
        "SystemExit: 5",
        *["ValueError: invalid literal for int() with base 10: 'x'"] * 3,
    ]


@needs_reports
def test_an_error_of_mpi_may_be_the_trace_of_a_death():
    assert odd(f"comm.rank == 1 and {DIE} or comm.rank == 0 and comm.send(0, 77)") == ["72.0"] * 2


@needs_reports
def test_a_rank_that_is_left_does_not_wait_for_ever():
    late = "setattr(survivors, 'PATIENCE', 1.0) or comm.rank == 0 and time.sleep(8)"
    lines = odd(f"comm.rank == 1 and {DIE} or {late}")
    # Rank 0 then finds rank 2 gone, or waits for it in vain, too.
    assert len(lines) == 2
    assert lines[1].startswith("RanksLostError: the processes that are left did not agree within")


ALONE = """
import os, time
from mpi4py import MPI
from pencils.tools.recovery import survivors

survivors.PATIENCE = 0.5
if MPI.COMM_WORLD.rank == 0:
    survivors.shrink(MPI.COMM_WORLD)
time.sleep(3)
os._exit(0)
"""


@needs_reports
def test_a_rank_that_waits_inside_of_mpi_is_killed():
    assert "did not make a communicator within 0.5 s after a loss" in ulfm(2, "-c", ALONE).stderr


SLOW = """
import time
import pencils
from mpi4py import MPI
from pencils.tools.recovery import survivors

survivors._LEAVING, survivors._FINALIZING = 0.5, 1.0
pencils.recovery.recover(lambda comm: pencils.ones(pencils.Pencil((8, 9), comm)).sum())
if MPI.COMM_WORLD.rank == 0:
    time.sleep(4)
"""


@needs_reports
def test_ranks_wait_at_exit_for_one_that_works_on():
    run = ulfm(3, "-c", SLOW, before=("sh", "-c", '"$@"; echo status $?', "sh"))
    assert run.stdout.splitlines() == ["status 0"] * 3, run.stdout + run.stderr


@needs_reports
def test_too_few_ranks_raise_on_all():
    run = ulfm(3, "-c", PROGRAM, 3, "1:7")
    assert run.returncode != 0
    assert run.stderr.count("RanksLostError: 2 of 3 processes are left, but least=3") == 2


@needs_reports
def test_the_option_of_mpiexec_is_named_on_all_ranks():
    run = ulfm(2, "-m", "pencils", "run", "-c", PROGRAM, 1, options=())
    assert run.returncode != 0
    assert "NotImplementedError" in run.stderr
    assert "started without `--with-ft ulfm`" in run.stderr
    assert "all 2 ranks" in run.stderr


def test_kills_are_repeated_if_mpiexec_did_not_start_the_job(monkeypatch):
    spec = importlib.util.spec_from_file_location("recovery", BENCHMARK)
    recovery = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec.loader.exec_module(recovery)

    def start(*_):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(["/bin/sh", "-c", jobs.pop(0)], **pipes)

    monkeypatch.setattr(recovery, "start", start)
    refused = 'echo "The PMIx server\'s listener thread failed to start. We cannot" >&2; exit 213'
    jobs = [refused, refused, "echo answer 7", "exit 3", *[refused] * 5]
    repeated = partial(recovery.started, "heat", "memory", 3, [(0.0, 0)])
    assert repeated() == ("answer 7", [], 0, 2)
    assert repeated() == ("exit status 3\n", [], 0, 0)  # that of the program
    answer, _, _, starts = repeated()
    assert answer.startswith("exit status 213")
    assert starts == 5


@needs_reports
@pytest.mark.thorough
def test_random_kills_of_the_examples():
    kills = [sys.executable, str(BENCHMARK), "--kills", "30"]
    run = subprocess.run(kills, capture_output=True, text=True, timeout=900, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "30 kills, 0 failures" in run.stdout


@pytest.mark.parallel([1, 2, 3])
def test_an_mpi_that_ends_the_job_is_an_error_on_all_ranks(comm):
    if comm.size == 1:
        assert pencils.recovery.recover(lambda own: own.size, comm) == 1
    elif "OMPI_MCA_mpi_ft_enable" not in os.environ:
        with pytest.raises(
            NotImplementedError, match=r"mpiexec --with-ft ulfm .* pencils.CheckpointSeries"
        ):
            pencils.recovery.recover(lambda own: own.size, comm)


@pytest.mark.parallel([1])
def test_arguments_are_checked(comm):
    with pytest.raises(TypeError, match=r"program must be callable .* not 3"):
        pencils.recovery.recover(3, comm)
    with pytest.raises(ArgumentError, match="least"):
        pencils.recovery.recover(lambda own: own.size, comm, least=0)


@pytest.mark.parallel([1])
def test_errors_of_the_program_are_raised_as_they_are(comm):
    error = ZeroDivisionError("no")

    def program(_):
        raise error

    with pytest.raises(ZeroDivisionError) as found:
        pencils.recovery.recover(program, comm)
    assert found.value is error
