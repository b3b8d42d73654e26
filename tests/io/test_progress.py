"""The bar on the terminal of rank 0: only there, only when it takes long, never required."""

import builtins
import io
import time
from types import SimpleNamespace

import pytest
from tqdm import tqdm

import pencils
from pencils import bars
from pencils.io import direct

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Let everything take long."""
    terminal = Terminal()
    monkeypatch.setattr(bars, "sys", SimpleNamespace(stderr=terminal))
    monkeypatch.setattr(bars, "_PATIENCE", 0.0)
    monkeypatch.setattr(direct, "_PIECE_BYTES", 64)
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # no thread that outlives the test
    return terminal


@pytest.fixture
def u(comm):
    return pencils.ones(pencils.Pencil((12, 5, 4), comm, decomp=(1, 2)))


def test_rank_0_shows_its_share(mpi_tmp_path, u, terminal, lab):
    pencils.save(mpi_tmp_path / "run.h5", {"u": u, "v": u})
    shown = terminal.getvalue()
    assert ("save run.h5" in shown) == (lab.comm.rank == 0)
    if lab.comm.rank == 0:
        assert f"/{tqdm.format_sizeof(2 * u.size * 8 // lab.comm.size, divisor=1024)} " in shown
        assert " 0%" in shown
    pencils.load(mpi_tmp_path / "run.h5", u.pencil)
    assert ("load run.h5" in terminal.getvalue()) == (lab.comm.rank == 0)


def test_tuning_shows_its_steps(comm, terminal, lab):
    private = comm.Dup()  # which remembers what is measured
    rows = pencils.Pencil((8, 8), private, decomp=0)
    chain = [rows, rows.with_(decomp=1), rows]
    pencils.tune(chain, repeat=1, show=False)
    private.Free()
    assert ("tune" in terminal.getvalue()) == (lab.comm.rank == 0)
    assert ("/2 " in terminal.getvalue()) == (lab.comm.rank == 0)


def test_it_moves(terminal, lab):
    with bars.shown("save run.h5", 100, rank=0, unit="B") as moved:
        time.sleep(0.15)  # a bar is drawn ten times a second at most
        moved(40)
    with bars.shown("save run.h5", 100, rank=1, unit="B") as moved:
        moved(70)
    assert lab.everywhere("save run.h5:  40%" in terminal.getvalue())
    assert lab.everywhere("70%" not in terminal.getvalue())


def test_nothing_is_shown_of_what_is_short(mpi_tmp_path, u, terminal, monkeypatch, lab):
    monkeypatch.setattr(bars, "_PATIENCE", 60.0)
    pencils.save(mpi_tmp_path / "run.h5", {"u": u})
    assert lab.everywhere(terminal.getvalue() == "")


def test_nothing_is_shown_in_a_file(mpi_tmp_path, u, terminal, monkeypatch, lab):
    log = io.StringIO()
    monkeypatch.setattr(bars, "sys", SimpleNamespace(stderr=log))
    pencils.save(mpi_tmp_path / "run.h5", {"u": u})
    assert lab.everywhere(log.getvalue() == terminal.getvalue() == "")


def test_nothing_is_shown_without_tqdm(mpi_tmp_path, u, terminal, monkeypatch, lab):
    importing = builtins.__import__

    def refuse(name, *args):
        if name == "tqdm":
            raise ImportError
        return importing(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    pencils.save(mpi_tmp_path / "run.h5", {"u": u})
    assert lab.everywhere(terminal.getvalue() == "")


def test_nothing_is_shown_in_the_background(mpi_tmp_path, u, terminal, lab):
    pencils.save(mpi_tmp_path / "run.h5", {"u": u}, wait=False).wait()
    assert lab.everywhere(terminal.getvalue() == "")


class Gone(Terminal):
    def write(self, _text):
        raise BrokenPipeError


# tqdm before 4.70 fails once more when a bar is deleted that could not be shown.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("stderr", [None, SimpleNamespace(write=print), Gone()])
def test_a_terminal_that_is_not_as_it_should_be(mpi_tmp_path, u, monkeypatch, stderr, lab):
    monkeypatch.setattr(bars, "sys", SimpleNamespace(stderr=stderr))
    pencils.save(mpi_tmp_path / "run.h5", {"u": u})
    assert lab.everywhere(pencils.load(mpi_tmp_path / "run.h5", u.pencil)["u"].sum() == u.size)
