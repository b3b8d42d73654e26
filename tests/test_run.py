"""``python -m pencils run``: what fails is printed once, and nothing waits for ever."""

import contextlib
import dataclasses
import dis
import os
import py_compile
import queue
import re
import socket
import sys
import textwrap
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import python

import pencils
from pencils.comm.mailbox import Mailbox, Receive
from pencils.tools.command_line import _parser
from pencils.tools.run import coordinator, report
from pencils.tools.run.coordinator import Channel, Member
from pencils.tools.run.report import CodePosition, RankEnding
from pencils.tools.run.watch import Watch
from simmpi.program import NoProgramError, execute

ROOT = Path(__file__).parents[1]
FIELD = "import pencils\npen = pencils.Pencil((8, 9))\nu = pencils.ones(pen)\nrank = pen.rank\n"
WORLD = "from mpi4py import MPI\ncomm = MPI.COMM_WORLD\nrank = comm.rank\n"


# Programs import it so that no verdict depends on the speed of a rank: no wait is too long before
# all ranks have been seen on their last lines, or have ended, and then every wait is.
LATE = """
import threading, time
from pathlib import Path
from mpi4py import MPI
from pencils.tools.run.watch import Watch

def settled():
    ended = sum(len(getattr(thread, "_endings", ())) for thread in threading.enumerate())
    return ended + len([*Path().glob("[0-9]")])

def waited(watch):
    place = watch.place()
    if place.line in LAST:
        Path(f"{MPI.COMM_WORLD.rank}").touch()
    return 1000.0 if place.waits_in and settled() == MPI.COMM_WORLD.size else 0.0

Watch.waited = waited

def wait_for_others():
    while settled() < MPI.COMM_WORLD.size - 1:
        time.sleep(0.01)
"""


@pytest.fixture
def program(mpirun, tmp_path):
    """Run a program on n ranks: ``program(n, text, *options)``; `last` has the numbers of lines."""

    def run(n, text, *options, timeout=60, last=()):
        lines = [f"app.py:{line}" for line in last]
        (tmp_path / "late.py").write_text(f"LAST = {lines}\n{LATE}")
        (tmp_path / "app.py").write_text(textwrap.dedent(text))
        args = "-m", "pencils", "run", *options, "app.py"
        return mpirun(n, *args, cwd=tmp_path, timeout=timeout)

    return run


def alone(*args, cwd=ROOT, **variables):
    """Run the program without mpiexec."""
    return python("-m", "pencils", "run", *args, cwd=cwd, **variables)


def messages(ran):
    """Return the lines on stderr, without what MPI libraries add to an Abort or an exit status."""
    text = re.sub(r"-{60,}\n.*?-{60,}\n", "", ran.stderr.replace("\0", ""), flags=re.DOTALL)
    return [line for line in text.splitlines() if line and "MPI_Abort" not in line]


def test_an_error_that_all_ranks_agreed_on_is_printed_once(program):
    ran = program(3, FIELD + "def f():\n    pencils.gather(u, root=rank)\nf()\n")
    lines = messages(ran)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert lines[0] == "pencils run: raised on all 3 ranks:"
    assert ran.stderr.count("Traceback") == 1
    assert len(re.findall("^  File ", ran.stderr, re.MULTILINE)) == 2
    assert 'app.py", line 6, in f' in ran.stderr
    assert "runpy" not in ran.stderr
    assert "Abort" not in ran.stderr
    assert lines[-1].startswith("pencils.errors.RankDisagreementError: ")


def test_an_error_of_one_rank_names_it_and_ends_the_job(program):
    text = """
    from mpi4py import MPI
    import late
    print("printed before", flush=False)
    if MPI.COMM_WORLD.rank == 1:
        late.wait_for_others()
        try:
            {}["key"]
        except KeyError as error:
            raise ValueError("only here") from error
    MPI.COMM_WORLD.barrier()
    """
    ran = program(3, text, "--timeout", 100, last=[11])
    assert ran.returncode != 0
    assert ran.stdout.count("printed before") == 3
    assert ran.stderr.startswith("pencils run: raised on rank 1 of 3:\n")
    assert ran.stderr.count("Traceback") == 2
    assert "KeyError: 'key'\n\nThe above exception was the direct cause" in ran.stderr
    assert "because rank 1 of 3 raised; the others:\n  ranks 0, 2 wait in " in ran.stderr
    assert "MPI.COMM_WORLD.barrier() at app.py:11" in ran.stderr


def test_a_collective_of_one_rank_is_told_with_the_places_of_the_others(program):
    text = f"import late\n{FIELD}u.sum()\nif rank == 0:\n    print(u.sum())\n"
    ran = program(3, text, "--timeout", 100, last=[8])
    assert ran.returncode != 0
    first, waits, done, *advice = messages(ran)
    assert first == "pencils run: the job was ended: a rank had waited for 100 s (--timeout):"
    found = re.fullmatch(
        r"  rank 0 waits in u.sum\(\) at app.py:8 \(collective number (\d+), Allgather\)", waits
    )
    assert done == f"  ranks 1, 2 have finished, after {int(found[1]) - 1} collectives"
    assert len(advice) == 2
    assert "if rank == 0: print(u.sum())" in advice[1]


# Waits are reported after 0.4 s; the file `told` then exists.
SOON = """
from pathlib import Path
from pencils.tools.command_line import main
from pencils.tools.run import coordinator, report

def tell(*args, **options):
    Path("told").touch()
    return hang(*args, **options)

coordinator.SILENCE = 0.4
hang, report.hang = report.hang, tell
main(["run", "app.py"])
"""


def test_ranks_that_wait_without_a_limit_are_told_of_once_and_go_on_waiting(mpirun, tmp_path):
    """Nothing is told while a rank computes."""
    text = """
    import threading, time
    from pathlib import Path

    if rank == 0:
        MPI.COMM_WORLD.recv(source=1)
    elif rank == 1:
        time.sleep(2)
        early = Path("told").exists()
        MPI.COMM_WORLD.send(None, 0)
        print(early)

    def make_up():
        while not Path("told").exists():
            time.sleep(0.01)
        u.sum()

    MPI.COMM_WORLD.barrier()
    if rank == 0:
        print(u.sum())
    else:
        threading.Thread(target=make_up).start()
    """
    program = f"from mpi4py import MPI\n{FIELD}{textwrap.dedent(text)}"
    (tmp_path / "app.py").write_text(program)
    ran = mpirun(3, "-c", SOON, cwd=tmp_path, timeout=60)
    assert (ran.returncode, sorted(ran.stdout.split())) == (0, ["72.0", "False"])
    first, waits, done, *advice = messages(ran)
    assert first == (
        "pencils run: no rank has computed for 0.4 s; the job goes on waiting (--timeout ends it):"
    )
    line = program.splitlines().index("    print(u.sum())") + 1
    found = rf"  rank 0 waits in u.sum\(\) at app.py:{line} \((collective number \d+, )?Allgather\)"
    assert re.fullmatch(found, waits), waits
    assert re.match("  ranks 1, 2 have finished", done)
    assert len(advice) == 2


def test_neither_work_nor_progress_is_a_wait(program):
    """The clock of the watch goes on from look to look, and between two looks a call has ended."""
    text = """
    import time
    from mpi4py import MPI
    import numpy as np
    import pencils
    from pencils.tools.run import watch

    comm = MPI.COMM_WORLD
    plan = pencils.HaloExchange(u := pencils.ones(pencils.Pencil((8, 9)), halo=1), check=False)
    value = np.zeros(1)
    requests = [comm.Send_init(value, dest=(comm.rank + 1) % comm.size)]
    requests += [comm.Recv_init(np.zeros(1), source=(comm.rank - 1) % comm.size)]
    now, looks, calls, does = 0.0, 0, 0, "nothing"
    waited = watch.Watch.waited

    def look(self):
        global now, looks
        before = calls
        while does == "calls" and calls == before:
            time.sleep(0.001)
        now += 0 if does == "nothing" else 0.6
        looks += 1
        return waited(self)

    watch.monotonic = lambda: now
    watch.Watch.waited = look

    def repeat(call):
        global calls, does
        does, enough = "calls", looks + 4
        while comm.allreduce(looks < enough):
            for _ in range(9):
                calls += 1
                call()
        does = "nothing"

    def start():
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)

    does, enough = "work", looks + 4
    while looks < enough:
        time.sleep(0.01)
    does = "nothing"
    repeat(comm.barrier)
    repeat(start)
    repeat(lambda: plan(u))
    comm.barrier()
    for request in requests:
        request.Free()
    print(type(comm.Split(0)).__name__, type(comm.Create_cart([comm.size])).__name__)
    """
    ran = program(2, text, "--timeout", 1)
    assert ran.stderr == ""
    assert ran.returncode == 0
    assert [ran.stdout.count(kind) for kind in ("Intracomm", "Cartcomm")] == [2, 2]


def test_calls_of_mpi4py_are_waits_and_computing_is_not(program):
    text = """
    import late
    from mpi4py import MPI
    import time
    comm = MPI.COMM_WORLD
    comm.barrier()
    if comm.rank == 0:
        comm.Irecv(bytearray(1), source=1).Wait()
    elif comm.rank == 1:
        while True:
            time.sleep(60)
    else:
        comm.Create_cart([1]) if comm.rank < 0 else comm.recv(
            source=0, tag=4)
    """
    ran = program(3, text, "--timeout", 100, last=(8, 11, 13))
    assert ran.returncode != 0
    lines = messages(ran)
    assert len(lines) > 1, ran
    call = "comm.Irecv(bytearray(1), source=1).Wait()"
    assert lines[1] == f"  rank 0 waits in {call} at app.py:8, after 1 collective"
    assert lines[2] == "  rank 1 computes in time.sleep(60) at app.py:11, after 1 collective"
    assert lines[3].startswith("  rank 2 waits in comm.recv( source=0, tag=4) at app.py:13")
    assert "Look for a message" in lines[4]
    assert "--timeout" in lines[-1]


def test_messages_of_exits_are_printed_and_nothing_is_aborted(program, mpirun, tmp_path):
    leave = "import sys\nsys.exit('nothing to do' if rank == 0 else 0 if rank == 1 else 7)\n"
    ran = program(3, WORLD + leave)
    assert ran.returncode in {1, 7}
    assert ran.stdout == ""
    assert messages(ran) == ["nothing to do"]
    ran = mpirun(3, "-m", "pencils", "run", "none.py", cwd=tmp_path)
    assert ran.returncode == 2
    assert messages(ran) == ["error: cannot open none.py: No such file or directory"]


def test_ranks_of_other_hosts_connect_and_those_that_cannot_do_without(mpirun, tmp_path):
    text = """
    import socket
    from pencils.tools.run import coordinator
    from pencils.tools.run.coordinator import join

    def leave(channel):
        channel.send({"ended": {"kind": "finished"}})
        assert channel.receive() == [{"leave": 0}]

    leave(join(None, one_host=False))

    def refuse(*args):
        raise OSError

    socket.create_connection = refuse
    coordinator._CONNECT = 0.2
    leave(join(None))
    print("left")
    """
    (tmp_path / "app.py").write_text(textwrap.dedent(text))
    ran = mpirun(2, "-m", "mpi4py", "app.py", cwd=tmp_path, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("left") == 2  # lines of two processes may mix


SHOW = """
import os, sys, pickle
class Thing: pass
def f(x: int): pass
main = sys.modules["__main__"]
print(sys.argv, sys.path[0], __name__, getattr(main, "__file__", None), main.__dict__ is globals())
print(pickle.loads(pickle.dumps(Thing())).__class__ is Thing, __spec__ and __spec__.name)
print(f.__annotations__)
"""
DRIVER = """
import os, sys
from simmpi.program import execute
sys.path[0] = os.getcwd()  # as python -m has it
for kind, name in eval(sys.argv.pop()):
    sys.stdout.flush()
    if os.fork() == 0:
        execute(kind, name, "--x", "y")
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


def test_a_program_sees_what_it_sees_without_the_runner(tmp_path):
    (tmp_path / "package").mkdir()
    for name in ("app.py", "package/__main__.py", "package/__init__.py"):
        (tmp_path / name).write_text(SHOW if "init" not in name else "")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link.py").symlink_to(tmp_path / "app.py")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.write(tmp_path / "app.py", "__main__.py")
    py_compile.compile(tmp_path / "app.py", tmp_path / "app.pyc")
    files = "app.py", "other/link.py", "package", "app.zip", "app.pyc"
    given = [("file", name) for name in files]
    given += [("module", "app"), ("module", "package"), ("code", SHOW)]
    flags = {"file": [], "module": ["-m"], "code": ["-c"]}
    plain = [python(*flags[kind], name, "--x", "y", cwd=tmp_path).stdout for kind, name in given]
    ran = python("-c", DRIVER, repr(given), cwd=tmp_path)
    assert ran.stderr == ""
    assert ran.stdout == "".join(plain)
    assert len(plain[0].splitlines()) == 3


def test_one_process_needs_no_mpiexec():
    text = """if True:
        import pencils, warnings
        u = pencils.zeros(pencils.Pencil(4, periodic=True), halo=1)
        u[...] = 1
        print(u.padded)
        warnings.warn("careful")
        raise KeyboardInterrupt"""
    ran = alone("--check", "-c", text)
    assert ran.returncode == 130
    assert ran.stdout == "[nan  1.  1.  1.  1. nan]\n"  # checks are on
    warning, _, first, place, *_, last = ran.stderr.splitlines()
    assert "careful" in warning
    assert first.startswith("Traceback")
    assert place == '  File "<string>", line 7, in <module>'
    assert last == "KeyboardInterrupt"
    ran = alone("-c", "from mpi4py import MPI; MPI.COMM_SELF.recv()", PENCILS_TIMEOUT="0.5")
    assert ran.returncode == 1
    assert "had waited for 0.5 s" in ran.stderr
    assert "rank 0 waits in MPI.COMM_SELF.recv() at <string>:1" in ran.stderr


def parsed(*args):
    return _parser(with_demo=False).parse_args(["run", *args])


REST = ["--timeout", "4", "-m", "--", "-h", "--check", "-c", "x"]


@pytest.mark.parametrize(
    ("args", "kind", "program"),
    [
        (["app", *REST], "file", ["app", *REST]),
        (["-m", "app", *REST], "module", ["app", *REST]),
        (["-c", "app", *REST], "code", ["app", *REST]),
        (["-mapp", "x", "--check"], "module", ["app", "x", "--check"]),
        (["-cpass", "x"], "code", ["pass", "x"]),
        (["-c", "-1", "-x"], "code", ["-1", "-x"]),
        (["-c", "--check"], "code", ["--check"]),
        (["--all-frames", "app.py", "-m"], "file", ["app.py", "-m"]),
    ],
)
def test_what_comes_after_the_program_is_its_own(args, kind, program):
    found = parsed("--timeout", "2.5", *args)
    assert (found.kind, found.program) == (kind, program)
    assert (found.timeout, found.check) == (2.5, False)
    assert found.all_frames == (args[0] == "--all-frames")


@pytest.mark.parametrize(
    ("args", "limit", "complaint"),
    [
        (["--timeout", "0", "app.py"], "1", "positive"),
        (["--timeout", "soon", "app.py"], "1", "positive"),
        (["--time", "3", "app.py"], "1", "no program is given|unrecognized"),
        (["--check"], "1", "no program is given; allowed are"),
        (["-m"], "1", "no program is given; allowed are"),
        (["-n", "3", "app.py"], "1", "mpiexec -n 3 python -m pencils run app.py"),
        (["app.py"], "-3", "PENCILS_TIMEOUT"),
    ],
)
def test_wrong_usage_is_refused(capsys, monkeypatch, args, limit, complaint):
    monkeypatch.setenv("PENCILS_TIMEOUT", limit)
    with pytest.raises(SystemExit) as caught:
        parsed(*args)
    assert caught.value.code == 2
    assert re.search(complaint, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("module", "none"),
        ("module", "json.none"),
        ("module", "pencils.layout"),
        ("file", "none.py"),
        ("file", str(ROOT / "docs")),
    ],
)
def test_what_cannot_be_run_is_no_error_of_the_program(monkeypatch, kind, name):
    monkeypatch.setattr(sys, "argv", [])
    with pytest.raises(NoProgramError, match=name):
        execute(kind, name)


def ending(call, **options):
    """Return how a rank ends in which this call ends."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - SystemExit, too
        call()
    return RankEnding.of(caught.value, **options)


def test_an_error_of_one_rank_that_all_raise_is_told_once():
    def mistake_of_one_rank():
        try:
            pencils.zeros(pencils.Pencil(4, MPI.COMM_SELF), dtype=object)
        except TypeError as error:  # it has no frame of the program, and the same words
            error.__traceback__ = None
            raise TypeError(f"rank 2: {error}") from error

    def file_missing_on_one_rank():
        try:
            pencils.load("missing.h5", pencils.Pencil(4, MPI.COMM_SELF))
        except OSError as error:
            error.__traceback__ = error.__traceback__.tb_next  # without the frame of the program
            raise OSError(error.errno, f"rank 2: {error.strerror}") from error

    for failing, words in (
        (mistake_of_one_rank, "Python objects"),
        (file_missing_on_one_rank, "cannot load"),
    ):
        found = ending(failing)
        assert found.text.count(words) == found.text.count("Error: ") == 1
        assert "direct cause" not in found.text
        assert "contextlib" not in found.text


def test_frames_of_an_import_are_hidden(tmp_path, monkeypatch):
    (tmp_path / "broken_here.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = ending(lambda: import_module("broken_here")).text
    assert text.count("broken_here.py") == 1
    assert "importlib" not in text


def test_errors_are_told_once_without_frames_of_the_library():
    def mistake():
        pencils.zeros(pencils.Pencil(4, MPI.COMM_SELF, grid=5))

    few, many = (ending(mistake, full=full) for full in (False, True))
    assert few.text.count("  File ") == few.frames == 2
    assert many.text.count("  File ") > 2
    assert few.title == many.title
    within = RankEnding.of(TypeError("no frame of the user's"))
    assert within.text == "TypeError: no frame of the user's\n"

    found = ending(lambda: compile("x = 1\ndef f(:\n", "app.py", "exec"))
    assert found.text.splitlines()[-1] == "SyntaxError: invalid syntax"

    def group():
        try:
            {}["first"]
        except KeyError as error:
            several = ExceptionGroup("several", [ValueError("a"), OSError(2, "b")])
            raise several from error

    found = ending(group)
    for text in ("KeyError: 'first'", "direct cause", "several (", "ValueError: a", "Errno 2"):
        assert found.text.count(text) == 1

    class BrokenError(Exception):
        def __str__(self):
            raise RuntimeError

    def broken():
        raise BrokenError

    assert "BrokenError" in ending(broken).text
    for code, *expected in (
        (None, "finished", 0, ""),
        (0, "finished", 0, ""),
        (3, "left", 3, ""),
        (256, "left", 1, ""),
        ("no", "left", 1, "no\n"),
        (("a", 1), "left", 1, "('a', 1)\n"),
    ):
        found = ending(lambda code=code: sys.exit(code))
        assert [found.kind, found.status, found.text] == expected


def raised(title, **others):
    return RankEnding("raised", 1, title, f"{title}\n", **others)


@pytest.fixture
def job(monkeypatch, capfd):
    """Play ranks that tell a coordinator of themselves: ``job(size, endings, places)``."""
    monkeypatch.setattr(coordinator, "PATIENCE", 0.1)
    monkeypatch.setattr(coordinator, "_ANSWERS", 0.1)
    monkeypatch.setattr(coordinator, "_END", 0)
    aborted = []

    def abort(status):
        aborted.append(status)
        sys.exit()

    monkeypatch.setattr(coordinator, "abort", abort)

    def play(size, endings, places=(), stuck=(), members=None):
        pairs = [tuple(map(Channel, socket.socketpair())) for _ in range(members or size)]
        thread = coordinator.Coordinator({r: p[1] for r, p in enumerate(pairs)}, size, 3.0)
        for rank, how in dict(endings).items():
            if how is None:
                pairs[rank][0].close()
            else:
                pairs[rank][0].send({"ended": dataclasses.asdict(how)})
        for rank, place in dict(places).items():
            pairs[rank][0].send({"place": dataclasses.asdict(place), "stuck": rank in stuck})
        with contextlib.suppress(SystemExit):
            thread.run()
        told = {}
        for rank, (here, there) in enumerate(pairs):
            there.close()
            if here.fileno() >= 0:
                told |= dict.fromkeys([rank], here.receive()[-1:])
            here.close()
        return capfd.readouterr().err, aborted or told

    return play


DONE = RankEnding("finished", collectives=6)
WORKS = CodePosition("app.py:3", "work()", collectives=1)
WAITS = CodePosition("app.py:7", "u.sum()", "Allgather", collective=True, collectives=7)


def leave(size, *statuses):
    """Tell each rank to leave, with this status or one of its own."""
    statuses = statuses * size if len(statuses) == 1 else statuses
    return {rank: [{"leave": status}] for rank, status in enumerate(statuses)}


SAME = raised("KeyError: 1")
EXIT = RankEnding("left", 3, "exit status 3")
ENDED = """\
pencils run: the job was ended, because rank 1 of 4 left with exit status 3; the others:
  rank 0 waits in u.sum() at app.py:7 (collective number 7, Allgather)
  rank 2 has finished, after 6 collectives
  rank 3 computes in work() at app.py:3, after 1 collective
"""
STUCK = """\
*had waited for 3 s (--timeout):
  rank 0 waits in u.sum() at app.py:7*
  ranks 1, 2 have finished, after 6 collectives
*"""
# Ranks, how they end, where others are, which are stuck; what is printed, and ranks are told.
JOBS = {
    "error of all ranks": (
        *(3, {0: SAME, 1: raised("KeyError: 1", frames=3), 2: SAME}, {}, ()),
        "pencils run: raised on all 3 ranks:\nKeyError: 1\n",
        leave(3, 1),
    ),
    "errors of some ranks": (
        *(4, {0: raised("A"), 1: DONE, 2: raised("B"), 3: raised("A")}, {}, ()),
        "pencils run: raised on ranks 0, 3 of 4:\nA\n\npencils run: raised on rank 2 of 4:\nB\n",
        leave(4, 1, 0, 1, 1),
    ),
    "many errors": (
        *(9, {rank: raised(f"error {rank}") for rank in range(9)}, {}, ()),
        "".join(f"pencils run: raised on rank {n} of 9:\nerror {n}\n\n" for n in range(4))
        + "pencils run: 5 other errors on ranks 4-8\n",
        leave(9, 1),
    ),
    "exit": (
        *(4, {1: EXIT, 2: DONE}, {0: WAITS, 3: WORKS}, ()),
        ENDED,
        {1: [{"abort": 3}]},
    ),
    "wait": (
        *(3, {1: DONE, 2: DONE}, {0: WAITS}, {0}),
        STUCK,
        [1],
    ),
    "silent": (
        *(3, {1: DONE}, {0: WAITS}, {0}),
        "*  rank 2 did not answer\nA rank that does not answer may have been stopped*",
        [1],
    ),
    "gone": (
        *(4, {0: raised("A"), 1: None}, {}, ()),
        "*rank 1 ended without an exit that Python can report*ranks 2, 3 did not answer*",
        {0: [{"abort": 1}]},
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_jobs_end_as_their_ranks_do(job, monkeypatch, name):
    size, endings, places, stuck, text, expected = JOBS[name]
    if name == "silent":  # they have as long as the limit of waits
        monkeypatch.setattr(coordinator, "_ANSWERS", 60.0)
        monkeypatch.setattr(coordinator, "_SOON", 0.1)
    printed, told = job(size, endings, places, stuck)
    if "*" in text:
        assert fnmatchcase(printed, text.replace("[", "[[]")), printed
    else:
        assert printed == text
    exact = isinstance(expected, list)
    assert told == expected if exact else expected.items() <= told.items()


def test_a_rank_that_hears_of_no_other_ends_the_job_with_an_error_only(job):
    assert job(4, {0: DONE}, members=1) == ("", {0: [{"leave": 0}]})
    printed, told = job(4, {0: raised("A")}, members=1)
    assert printed.startswith("pencils run: raised on rank 0 of 4:\nA\n")
    assert told[0] == [{"abort": 1}]
    assert report.ranks([0]) == "rank 0"
    assert report.ranks([5, 1, 0, 2, 7, 8]) == "ranks 0-2, 5, 7, 8"


def test_a_rank_that_waits_ends_the_job_if_the_coordinator_does_not(monkeypatch, capfd):
    ended = threading.Event()

    class Waiting:
        def waited(self):
            return 9.0

        def place(self):
            return WAITS

    def abort(status):
        assert status == 1
        ended.set()

    for name, value in (("PATIENCE", 0), ("_SOON", 0.1), ("_GRACE", 0.1), ("abort", abort)):
        monkeypatch.setattr(coordinator, name, value)
    monkeypatch.setattr(coordinator.threading, "Timer", lambda *_: threading.Thread())
    here, there = map(Channel, socket.socketpair())
    Member(here, Waiting(), 0.1)._rank = 2
    assert ended.wait(20)
    (message,) = there.receive()
    assert message["stuck"]
    assert capfd.readouterr().err.splitlines() == [
        "pencils run: the job was ended: a rank had waited for 0.1 s (--timeout):",
        "  rank 0 did not answer",
        "  rank 2 waits in u.sum() at app.py:7 (collective number 7, Allgather)",
        "A rank that does not answer may have been stopped, or its host was cut off.",
    ]
    here.close()
    there.close()


def test_ranks_are_asked_before_it_is_told_that_they_wait(monkeypatch):
    told = queue.SimpleQueue()
    monkeypatch.setattr(coordinator, "SILENCE", 0.05)
    monkeypatch.setattr(coordinator, "_print", told.put)
    pairs = [tuple(map(Channel, socket.socketpair())) for _ in range(2)]
    first, second = [here for here, _ in pairs]
    thread = coordinator.Coordinator({r: p[1] for r, p in enumerate(pairs)}, 2, None)

    def say(channel, *, stuck):
        place = dataclasses.asdict(WAITS if stuck else WORKS)
        channel.send({"place": place, "stuck": stuck, "waited": 9.0 * stuck})

    thread.start()
    say(first, stuck=True)
    say(second, stuck=True)
    assert [first.receive(), second.receive()] == [[{"where": True}]] * 2
    say(second, stuck=False)  # it computes meanwhile
    say(first, stuck=True)
    second.send({"ended": dataclasses.asdict(DONE)})
    assert first.receive() == [{"where": True}]
    assert told.empty()
    say(first, stuck=True)
    assert "no rank has computed for 0.05 s" in told.get(timeout=60)
    first.send({"ended": dataclasses.asdict(DONE)})
    assert [first.receive(), second.receive()] == [[{"leave": 0}]] * 2
    thread.join()
    for channel in sum(pairs, ()):
        channel.close()


def test_a_forked_process_is_no_rank(monkeypatch):
    here, there = map(Channel, socket.socketpair())
    member = Member(here, Watch(None), None)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        assert member.end(RankEnding("left", 5, "exit status 5")) == 5
    there.send({"leave": 0})
    assert member.end(DONE) == 0
    assert [message["ended"]["kind"] for message in there.receive()] == ["finished"]
    here.close()
    there.close()


def test_a_wait_for_a_thread_of_the_library_is_a_wait_for_others():
    watch, found = Watch(None), []

    def look():
        while not found or not found[-1].waits_in:
            found.append(watch.place())
        MPI.COMM_SELF.Send(bytes(1), 0)

    request = MPI.COMM_SELF.Irecv(bytearray(1), 0)
    looking = threading.Thread(target=look)
    with ThreadPoolExecutor(1, "pencils") as worker:
        future = worker.submit(lambda: request.Wait())  # noqa: PLW0108 - a frame to look at
        looking.start()
        future.result()
        looking.join()
    assert found[-1].waits_in == "Wait"
    assert found[-1].call == "future.result()"


def test_polls_of_the_library_are_one_wait_each():
    watch, box = Watch(None), Mailbox(MPI.COMM_SELF)

    def look():
        while watch.waited() == 0:
            pass
        first = watch._token
        box.send(np.ones(1), 0, 5)
        while watch._token == first:
            watch.waited()
        box.send(np.ones(1), 0, 5)

    looking = threading.Thread(target=look)
    box.expect(Receive(None, np.zeros(1), 0, 5))
    looking.start()
    box.wait()
    box.expect(Receive(None, np.zeros(1), 0, 5))
    box.wait()
    looking.join()
    box.close()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("comm.recv(source=0)", "recv"),
        ("comm.Barrier()", "Barrier"),
        ("MPI.Request.Waitall([])", "Waitall"),
        ("[comm][0].bcast(1)", "bcast"),
        ("line.recv(1)", ""),
        ("os.wait()", ""),
        ("time.sleep(1)", ""),
    ],
)
def test_only_functions_of_mpi_are_waits(call, name):
    """A name alone decides only where the object cannot be found: `[comm][0]`."""
    names = {"comm": MPI.COMM_SELF, "MPI": MPI, "os": os, "time": time}
    code = compile(call, "app.py", "eval")
    calls = [each for each in dis.get_instructions(code) if each.opname.startswith("CALL")]
    with contextlib.closing(socket.socket()) as line:
        frame = SimpleNamespace(
            f_code=code,
            f_globals=names | {"line": line},
            f_lasti=calls[-1].offset,
            f_lineno=1,
            f_back=None,
        )
        found = Watch(None)._wait_of(frame, main=False)
    assert (found[1] if found else "") == name
