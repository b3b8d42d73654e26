"""Which tests run where, what they share, and how several ranks report as one.

An unmarked test needs one process. A test marked ``parallel([1, 2, 3])``, by decorator or by
``pytestmark``, runs on those numbers of ranks. A run makes those tests that its number of ranks
allows, and nothing else: ``python -m pytest`` all for one process, and
``mpiexec -n 3 python -m mpi4py -m pytest`` those for three ranks. There rank 0 writes the report, a
failure on any rank is announced the moment it happens (the others may be about to hang), and all
ranks leave with the worst exit status of any.

``--all`` runs more of the same: see ``tiers.py``. Tests marked ``large`` take gigabytes of memory
and disk, and run only with ``--large``.
"""

import atexit
import contextlib
import faulthandler
import functools
import gc
import importlib
import io
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

# Before NumPy and MPI start: ranks that share cores must not wait busily for each other. MPICH
# gives cores away by itself. To sleep as well (MPIR_CVAR_ENABLE_HEAVY_YIELD) makes collectives of 3
# to 6 ranks on 2 cores ten times as slow, and pays only where other programs take the cores.
for _name in ("OMPI_MCA_mpi_yield_when_idle", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import tiers  # noqa: E402
from mpi4py import MPI  # noqa: E402

import pencils  # noqa: E402

WORLD = MPI.COMM_WORLD.Dup()  # never mixes with what the tests send


def _import_all():
    """Import what rank 0 alone would import later: Hypothesis draws constants of loaded modules."""
    for module in pkgutil.walk_packages(pencils.__path__, "pencils."):
        with contextlib.suppress(ImportError):  # an optional library is missing
            importlib.import_module(module.name)


def _separate_temporary_directories():
    """Give each rank its own root for ``tmp_path``: pytest removes old ones, and would race."""
    root = tempfile.mkdtemp(prefix="pencils-")
    os.environ["PYTEST_DEBUG_TEMPROOT"] = root
    atexit.register(shutil.rmtree, root, ignore_errors=True)


if WORLD.size > 1:
    _import_all()
    _separate_temporary_directories()


@pytest.fixture(scope="session")
def comm():
    """All ranks of the job."""
    return MPI.COMM_WORLD


@pytest.fixture
def mpi_tmp_path():
    """Give all ranks one directory, gone after the test; ``tmp_path`` differs on every rank."""
    path = WORLD.bcast(tempfile.mkdtemp(prefix="pencils-") if WORLD.rank == 0 else None)
    yield Path(path)
    WORLD.barrier()
    if WORLD.rank == 0:
        shutil.rmtree(path)


def mpiexec():
    """Find the program beside this Python, or else on the path: no environment need be active."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec") or "mpiexec"


@pytest.fixture(scope="session")
def mpirun():
    """Run ``python *args`` on n ranks, from a test that is itself alone: ``mpirun(n, *args)``."""

    def run(n, *args, cwd=None, timeout=120):
        return subprocess.run(
            [mpiexec(), "-n", str(n), sys.executable, *map(str, args)],
            cwd=cwd,
            # Without what MPI_Init added behind Python's back; other tests run at the same time.
            env=os.environ | {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    return run


def pytest_addoption(parser):
    """Let more be asked for than every behaviour once."""
    parser.addoption("--all", action="store_true", help="run every combination, and long tests")
    parser.addoption("--large", action="store_true", help="run tests that take gigabytes, too")


def choose_examples():
    """Set how Hypothesis draws, on one process and on several."""
    examples = tiers.up_to(100, 25)
    settings.register_profile("pencils", deadline=None, max_examples=examples)
    # Every rank has to draw the same examples, whatever its speed and its history. No shrinking: it
    # would run the body once more on the ranks that failed, and hang.
    settings.register_profile(
        "pencils-mpi",
        deadline=None,
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("pencils-mpi" if WORLD.size > 1 else "pencils")


def ranks_of(marks):
    """Give the numbers of ranks that marks, by name, allow."""
    if "parallel" not in marks:
        return (1,)
    (ranks,) = marks["parallel"].args
    return (ranks,) if isinstance(ranks, int) else tuple(ranks)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """Make no test that does not run here; most tests run on several numbers of ranks."""
    if not collector.istestfunction(obj, name):
        return None
    marks = {mark.name: mark for mark in reversed(list(collector.iter_markers()))}
    marks |= {mark.name: mark for mark in getattr(obj, "pytestmark", ())}
    ranks = ranks_of(marks)
    elsewhere.update(ranks)
    if WORLD.size not in ranks or ("thorough" in marks and not tiers.ALL):
        return []
    if hasattr(obj, "hypothesis"):
        give_each_example_its_time(obj, collector.config)
    return None


elsewhere: set[int] = set()  # numbers of ranks on which tests of this run can run, too


def give_each_example_its_time(test, config):
    """Start the clocks anew with each example: the failing one is shown after it has shrunk."""
    inner = test.hypothesis.inner_test

    @functools.wraps(inner)
    def timed(*args, **kwargs):
        start_clocks(config)
        return inner(*args, **kwargs)

    test.hypothesis.inner_test = timed


def pytest_collection_modifyitems(config, items):
    """Leave out most combinations of parameters without ``--all``, and skip large tests."""
    chosen = items if tiers.ALL else tiers.thin(items)
    if len(chosen) < len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen
    for item in items:
        if item.get_closest_marker("large") and not config.getoption("large"):
            item.add_marker(pytest.mark.skip(reason="needs --large"))


def pytest_collection_finish():
    """Spare Python to look through thousands of tests each time that it looks for garbage."""
    gc.collect()
    gc.freeze()


STDERR = pytest.StashKey[int]()  # a file that no test captures


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """Choose what runs, and keep the reports of all ranks but 0 from the terminal."""
    tiers.ALL = config.getoption("all")
    choose_examples()
    config.stash[STDERR] = os.dup(sys.__stderr__.fileno())
    if WORLD.size > 1:
        faulthandler.register(signal.SIGALRM, config.stash[STDERR], all_threads=False)
    if WORLD.rank > 0:
        config.pluginmanager.unregister(name="terminalreporter")
        silent = pytest.TerminalReporter(config, io.StringIO())
        config.pluginmanager.register(silent, "terminalreporter")


def start_clocks(config):
    """Let this process end with a traceback when the time for a test is over.

    The first rank to do so ends the job, and mpiexec kills the others before they can say where
    they hang: shortly before, every rank dumps its traceback.
    """
    timeout = float(config.getini("faulthandler_timeout"))
    if timeout <= 0:
        return
    if WORLD.size > 1:
        signal.setitimer(signal.ITIMER_REAL, max(timeout - 5, timeout / 2))
    faulthandler.dump_traceback_later(
        timeout, file=config.stash[STDERR], exit=config.getini("faulthandler_exit_on_timeout")
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Let a test that hangs on any rank end the job."""
    start_clocks(item.config)
    result = yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown():
    """Wait for each other after a test: what one leaves unfinished must not disturb the next."""
    if WORLD.size > 1:
        WORLD.barrier()


_failures: dict[str, str] = {}


def pytest_runtest_logreport(report):
    """Announce a failure on this rank at once: its traceback may never reach the summary."""
    if WORLD.size > 1 and report.failed:
        _failures[report.nodeid] = text = report.longreprtext
        crash = getattr(report.longrepr, "reprcrash", None)
        print(f"\n[rank {WORLD.rank}] FAILED {report.nodeid}: {crash or text}", file=sys.stderr)


pytest_collectreport = pytest_runtest_logreport


def pytest_internalerror(excrepr):
    """Show an error of pytest itself, on whatever rank."""
    if WORLD.rank > 0:
        print(f"[rank {WORLD.rank}] {excrepr}", file=sys.stderr)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    """Show tracebacks that rank 0 does not have, and agree on the worst exit status."""
    result = yield
    if WORLD.size > 1:
        everyone = WORLD.gather((int(session.exitstatus), _failures))
        if everyone:
            show_failures_elsewhere([failures for _, failures in everyone])
            session.exitstatus = max(status for status, _ in everyone)
            sys.stdout.flush()
        session.exitstatus = WORLD.bcast(session.exitstatus)
    return result


def pytest_terminal_summary(terminalreporter, config):
    """Say how the tests that have just run on one process run on several, too."""
    others = sorted(elsewhere - {WORLD.size})
    if WORLD.size == 1 and others:
        ranks = 3 if 3 in others else others[0]
        pytest_here = [mpiexec(), "-n", ranks, sys.executable, "-m mpi4py -m pytest"]
        command = " ".join(map(str, [*pytest_here, *config.invocation_params.args]))
        terminalreporter.write_line(f"On {', '.join(map(str, others))} ranks, too: {command}")


def show_failures_elsewhere(failures):
    """Print, for each test that failed on some rank but not on rank 0, the first traceback."""
    for nodeid in dict.fromkeys(nodeid for those in failures[1:] for nodeid in those):
        ranks = [rank for rank, those in enumerate(failures) if nodeid in those]
        print(f"\n=== {nodeid} failed on ranks {ranks}")
        if ranks[0] > 0:
            print(failures[ranks[0]][nodeid])
