"""Fixtures and reports for tests that run in one process and for tests that run inside mpiexec.

An unmarked test needs one process: ``python -m pytest -m "not parallel"``. A test marked
``parallel([1, 2, 3])``, by decorator or by ``pytestmark``, runs on those numbers of ranks:
``mpiexec -n 3 python -m mpi4py -m pytest -m "parallel and parallel[match]"``. There rank 0 writes
the report, a failure on any rank is announced the moment it happens (the others may be about to
hang), and all ranks leave with the worst exit status of any.

Tests marked ``large`` take gigabytes of memory and disk, and run only with ``--large``.
"""

import contextlib
import faulthandler
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
from mpi4py import MPI

import pencils

WORLD = MPI.COMM_WORLD.Dup()  # never mixes with what the tests send

settings.register_profile("pencils", deadline=None)
# Every rank has to draw the same examples, whatever its speed and its history. No shrinking: it
# would run the body once more on the ranks that failed, and hang.
settings.register_profile(
    "pencils-mpi",
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pencils-mpi" if WORLD.size > 1 else "pencils")


def _import_all():
    """Import what rank 0 alone would import later: Hypothesis draws constants of loaded modules."""
    for module in pkgutil.walk_packages(pencils.__path__, "pencils."):
        with contextlib.suppress(ImportError):  # an optional library is missing
            importlib.import_module(module.name)


if WORLD.size > 1:
    _import_all()


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


@pytest.fixture(scope="session")
def mpirun():
    """Run ``python *args`` on n ranks, from a test that is itself alone: ``mpirun(n, *args)``."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert mpiexec, "no mpiexec, neither beside this Python nor on PATH"

    def run(n, *args, cwd=None, timeout=120):
        return subprocess.run(
            [mpiexec, "-n", str(n), sys.executable, *map(str, args)],
            cwd=cwd,
            env=os.environ.copy(),  # without what MPI_Init added behind Python's back
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    return run


def pytest_generate_tests(metafunc):
    """Give ``pytestmark = pytest.mark.parallel([...])`` the meaning of the decorator.

    mpi-pytest makes one test per number of ranks from decorators only.
    """
    if any(mark.name == "parallel" for mark in getattr(metafunc.function, "pytestmark", ())):
        return
    mark = metafunc.definition.get_closest_marker("parallel")
    if mark and mark.args and not isinstance(mark.args[0], int) and len(mark.args[0]) > 1:
        metafunc.fixturenames.append("_nprocs")
        metafunc.parametrize("_nprocs", mark.args[0], ids=lambda n: f"nprocs={n}")


def pytest_addoption(parser):
    """Let large tests be asked for."""
    parser.addoption("--large", action="store_true", help="run tests that take gigabytes, too")


def pytest_collection_modifyitems(config, items):
    """Skip large tests unless they are asked for."""
    for item in items:
        if item.get_closest_marker("large") and not config.getoption("large"):
            item.add_marker(pytest.mark.skip(reason="needs --large"))


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """Keep the reports of all ranks but 0 from the terminal."""
    if WORLD.size > 1:
        faulthandler.register(signal.SIGALRM, os.dup(sys.__stderr__.fileno()), all_threads=False)
    if WORLD.rank > 0:
        config.pluginmanager.unregister(name="terminalreporter")
        silent = pytest.TerminalReporter(config, io.StringIO())
        config.pluginmanager.register(silent, "terminalreporter")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Dump the traceback of every rank shortly before the first one runs out of time.

    That one exits, and mpiexec kills the others before they can say where they hang.
    """
    timeout = float(item.config.getini("faulthandler_timeout")) if WORLD.size > 1 else 0.0
    signal.setitimer(signal.ITIMER_REAL, max(timeout - 5, timeout / 2))
    result = yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    return result


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


def show_failures_elsewhere(failures):
    """Print, for each test that failed on some rank but not on rank 0, the first traceback."""
    for nodeid in dict.fromkeys(nodeid for those in failures[1:] for nodeid in those):
        ranks = [rank for rank, those in enumerate(failures) if nodeid in those]
        print(f"\n=== {nodeid} failed on ranks {ranks}")
        if ranks[0] > 0:
            print(failures[ranks[0]][nodeid])
