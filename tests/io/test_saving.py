"""Saves in the background: what was, all or nothing, while the program goes on."""

import gc
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from damage import failing

import pencils
from pencils.comm.file import SharedFile
from pencils.errors import ArgumentError, RankDisagreementError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture
def pencil(comm):
    return pencils.Pencil((6, 5, 4), comm, decomp=(1, 2))


@pytest.fixture
def path(mpi_tmp_path, pencil):
    path = mpi_tmp_path / "a.h5"
    pencils.save(path, {"u": pencils.full(pencil, 7.0)})
    return path


@pytest.fixture
def kept(path, pencil, lab):
    """Check in the end that the file is as it was, and alone."""
    yield path
    gc.collect()
    pencil.comm.barrier()
    assert lab.on_root(os.listdir, path.parent) == ["a.h5"]
    assert greatest(path, pencil) == 7


@pytest.fixture
def gate(monkeypatch):
    """Let no thread write before the gate is opened."""
    opened = threading.Event()
    write = SharedFile.write

    def write_later(self, *args):
        if threading.current_thread() is not threading.main_thread():
            assert opened.wait(60)
        write(self, *args)

    monkeypatch.setattr(SharedFile, "write", write_later)
    yield opened
    opened.set()


def greatest(path, pencil):
    return pencils.load(path, pencil)["u"].max()


def threads_and_files():
    return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))


def fail_on(monkeypatch, comm, rank, error):
    """Let writing fail on one rank."""

    def fail(_self, *_args):
        raise error

    if comm.rank == rank % comm.size:
        monkeypatch.setattr(SharedFile, "write", fail)


@pytest.mark.parametrize("shape", [(7,), (1,), (0,), (1, 5), (4, 0, 3), (13, 2, 3)], ids=str)
def test_every_shape_from_every_pencil(mpi_tmp_path, shape, lab):
    cases = {str(number): case for number, case in enumerate(lab.cases(shape, 6, seed=len(shape)))}
    path = mpi_tmp_path / "a.h5"
    saving = pencils.save(path, {name: field for name, (field, _) in cases.items()}, wait=False)
    for field, _ in cases.values():
        field.fill(-1)
    saving.wait()
    found = lab.stored(path)
    assert all(np.array_equal(found[name], array) for name, (_, array) in cases.items())
    assert pencils.verify(path) == sorted(cases)


def test_the_file_is_that_of_a_save_at_once(mpi_tmp_path, pencil, lab):
    grid = pencils.localgrid(pencil, [np.arange(n, dtype=float) for n in pencil.shape])
    fields = {"u": pencils.random.normal(pencil, 1, components=2, halo=1), "modes": np.arange(5)}
    one, other = mpi_tmp_path / "a.h5", mpi_tmp_path / "b.h5"
    for checksum in (True, False):
        kwargs = {"grid": grid, "step": 3, "halo": True, "checksum": checksum}
        pencils.save(one, fields, **kwargs)
        pencils.save(other, fields, wait=False, **kwargs).wait()
        assert lab.on_root(lambda: one.read_bytes() == other.read_bytes())


@pytest.mark.mpiexec("patches what threads of one process call")
def test_slabs_are_copied_too(comm, mpi_tmp_path, gate):
    for order in ((0, 1), (1, 0)):
        u = pencils.ones(pencils.Pencil((12, 5), comm, decomp=0, order=order), components=2)
        saving = pencils.save(mpi_tmp_path / "a.h5", {"u": u}, wait=False)
        u.fill(2.0)
        gate.set()
        saving.wait()
        assert greatest(mpi_tmp_path / "a.h5", u.pencil) == 1
        gate.clear()


@pytest.mark.mpiexec("patches what threads of one process call")
def test_the_program_goes_on_meanwhile(path, pencil, gate, lab):
    u = pencils.ones(pencil)
    before = lab.on_root(path.read_bytes)
    saving = pencils.save(path, {"u": u}, wait=False)
    for _ in range(3):
        u += pencils.transpose(pencils.transpose(u, pencil.with_(decomp=0)), pencil)
    assert u.sum() == 8 * 120
    pencils.save(path.with_name("b.h5"), {"u": u})
    assert lab.everywhere(not saving.done)
    assert lab.on_root(path.read_bytes) == before
    assert greatest(path, pencil) == 7
    gate.set()
    saving.wait()
    assert lab.everywhere(saving.done)
    assert greatest(path, pencil) == 1
    assert sorted(lab.on_root(os.listdir, path.parent)) == ["a.h5", "b.h5"]


@pytest.mark.mpiexec("patches what threads of one process call")
def test_waiting_twice_and_what_it_says_of_itself(path, pencil, gate):
    with pencils.save(path, {"u": pencils.ones(pencil)}, wait=False) as saving:
        assert saving.path == str(path)
        assert "a.h5: " in repr(saving)
        gate.set()
    assert repr(saving) == f"<Saving {path}: saved>"
    pencils.save(path, {"u": pencils.zeros(pencil)})
    saving.wait()
    assert greatest(path, pencil) == 0
    assert pencils.save(path, {"u": pencils.ones(pencil)}, wait=True) is None


@pytest.mark.parametrize("rank", [0, -1])
@pytest.mark.parametrize("error", [OSError(28, "no space left"), MemoryError("too much")])
@pytest.mark.mpiexec("patches what threads of one process call")
def test_a_failure_on_one_rank(kept, monkeypatch, rank, error, lab):
    # Every rank has a part of it.
    u = pencils.ones(pencils.Pencil((2 * lab.comm.size, 3), lab.comm))
    with monkeypatch.context() as patch:
        fail_on(patch, lab.comm, rank, error)
        saving = pencils.save(kept, {"u": u}, wait=False)
        for _ in range(2):
            lab.refuses(type(error), str(error.args[-1]), saving.wait)
    assert repr(saving) == f"<Saving {kept}: failed>"


@pytest.mark.mpiexec("patches what threads of one process call")
def test_a_sync_that_fails(kept, pencil, monkeypatch, lab):
    def refuse(_handle):
        raise OSError(5, "disk on fire")

    saving = pencils.save(kept, {"u": pencils.ones(pencil)}, wait=False)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        kind, text = lab.raised(saving.wait)
    assert kind is OSError
    assert "cannot save" in text or "disk on fire" in text


@pytest.mark.mpiexec("patches what threads of one process call")
def test_what_nobody_waits_for_is_gone(path, pencil, gate, lab):
    gc.collect()
    before = threads_and_files()
    saving = pencils.save(path, {"u": pencils.ones(pencil)}, wait=False)
    written = saving._written
    del saving
    gc.collect()
    pencil.comm.barrier()
    assert lab.on_root(os.listdir, path.parent) == ["a.h5"]
    gate.set()
    written.result()
    pencils.save(path.with_name("b.h5"), {"u": pencils.ones(pencil)})
    for thread in threading.enumerate():
        if thread.name.startswith("pencils-save"):
            thread.join()
    gc.collect()
    assert threads_and_files() == before
    assert greatest(path, pencil) == 7


def test_an_error_inside_the_block(kept, pencil, lab):
    class StopError(Exception):
        pass

    saving = pencils.save(kept, {"u": pencils.ones(pencil)}, wait=False)
    with pytest.raises(StopError), saving:
        raise StopError
    lab.refuses(ArgumentError, "was abandoned", saving.wait)


def test_the_last_one_waited_for_stays(path, pencil):
    savings = [pencils.save(path, {"u": pencils.full(pencil, n)}, wait=False) for n in range(3)]
    for number in (2, 0, 1):
        savings[number].wait()
        assert greatest(path, pencil) == number


def test_waiting_for_different_ones(comm, path, pencil, lab):
    savings = [pencils.save(path, {"u": pencils.full(pencil, n)}, wait=False) for n in range(2)]
    if comm.size > 1:
        assert lab.raised(savings[comm.rank > 0].wait)[0] is RankDisagreementError
    for saving in savings:
        saving.wait()
    assert greatest(path, pencil) == 1


def test_the_communicator_is_freed(comm, kept, lab):
    other = comm.Dup()
    saving = pencils.save(kept, {"u": pencils.ones(pencils.Pencil((6, 5), other))}, wait=False)
    other.Free()
    lab.refuses(ArgumentError, "was freed", saving.wait)
    del saving


def test_a_relative_path_is_that_of_the_beginning(path, pencil, monkeypatch):
    monkeypatch.chdir(path.parent)
    saving = pencils.save("a.h5", {"u": pencils.ones(pencil)}, wait=False)
    monkeypatch.chdir("/")
    saving.wait()
    assert greatest(path, pencil) == 1


def test_no_room_for_the_copy_on_one_rank(kept, pencil, monkeypatch, lab):
    from pencils.io import slabs

    class Full(slabs.FileMoves):
        def of(self, field, *rest):
            slab = super().of(field, *rest)
            with slabs.agreed(field.pencil.topology.comm, "FileMoves"):
                if field.pencil.rank == field.pencil.size - 1:
                    raise MemoryError
            return slab

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["pencils.io.save"], "FileMoves", Full)
        error = lab.raised(pencils.save, kept, {"u": pencils.ones(pencil)}, wait=False)[0]
    assert error is MemoryError


def test_only_values(path, pencil):
    pencils.save(path, {"dt": 0.5}, wait=False).wait()
    assert pencils.load(path, pencil)["dt"] == 0.5


@pytest.mark.mpiexec("patches what threads of one process call")
def test_no_thread_on_one_rank(comm, kept, pencil, monkeypatch, lab):
    with monkeypatch.context() as patch:
        if comm.rank == comm.size - 1:
            patch.setattr(
                ThreadPoolExecutor, "submit", failing(RuntimeError("can't start new thread"))
            )
        error = lab.raised(pencils.save, kept, {"u": pencils.ones(pencil)}, wait=False)[0]
    assert error is RuntimeError
