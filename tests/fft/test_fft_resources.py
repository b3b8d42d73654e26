"""Plans share memory, give it back, and are equal to those of another library."""

import gc
import operator
import tracemalloc

import numpy as np
import pytest
from fft_cases import close, draw
from mpi4py import MPI
from mpi_helpers import everywhere, one_node

import pencils
from pencils.comm.methods import shared
from pencils.comm.methods.pull import _staging
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.fft import PencilFFT, directions, execute
from pencils.fft.directions import work_memory

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (8, 6, 10)


def shared_is_idle(topology):
    gc.collect()
    # What was allocated for the next plans, and for all small transposes.
    topology.shared._slots.clear()
    _staging(topology).clear()
    return all(window.idle for window in topology.shared._windows)


def test_plans_of_one_communicator_share_work_memory(comm):
    private = comm.Dup()
    pen = pencils.Pencil(SHAPE, private)
    one = PencilFFT(pen, backend="scipy")
    other = PencilFFT(pen, "f4", transforms="dct2", backend="scipy")
    if comm.size == 1:
        assert one.memory == other.memory == 0
    else:
        assert all(map(operator.is_, other._works, one._works))
        assert one.memory > 0
        big = PencilFFT(pen, components=3, backend="scipy")
        assert big._works[0] is not one._works[0]
        assert big.memory > one.memory
        small = PencilFFT(pen, backend="scipy")
        assert all(map(operator.is_, small._works, big._works))
        small.free()
        big.free()
    a = draw(SHAPE, float)
    u = pencils.partition(pen, a)
    cosines = other.forward(u.astype("f4"))
    assert close(one.backward(one.forward(u)), u)
    assert np.allclose(other.backward(cosines), u, atol=1e-4)
    topology = pen.topology
    one.free()
    other.free()
    other.free()
    assert (one.memory, other.memory) == (0, 0)
    assert shared_is_idle(topology)
    assert not work_memory(topology)._slots
    with pytest.raises(ArgumentError, match="freed"):
        one.forward(u)
    private.Free()


def in_shared_memory(topology):
    """Count bytes of this rank in use."""
    windows = {id(window): window for pool in pools(topology) for window in pool._windows}
    for window in windows.values():
        window._merge_released()
    whole = sum(size for window in windows.values() for _, size in window._whole)
    return whole - sum(size for window in windows.values() for _, size in window._gaps)


def pools(topology):
    return [topology.shared, *(pool for _, pool in topology.groups.values())]


def collect():
    gc.collect()
    pencils.memory().empty()


@pytest.mark.parametrize(("decomp", "large"), [((0,), 0), ((0, 1), 0), ((0,), 2**30)])
@pytest.mark.mpiexec("measures the memory of one process")
def test_a_plan_knows_how_much_memory_it_holds(comm, backend, decomp, large, monkeypatch):
    """NumPy tells what it allocates, pools of shared memory how much of them is in use."""
    monkeypatch.setattr(execute, "TOGETHER", 2**15)
    monkeypatch.setattr(directions, "LARGE", large)
    private = comm.Dup()
    pen = pencils.Pencil((24, 32, 40), private, decomp=decomp)
    topology = pen.topology
    u, out = pencils.ones(pen, components=3), pencils.empty(pen, components=3)
    with PencilFFT(pen, components=3, backend=backend) as plan:  # what is made but once
        plan.backward(plan.forward(u))
    del plan
    collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0] + in_shared_memory(topology)
    plan = PencilFFT(pen, components=3, backend=backend)
    plan.backward(plan.forward(u), out)
    collect()
    held = tracemalloc.get_traced_memory()[0] + in_shared_memory(topology) - before
    assert everywhere(comm, 0 <= held - plan.memory < 2**17)  # plans and boards are small
    assert everywhere(comm, plan.memory > 2**17)
    plan.free()
    collect()
    held = tracemalloc.get_traced_memory()[0] + in_shared_memory(topology) - before
    tracemalloc.stop()
    assert plan.memory == 0
    assert everywhere(comm, held < 2**16)
    private.Free()


def test_plans_of_a_freed_communicator_say_so(comm):
    private = comm.Dup()
    pen = pencils.Pencil(SHAPE, private)
    checked, plain = PencilFFT(pen), PencilFFT(pen, check=False)
    u = pencils.ones(pen)
    private.Free()
    for plan in (checked, plain):
        with pytest.raises(ArgumentError, match="freed"):
            plan.forward(u)
        plan.free()


def test_waves_on_a_freed_communicator_say_so(comm):
    """In both directions, though the plan itself lives on another one."""
    private = comm.Dup()
    pen = pencils.Pencil(SHAPE, comm)
    waves = pencils.Pencil((8, 6, 6), private, decomp=1)
    plans = [PencilFFT(pen, output=waves, check=check) for check in (True, False)]
    u = pencils.ones(pen)
    for plan in plans:
        u_hat = plan.forward(u)
        assert close(plan.backward(u_hat), u)
    private.Free()
    for plan in plans:
        for call, field in ((plan.forward, u), (plan.backward, u_hat)):
            with pytest.raises(ArgumentError, match=r"PencilFFT.*freed"):
                call(field)
        plan.free()


def test_what_is_wrong_is_called_by_its_name(comm):
    pen = pencils.Pencil(SHAPE, comm)
    with PencilFFT(pen) as plan:
        with pytest.raises(TypeError, match="u must be"):
            plan.forward(None)
        with pytest.raises(TypeError, match="u_hat must be"):
            plan.backward(None)
        with pytest.raises(PencilMismatchError, match="u_hat lies on"):
            plan.backward(pencils.ones(pen))


def test_many_plans(comm):
    """Used or not, freed or forgotten; MPI runs out of nothing."""
    private = comm.Dup()
    pen = pencils.Pencil((4, 3, 2), private)
    topology = pen.topology
    u = pencils.ones(pen)
    for n in range(40):
        plan = PencilFFT(pen, transforms=["fft", "dct2"][n % 2])
        if n == 0:
            before = topology.communicators
        if n % 3:
            plan.backward(plan.forward(u))
        if n % 4:
            plan.free()
    assert topology.communicators == before
    del plan
    assert shared_is_idle(topology)
    private.Free()


@pytest.mark.mpiexec("measures the memory of one process")
def test_a_call_with_a_field_to_fill_allocates_only_pieces(comm, backend, monkeypatch):
    monkeypatch.setattr(execute, "PIECE", 2**14)
    monkeypatch.setattr(execute, "TOGETHER", 2**15)
    pen = pencils.Pencil((32, 32, 32), comm)
    with PencilFFT(pen, complex, backend=backend) as plan:
        u, u_hat = pencils.ones(pen, dtype=complex), pencils.ones(plan.output_pencil, dtype=complex)
        plan.backward(plan.forward(u, u_hat), u)
        tracemalloc.start()
        plan.backward(plan.forward(u, u_hat), u)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert everywhere(comm, peak < 2**17)
    assert np.allclose(u, 1)


@pytest.mark.mpiexec("measures the memory of one process")
@one_node
@pytest.mark.parametrize(
    ("call", "most"),
    [
        (lambda u, _: pencils.transpose(u, u.pencil.with_(decomp=1)), 1.25),
        (lambda u, plan: plan.forward(u), 2.2),
        (lambda u, plan: plan.backward(plan.forward(u)), 3.35),
    ],
    ids=["transpose", "forward", "both"],
)
def test_memory_of_results_and_work_in_blocks(comm, call, most, monkeypatch):
    """The pool rounds sizes up, by an eighth at most."""
    monkeypatch.setattr(shared, "MOST_AT_ONCE", 2**18)
    monkeypatch.setattr(directions, "LARGE", 2**18)
    monkeypatch.setattr(execute, "PIECE", 2**14)
    private = comm.Dup()
    pen = pencils.Pencil((160, 160, 160), private, decomp=0)
    topology, u = pen.topology, pencils.ones(pen)
    plan = PencilFFT(pencils.Pencil((4, 4, 4), private), backend="scipy")
    plan.forward(pencils.ones(plan.input_pencil))  # what is made but once
    pencils.transpose(pencils.ones(plan.input_pencil), plan.input_pencil.with_(decomp=1))
    collect()
    tracemalloc.start()
    before = in_shared_memory(topology)
    large = PencilFFT(pen, backend="scipy") if most > 2 else None
    result = call(u, large)
    peak = tracemalloc.get_traced_memory()[1] + in_shared_memory(topology) - before
    tracemalloc.stop()
    assert everywhere(comm, result.local.nbytes <= peak < most * 8 * 160**3 / comm.size + 2**19)
    del u, plan, large, result
    private.Free()


def test_another_communicator(comm):
    """Half of the processes transform one field, half another one."""
    half = comm.Split(comm.rank % 2)
    a = draw(SHAPE, complex, seed=comm.rank % 2)
    with PencilFFT(pencils.Pencil(SHAPE, half), complex) as plan:
        u_hat = plan.forward(pencils.partition(plan.input_pencil, a))
        assert close(u_hat, np.fft.fftn(a))
    half.Free()


def test_a_plan_says_what_it_does(comm):
    pen = pencils.Pencil(SHAPE, comm)
    with PencilFFT(
        pen,
        transforms=("fft", "dct1", "fft"),
        components=3,
        dealias={0: "2/3"},
        normalize="ortho",
        backend="scipy",
    ) as plan:
        text = repr(plan)
    assert "r2c along 2" in text
    assert "dct1 along 1" in text
    assert "components=(3,)" in text
    assert "'ortho'" in text
    assert "{0: '2/3'}" in text
    assert "by scipy" in text
    assert repr(pen) in text


def test_ghosts_of_what_was_filled_are_unset_under_checks(comm):
    pen = pencils.Pencil(SHAPE, comm, periodic=True)
    with PencilFFT(pen) as plan, pencils.debug.ghosts():
        u = pencils.ones(pen, halo=1)
        plan.backward(plan.forward(pencils.ones(pen)), u)
        assert np.isnan(u.padded[0]).all()
        assert np.allclose(u.local, 1)


def test_the_same_as_mpi4py_fft(comm):
    peer = pytest.importorskip("mpi4py_fft")
    a = draw(SHAPE, float)
    fft = peer.PFFT(comm, SHAPE, dtype=float)
    v = peer.newDistArray(fft, forward_output=False)
    v[...] = a[fft.local_slice(forward_output=False)]
    v_hat = fft.forward(v, normalize=True)
    expected = np.zeros((8, 6, 6), complex)
    expected[fft.local_slice()] = v_hat
    comm.Allreduce(MPI.IN_PLACE, expected)
    with PencilFFT(pencils.Pencil(SHAPE, comm), normalize="forward") as plan:
        u_hat = plan.forward(pencils.partition(plan.input_pencil, a))
        assert close(u_hat, expected)


@pytest.mark.parametrize(("n", "alike"), [(10, 6), (6, 4), (8, 4), (12, 6)])
def test_padding_as_mpi4py_fft(comm, n, alike):
    """But for the last wave of n points where n/2 + 1, on which mpi4py-fft decides, is odd."""
    peer = pytest.importorskip("mpi4py_fft")
    shape, fine = (8, 6, n), (12, 9, n * 3 // 2)
    a = draw(fine, float)
    fft = peer.PFFT(comm, shape, padding=[1.5] * 3, dtype=float)
    v = peer.newDistArray(fft, forward_output=False)
    v[...] = a[fft.local_slice(forward_output=False)]
    v_hat = fft.forward(v, normalize=True)
    expected = np.zeros((8, 6, n // 2 + 1), complex)
    expected[fft.local_slice()] = v_hat
    comm.Allreduce(MPI.IN_PLACE, expected)
    pen = pencils.Pencil(shape, comm)
    with PencilFFT(pen, normalize="forward", dealias="3/2") as plan:
        u_hat = pencils.gather(plan.forward(pencils.partition(plan.input_pencil, a)), root=None)
    assert np.allclose(u_hat[..., :alike], expected[..., :alike], rtol=0, atol=1e-14)
    assert not np.allclose(u_hat[..., alike:], expected[..., alike:]) or alike == n // 2 + 1
