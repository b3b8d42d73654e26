"""Libraries of serial transforms: which is used, and what happens where one does not work."""

import sys
from threading import enumerate as enumerate_threads

import numpy as np
import pytest
from fft_cases import draw
from mpi_helpers import all_raise, everywhere

import pencils
from pencils.comm.mpi import PerProcess
from pencils.errors import ArgumentError
from pencils.fft import PencilFFT, directions, execute, kernels
from pencils.fft.kernels import why_no_fftw

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (6, 5, 8)


@pytest.fixture
def break_fftw(monkeypatch):
    """Break mpi4py-fft on this rank until the end of the test."""

    def broken():
        monkeypatch.setitem(sys.modules, "mpi4py_fft", None)
        why_no_fftw.cache_clear()

    yield broken
    monkeypatch.undo()
    why_no_fftw.cache_clear()


@pytest.mark.parametrize("ranks", ["all", "last"])
@pytest.mark.mpiexec("ranks of one process import the same library")
def test_a_library_that_is_broken_is_not_used(comm, break_fftw, ranks):
    """Nor one that is broken on another rank."""
    if ranks == "all" or comm.rank == comm.size - 1:
        break_fftw()
    private = comm.Dup()  # what was measured before is not remembered there
    pen = pencils.Pencil(SHAPE, private)
    a = draw(SHAPE, float)
    with PencilFFT(pen) as plan:
        u_hat = plan.forward(pencils.partition(pen, a))
        assert np.allclose(u_hat.local, np.fft.rfftn(a)[u_hat.local_slices])
        assert "by scipy" in repr(plan)
    all_raise(comm, ArgumentError, "mpi4py-fft", PencilFFT, pen, backend="fftw")
    private.Free()


def test_a_plan_names_the_library_that_does_the_work(comm):
    """FFTW has no orthogonal cosine transforms: SciPy does them."""
    pytest.importorskip("mpi4py_fft")
    pen = pencils.Pencil(SHAPE, comm, decomp=0)
    with PencilFFT(pen, transforms="dct2", backend="fftw") as plan:
        assert "by fftw\n" in repr(plan)
    with PencilFFT(pen, transforms="dct2", normalize="ortho", backend="fftw") as plan:
        assert "by scipy\n" in repr(plan)
    mixed = {0: "dct2", 1: "none"}
    with PencilFFT(pen, transforms=mixed, normalize="ortho", backend="fftw") as plan:
        assert ("by fftw and scipy\n" in repr(plan)) == (comm.size > 1)


def test_planning_takes_a_bounded_time(comm, monkeypatch):
    """FFTW would measure minutes for long lines; others may plan as long as they like."""
    fftw = pytest.importorskip("mpi4py_fft.fftw")
    limits, bounded = [], []

    def planned(*args):
        bounded.append(0 < limits[-1] <= 10)
        return plan_freely(*args)

    plan_freely = fftw.get_planned_FFT
    monkeypatch.setattr(kernels, "guessed", PerProcess(set))
    monkeypatch.setattr(execute, "guessed", kernels.guessed)
    monkeypatch.setattr(fftw, "set_timelimit", limits.append)
    monkeypatch.setattr(fftw, "get_planned_FFT", planned)
    pen = pencils.Pencil((comm.size, *SHAPE[1:]), comm, decomp=0)  # no block is empty
    with PencilFFT(pen, axes=(1, 2), backend="fftw"):
        pass
    assert bounded
    assert all(bounded)
    assert limits[-1] < 0
    monkeypatch.setattr(fftw, "get_planned_FFT", plan_freely)
    # What takes too long is guessed, and no time is spent on it again.
    monkeypatch.setattr(kernels, "PLANNING", 1e-9)
    for _ in range(2):
        del limits[:]
        private = comm.Dup()  # where nothing was measured
        pen = pencils.Pencil((comm.size, 7, 9), private, decomp=0)
        a = draw(pen.shape, float)
        with PencilFFT(pen, axes=(1, 2), backend="fftw") as plan:
            u_hat = plan.forward(pencils.partition(pen, a))
            assert np.allclose(u_hat.local, np.fft.rfftn(a, axes=(1, 2))[u_hat.local_slices])
        private.Free()
    assert {limit for limit in limits if limit >= 0} == {0.0}


def test_a_transform_is_planned_on_one_rank(comm, monkeypatch):
    """So that all take as long, and the others can plan at once."""
    fftw = pytest.importorskip("mpi4py_fft.fftw")
    plan_freely = fftw.get_planned_FFT
    planned = []

    def spy(source, target, axes, kind):
        flags = fftw.FFTW_MEASURE, fftw.FFTW_WISDOM_ONLY
        try:
            plan_freely(source, target, axes, kind, flags=flags)
        except RuntimeError:
            planned.append((source.shape, axes, kind))
        return plan_freely(source, target, axes, kind)

    fftw.forget_wisdom()
    monkeypatch.setattr(fftw, "get_planned_FFT", spy)
    private = comm.Dup()  # where nothing was measured
    comm.Barrier()
    pen = pencils.Pencil((2 * comm.size + 1, 11, 10), private, decomp=0)
    with PencilFFT(pen, complex, axes=(1, 2), backend="fftw"):
        found = [each for some in comm.allgather(planned) for each in some]
    assert len(found) == len(set(found)) > 0
    private.Free()


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (float, {}),
        (complex, {"components": 2}),
        (float, {"transforms": {0: "dct2"}, "dealias": {1: "3/2", 2: "2/3"}}),
    ],
)
def test_workers_give_the_same_bits(comm, backend, monkeypatch, dtype, options):
    """Several threads do so, as many as there are pieces at most, with and without a result."""
    monkeypatch.setattr(execute, "PIECE", 256)
    monkeypatch.setattr(execute, "TOGETHER", 1)
    monkeypatch.setattr(directions, "LARGE", 0)
    pen = pencils.Pencil((12, 9, 32), comm)
    found = []
    for workers in (1, 3, 50):
        with PencilFFT(pen, dtype, backend=backend, workers=workers, **options) as plan:
            u = pencils.random.uniform(plan.input_pencil, 1, components=plan.components).astype(
                dtype
            )
            new = plan.forward(u)
            for out, back in ((None, None), (new.copy(), u.copy())):
                u_hat = plan.forward(u, out)
                v = plan.backward(u_hat, back)
                found.append((u_hat.local.tobytes(), v.local.tobytes()))
            started = any(thread.name.startswith("PencilFFT") for thread in enumerate_threads())
            assert everywhere(comm, workers == 1 or started or not u.local.size)
            assert (f"workers={workers}" in repr(plan)) == (workers > 1)
    assert everywhere(comm, len(set(found)) == 1)


@pytest.mark.mpiexec("replaces what all ranks of a process call")
def test_workers_that_fail_raise_everywhere(comm, monkeypatch):
    """After all workers have stopped; the plan works on."""
    monkeypatch.setattr(execute, "PIECE", 256)
    monkeypatch.setattr(execute, "TOGETHER", 1)
    monkeypatch.setattr(directions, "LARGE", 0)
    with PencilFFT(pencils.Pencil((12, 9, 8), comm), backend="scipy", workers=3) as plan:
        u, share = pencils.ones(plan.input_pencil), execute.BlockTransform._share

        last = comm.rank == comm.size - 1

        def failing(self, number, *arrays):
            if number == 1 and last:
                raise MemoryError("no room")
            share(self, number, *arrays)

        with monkeypatch.context() as patch:
            patch.setattr(execute.BlockTransform, "_share", failing)
            all_raise(comm, MemoryError, "no room", plan.forward, u)
        assert np.allclose(plan.backward(plan.forward(u)), u)
