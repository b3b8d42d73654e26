"""Which tests run on how many ranks, shared fixtures, and one report of several ranks.

A test without mark needs one process. A test marked ``parallel([1, 2, 3])``, by decorator or by
``pytestmark``, runs on those numbers of ranks. Only tests for the number of ranks of a run are
collected: ``python -m pytest`` runs the tests for one process, and
``mpiexec -n 3 python -m mpi4py -m pytest`` those for three ranks.
``python -m pytest --simulate 16`` runs them on simulated ranks (`simmpi.pytest_plugin`), but for
those marked ``mpiexec("reason")``, which measure or stop a process. Inside mpiexec on several
ranks, rank 0 writes the report. A failure on any rank is printed at once, because other ranks may
hang afterwards. All ranks exit with the highest exit status of any.

``--all`` runs more cases, ``--rest`` only these, ``--part`` fewer: see ``tiers.py``. Tests marked
``large`` need gigabytes of memory and disk, and run with ``--large`` only.
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

# Set before NumPy and MPI start: ranks that share cores must yield them while they wait. MPICH does
# this by default. If waiting ranks also sleep (MPIR_CVAR_ENABLE_HEAVY_YIELD), collectives of 3 to 6
# ranks on 2 cores take ten times as long; this is useful only if other programs use the cores.
for _name in ("OMPI_MCA_mpi_yield_when_idle", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# Compiled functions of one run are there in the next one.
os.environ.setdefault("PENCILS_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "c"))

import tiers  # noqa: E402
from mpi4py import MPI  # noqa: E402
from mpi_helpers import on_nodes  # noqa: E402

import pencils  # noqa: E402
import simmpi  # noqa: E402
from simmpi.pytest_plugin.marks import ranks_of, runs_on  # noqa: E402
from simmpi.world import active  # noqa: E402

RANKS = MPI.COMM_WORLD.size
SIMULATED = active() is not None
PROCESSES = 1 if SIMULATED else RANKS
# Its messages cannot match those of tests. Simulated ranks leave none.
WORLD = MPI.COMM_WORLD if SIMULATED else MPI.COMM_WORLD.Dup()


def _import_all():
    """Import all modules on all ranks: Hypothesis draws constants from the loaded modules."""
    for package in (pencils, simmpi):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with contextlib.suppress(ImportError):  # an optional library is missing
                importlib.import_module(module.name)


def _separate_temporary_directories():
    """Set another root for ``tmp_path`` on each rank: pytest on other ranks removes old folders."""
    root = tempfile.mkdtemp(prefix="pencils-")
    os.environ["PYTEST_DEBUG_TEMPROOT"] = root
    atexit.register(shutil.rmtree, root, ignore_errors=True)


if not SIMULATED:
    # It keeps names of MPI: those of processes, though the first test that imports it simulates.
    with contextlib.suppress(ImportError):
        import mpi4py_fft  # noqa: F401
if PROCESSES > 1:
    _import_all()
    _separate_temporary_directories()


@pytest.fixture(scope="module")
def comm(request):
    """Return the communicator of all ranks; its parameter, if any, divides their nodes."""
    return on_nodes(getattr(request, "param", "real nodes"))


@pytest.fixture
def mpi_tmp_path():
    """Make one directory for all ranks, removed after the test; ``tmp_path`` differs by rank."""
    path = WORLD.bcast(tempfile.mkdtemp(prefix="pencils-") if WORLD.rank == 0 else None)
    yield Path(path)
    WORLD.barrier()
    if WORLD.rank == 0:
        shutil.rmtree(path)


def mpiexec():
    """Return the path of mpiexec: next to this Python, or else on the search path."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec") or "mpiexec"


@pytest.fixture(scope="session")
def mpirun():
    """Run ``python *args`` on n ranks, from a test on one process: ``mpirun(n, *args)``."""

    def run(n, *args, cwd=None, timeout=120):
        return subprocess.run(
            [mpiexec(), "-n", str(n), sys.executable, *map(str, args)],
            cwd=cwd,
            # Python's copy of the environment lacks what MPI_Init has added. Other tests may run at
            # the same time, so that waiting ranks sleep.
            env=os.environ | {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    return run


def pytest_addoption(parser):
    """Add the options ``--all``, ``--rest``, ``--part`` and ``--large``."""
    parser.addoption("--all", action="store_true", help="run every combination, and long tests")
    parser.addoption("--rest", action="store_true", help="run only the cases that --all adds")
    parts = ["few", "others", "each"]
    parser.addoption("--part", choices=parts, help="run a part of the cases")
    parser.addoption("--large", action="store_true", help="also run tests that need gigabytes")


def choose_examples():
    """Configure Hypothesis for one process and for several."""
    examples = tiers.up_to(100, 25)
    settings.register_profile("pencils", deadline=None, max_examples=examples)
    # All ranks must draw the same examples, whatever their speed and history. No shrinking: it
    # would run the test again on the ranks that failed only, and hang.
    settings.register_profile(
        "pencils-mpi",
        deadline=None,
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile(
        "pencils-simulated",
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("pencils-mpi" if PROCESSES > 1 else "pencils")


def runs_here(marks):
    """Whether a test with these marks, given by name, is for this run."""
    mark = marks.get("parallel")
    ranks = (1,) if mark is None else ranks_of(mark)
    elsewhere.update(ranks)
    return runs_on(mark, RANKS) if SIMULATED else RANKS in ranks


def pytest_ignore_collect(collection_path):
    """On several ranks, import no module that has tests for one process only."""
    if RANKS == 1 or not collection_path.match("test_*.py"):
        return None
    return "parallel(" not in collection_path.read_text() or None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """Collect no tests for other numbers of ranks."""
    if not collector.istestfunction(obj, name):
        return None
    marks = {mark.name: mark for mark in reversed(list(collector.iter_markers()))}
    marks |= {mark.name: mark for mark in getattr(obj, "pytestmark", ())}
    if not runs_here(marks):
        return []
    if hasattr(obj, "hypothesis"):
        give_each_example_its_time(obj, collector.config)
    return None


elsewhere: set[int] = set()  # numbers of ranks on which tests of this run can run, too


def give_each_example_its_time(test, config):
    """Restart the time limit for each example, so that a failing one can be shrunk."""
    inner = test.hypothesis.inner_test

    @functools.wraps(inner)
    def timed(*args, **kwargs):
        start_clocks(config)
        return inner(*args, **kwargs)

    test.hypothesis.inner_test = timed


def pytest_collection_modifyitems(config, items):
    """Deselect the cases that other runs have, and skip large tests."""
    chosen = tiers.chosen(items)
    if len(chosen) < len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen
    for item in items:
        if item.get_closest_marker("large") and not config.getoption("large"):
            item.add_marker(pytest.mark.skip(reason="needs --large"))


def pytest_collection_finish():
    """Exclude thousands of tests from each garbage collection."""
    exclude_what_is_there()


def exclude_what_is_there():
    """Exclude from later garbage collections what lives now: all tests, and their reports.

    What was excluded before stays so, even if it becomes garbage: to look through all tests again
    takes half a second.
    """
    gc.collect()
    gc.freeze()


STDERR = pytest.StashKey[int]()  # a file descriptor that pytest does not capture


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """Apply the options; on ranks other than 0, hide the report."""
    tiers.REST = config.getoption("rest")
    tiers.ALL = config.getoption("all") or tiers.REST
    tiers.PART = config.getoption("part")
    tiers.SEED = config.getoption("simmpi_seed", None) or 0
    choose_examples()
    config.stash[STDERR] = os.dup(sys.__stderr__.fileno())
    if PROCESSES > 1:
        faulthandler.register(signal.SIGALRM, config.stash[STDERR], all_threads=False)
    if WORLD.rank > 0:
        config.pluginmanager.unregister(name="terminalreporter")
        silent = pytest.TerminalReporter(config, io.StringIO())
        config.pluginmanager.register(silent, "terminalreporter")


def start_clocks(config):
    """Set the time limit of a test, after which this process exits with a traceback.

    When the first rank exits, mpiexec kills the others. So that their tracebacks are known, every
    rank prints its own one shortly before.
    """
    timeout = float(config.getini("faulthandler_timeout"))
    if timeout <= 0:
        return
    if PROCESSES > 1:
        signal.setitimer(signal.ITIMER_REAL, max(timeout - 5, timeout / 2))
    faulthandler.dump_traceback_later(
        timeout, file=config.stash[STDERR], exit=config.getini("faulthandler_exit_on_timeout")
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """End the job if a test hangs on any rank. After a module, exclude its reports from garbage."""
    start_clocks(item.config)
    result = yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    if nextitem is not None and nextitem.path != item.path:
        exclude_what_is_there()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown():
    """Wait for all ranks after a test, so that unfinished work cannot disturb the next test."""
    if PROCESSES > 1:
        WORLD.barrier()


_failures: dict[str, str] = {}


def pytest_runtest_logreport(report):
    """Print a failure on this rank at once: a later hang could prevent the summary."""
    if PROCESSES > 1 and report.failed:
        _failures[report.nodeid] = text = report.longreprtext
        crash = getattr(report.longrepr, "reprcrash", None)
        print(f"\n[rank {WORLD.rank}] FAILED {report.nodeid}: {crash or text}", file=sys.stderr)


pytest_collectreport = pytest_runtest_logreport


def pytest_internalerror(excrepr):
    """Print an error of pytest itself, on any rank."""
    if WORLD.rank > 0:
        print(f"[rank {WORLD.rank}] {excrepr}", file=sys.stderr)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    """Print tracebacks of other ranks, and use the highest exit status on all ranks."""
    result = yield
    if PROCESSES > 1:
        everyone = WORLD.gather((int(session.exitstatus), _failures))
        if everyone:
            show_failures_elsewhere([failures for _, failures in everyone])
            session.exitstatus = max(status for status, _ in everyone)
            sys.stdout.flush()
        session.exitstatus = WORLD.bcast(session.exitstatus)
    return result


def pytest_terminal_summary(terminalreporter, config):
    """Print the command that runs the same tests on several processes."""
    others = sorted(elsewhere - {RANKS})
    if RANKS == 1 and others:
        ranks = 3 if 3 in others else others[0]
        pytest_here = [mpiexec(), "-n", ranks, sys.executable, "-m mpi4py -m pytest"]
        command = " ".join(map(str, [*pytest_here, *config.invocation_params.args]))
        terminalreporter.write_line(f"On {', '.join(map(str, others))} ranks, too: {command}")


def show_failures_elsewhere(failures):
    """Print the first traceback of each test that failed, but not on rank 0."""
    for nodeid in dict.fromkeys(nodeid for those in failures[1:] for nodeid in those):
        ranks = [rank for rank, those in enumerate(failures) if nodeid in those]
        print(f"\n=== {nodeid} failed on ranks {ranks}")
        if ranks[0] > 0:
            print(failures[ranks[0]][nodeid])
