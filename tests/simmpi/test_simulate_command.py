"""``python -m pencils simulate``: programs as they are, on simulated ranks."""

import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest
from mpi_helpers import python

from pencils.tools import command_line
from simmpi import apart, process

ROOT = Path(__file__).parents[2]
WORLD = "from mpi4py import MPI\ncomm = MPI.COMM_WORLD\nrank = comm.rank\n"


@pytest.fixture
def simulated(tmp_path):
    """Run a program on simulated ranks: ``simulated(options, text, *args)``."""

    def run(options, text, *args, stdin="", **files):
        for name, other in files.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(other))
        (tmp_path / "app.py").write_text(textwrap.dedent(text))
        return command(*options.split(), "app.py", *args, cwd=tmp_path, stdin=stdin)

    return run


def command(*args, cwd=ROOT, stdin=""):
    words = "-m", "pencils", "simulate", *args
    return python(*words, cwd=cwd, stdin=stdin, PYTHONPATH=str(ROOT))


def test_a_program_runs_on_every_rank(simulated):
    text = """
    import sys
    from mpi4py import MPI
    import pencils
    if __name__ == "__main__":
        u = pencils.ones(pencils.Pencil((8, 9)))
        print(MPI.COMM_WORLD.rank, u.local_shape, u.sum(), sys.argv)
    """
    ran = simulated("-n 3", text, "-n", "5", "--seed")
    assert ran.returncode == 0, ran.stderr
    rest = "72.0 ['app.py', '-n', '5', '--seed']"
    assert sorted(ran.stdout.splitlines()) == [
        f"0 (3, 9) {rest}",
        f"1 (3, 9) {rest}",
        f"2 (2, 9) {rest}",
    ]
    assert ran.stderr == ""


@pytest.mark.parametrize("how", [("-c", f"{WORLD}print(rank)"), ("-m", "app", "print")])
def test_code_and_modules(how, tmp_path):
    (tmp_path / "app.py").write_text(f"import sys\n{WORLD}exec(sys.argv[1] + '(rank)')\n")
    ran = command("-n", "3", *how, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["0", "1", "2"]


def test_the_seed_chooses_the_order_and_random_numbers(simulated):
    text = (
        f"{WORLD}import numpy as np\nfound = comm.gather(np.random.rand())\n"
        "comm.barrier()\nprint(rank, found, flush=True)\n"
    )
    first, again, other = (simulated(f"-n 6 --seed {seed}", text).stdout for seed in (1, 1, 2))
    orders = [[line[0] for line in ran.splitlines()] for ran in (first, other)]
    assert [sorted(order) for order in orders] == [[*"012345"]] * 2
    assert orders[0] != orders[1]
    assert first == again != other
    drawn = [set(re.findall(r"0\.\d+", ran)) for ran in (first, other)]
    assert [len(each) for each in drawn] == [6, 6]
    assert drawn[0] != drawn[1]


# Options, program, status, and parts of what it prints and of its errors; "!" begins an absent one.
GHOSTS = """
import pencils, numpy as np
u = pencils.zeros(pencils.Pencil(4, periodic=True), halo=1)
u[...] = 1.0
print(bool(np.isnan(u.padded).any()))
"""
ONE_RAISES = 'if rank == 1:\n    raise ValueError("only here")\ncomm.barrier()\n'
UNREAD = "if rank == 1:\n    comm.isend(1, 0)\n"
RUNS = {
    "one rank raises": (
        *("-n 3", ONE_RAISES, 1),
        *('app.py", line 5, in <module>', "ValueError: only here\nrank 1 of 3 raised this"),
        *("ranks 0, 2 wait in barrier", "Traceback"),
    ),
    "deadlock": (
        *("-n 3", "if rank:\n    comm.barrier()\n", 1),
        *("^simmpi: simmpi.errors.DeadlockError: ", "ranks 1-2 wait in barrier"),
        *("app.py:5 in <module>: comm.barrier()", "!Traceback"),
    ),
    "abort": (
        *("-n 3", "if rank == 1:\n    comm.Abort(7)\ncomm.barrier()\n", 7),
        "^simmpi: rank 1 called Abort(7)\nrank 0 waits in ",
    ),
    "left over": ("-n 2", UNREAD, 1, "rank 1 has not completed isend"),
    "not strict": ("-n 2 --no-strict", UNREAD, 0, "!isend"),
    "not freed": ("-n 2", "comm.Dup()\n", 0, "ResourceWarning: never freed"),
    "max steps": (
        *("-n 2 --max-steps 100", "while True:\n    comm.barrier()\n", 1),
        *("StepLimitError", "max_steps=100"),
    ),
    "seeds": (
        *("-n 3 --seeds 5", "comm.barrier()\nprint(rank)\n", 0),
        *("^simmpi: no error with the seeds 0-4\n", "!\n0\n"),
    ),
    "nodes": (
        "-n 5 --nodes 2",
        "sizes = comm.gather(comm.Split_type(MPI.COMM_TYPE_SHARED).size)\nprint(sizes or '')\n",
        *(0, "[3, 3, 3, 2, 2]"),
    ),
    "ghosts": ("-n 2", GHOSTS, 0, "^False\nFalse\n"),
    "checked ghosts": ("-n 2 --check", GHOSTS, 0, "^True\nTrue\n"),
}


@pytest.mark.parametrize("name", RUNS)
def test_programs_end_as_they_should(simulated, name):
    options, text, status, *parts = RUNS[name]
    ran = simulated(options, WORLD + text)
    printed = ran.stdout + ran.stderr
    assert ran.returncode == status, printed
    assert ran.stderr.count("Traceback") <= 1
    for part in parts:
        if part[0] == "^":
            assert printed.startswith(part[1:]), printed
        else:
            assert (part[1:] not in printed) if part[0] == "!" else (part in printed), printed


def test_an_error_is_printed_once_with_the_lines_of_the_program(simulated):
    text = """
    from mpi4py import MPI
    import pencils
    def f():
        pencils.gather(pencils.ones(pencils.Pencil((8, 9))), root=MPI.COMM_WORLD.rank)
    f()
    """
    ran = simulated("-n 3 --seed 5", text)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert ran.stderr.count("Traceback") == 1
    assert ran.stderr.count('  File "') == 2
    assert 'app.py", line 5, in f' in ran.stderr
    assert "RankDisagreementError: gather: ranks disagree on root" in ran.stderr
    assert "(seed=5)" in ran.stderr
    full = simulated("-n 3 --all-frames", text)
    assert full.stderr.count('  File "') > 4


def test_a_program_that_ends_by_exit_ends_its_rank_only(simulated):
    text = WORLD + textwrap.dedent("""
    import sys
    if rank == 1:
        sys.exit(code)
    if rank == 2:
        sys.exit()
    print("goes on", rank)
    """)
    for code, status, printed in (("3", 3, ""), ("'no input'", 1, "no input\n")):
        ran = simulated("-n 3", f"code = {code}\n{text}")
        assert (ran.returncode, ran.stdout) == (status, "goes on 0\n")
        assert ran.stderr == f"{printed}simmpi: rank 1 left with status {status}\n"
        ran = simulated("-n 3", f"raise SystemExit({code})")  # all ranks
        assert (ran.returncode, ran.stderr) == (status, printed)


def test_an_interrupt_names_the_place_of_every_rank(tmp_path):
    text = (
        WORLD
        + "if rank == 1:\n    print('ready', flush=True)\n    while True: pass\ncomm.barrier()\n"
    )
    (tmp_path / "app.py").write_text(text)
    words = [sys.executable, "-m", "pencils", "simulate", "-n", "2", "app.py"]
    pipe = subprocess.PIPE
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True
    ) as running:
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        _, printed = running.communicate(timeout=60)
    assert running.returncode == 130
    assert printed.startswith("simmpi: KeyboardInterrupt\nrank 0 waits in barrier")
    assert re.search(r"app\.py:[56] in <module>: ", printed.partition("rank 1 is running")[2])


RACE = WORLD + textwrap.dedent("""
    import sys
    print("begins", sys.argv[1:])
    if rank == 0:
        first = comm.recv(source=MPI.ANY_SOURCE)
        second = comm.recv(source=MPI.ANY_SOURCE)
        assert first < second, "wrong order"
    else:
        comm.send(rank, 0)
""")


def test_the_first_seed_that_fails_is_named_and_can_be_repeated(simulated, tmp_path):
    ran = simulated("-n 3 --seeds 50", RACE, "it's", "x")
    assert ran.returncode == 1
    assert ran.stderr.count("AssertionError: wrong order") == 1
    assert ran.stdout == ""
    assert ran.stderr.count("begins [\"it's\", 'x']") == 3  # the output of the failing one only
    *_, line, repeat = ran.stderr.splitlines()
    assert line.startswith("simmpi: seed ")
    assert line.endswith(" of 0-49 failed; repeat it:")
    again = shlex.split(repeat)
    assert again[:4] == ["python", "-m", "pencils", "simulate"]
    assert command(*again[4:], cwd=tmp_path).returncode == 1
    seed = int(again[again.index("--seed") + 1])
    assert all(simulated(f"-n 3 --seed {each}", RACE).returncode == 0 for each in range(seed))


def test_a_breakpoint_in_one_rank(simulated):
    text = WORLD + textwrap.dedent("""
    value = 10 * rank
    if rank == 2:
        breakpoint()
    total = comm.allreduce(value)
    print("total", total)
    """)
    ran = simulated("-n 3", text, stdin="p value\nvalue = 100\nc\n")
    assert ran.returncode == 0, ran.stderr
    assert "(Pdb) 20\n" in ran.stdout
    assert ran.stdout.count("total 110") == 3


def test_each_rank_has_its_modules_arguments_and_random_numbers(simulated):
    shared = """
    from mpi4py import MPI
    rank = MPI.COMM_WORLD.rank
    MPI.COMM_WORLD.barrier()  # while other ranks begin to import this file
    ranks = MPI.COMM_WORLD.allgather(rank)
    class Thing:
        pass
    """
    text = WORLD + textwrap.dedent("""
    import os.path, sys
    import numpy as np
    import shared
    assert (shared.rank, shared.ranks) == (rank, [0, 1, 2]), shared.rank
    sys.argv.append(rank)
    sys.path.insert(0, str(rank))
    np.random.seed(rank)
    comm.barrier()
    import shared as again
    assert again is shared
    assert sys.argv[1:] == [rank]
    assert sys.path[0] == str(rank)
    assert np.random.rand() == np.random.RandomState(rank).rand()
    class Own:
        pass
    found = comm.sendrecv((Own(), shared.Thing()), (rank + 1) % 3)
    assert [type(each) for each in found] == [Own, shared.Thing]
    assert sys.modules["__main__"].rank == rank
    print("good")
    """)
    for options in ("-n 3", "-n 3 --seed 7"):
        ran = simulated(options, text, shared=shared)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == "good\n" * 3


def test_modules_come_back_with_their_rank(monkeypatch):
    monkeypatch.setattr(process, "_entries", [])
    before = process.exchange({})
    process.exchange(before)
    process.keep_apart(apart._Modules(), "own")
    one = types.ModuleType("a_module_of_the_program")
    one.__file__ = "/nowhere/app.py"
    own = process.exchange({})
    sys.modules[one.__name__] = one
    first = process.exchange({})
    assert one.__name__ not in sys.modules
    process.exchange(first)
    assert sys.modules[one.__name__] is one
    process.exchange(own)
    assert one.__name__ not in sys.modules


@pytest.mark.parametrize("options", ["-n 0", "-n x", "-n 2 --seed 1 --seeds 2", "-n 2 --nodes 0"])
def test_options_that_are_not_allowed(options, capsys):
    with pytest.raises(SystemExit) as caught:
        command_line.main(["simulate", *options.split(), "app.py"])
    assert caught.value.code == 2
    assert "usage: python -m pencils simulate" in capsys.readouterr().err


def test_programs_that_cannot_run(tmp_path, mpirun):
    ran = command("-n", "3", "nothing.py", cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == "error: cannot open nothing.py: No such file or directory\n"
    assert "no program is given" in command("-n", "3").stderr
    ran = command("app.py", "-n", "3", cwd=tmp_path)
    assert ran.returncode == 2
    assert "it comes before the program: python -m pencils simulate -n 4 app.py" in ran.stderr
    ran = mpirun(2, "-m", "pencils", "simulate", "-n", 3, "-c", "print('no')")
    assert ran.returncode != 0
    assert "no\n" not in ran.stdout
    assert ran.stderr.count("error: simulated ranks are threads of one process") == 1
