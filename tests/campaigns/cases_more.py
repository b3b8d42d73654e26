"""Cases: one value of many, mistakes, graphs, other protocols, transforms."""

from importlib.util import find_spec

import numpy as np
from cases import PARTS, TIMED, case, each
from mpi4py import MPI
from world import numbers

import pencils
from pencils import Pencil, dap, graph
from pencils.errors import RankDisagreementError, ReplicaError
from pencils.fft import PencilFFT

TIMED |= {"tune method", "tune grids", "halo_plan measure", "fft auto"}
PARTS |= {"halves", "alone", "graph_ring", "graph_of_fields"}

# ---- one value of many ----


@each(
    {
        "sum": lambda u: u.sum(axis=0, keepdims=True),
        "sum all": lambda u: u.sum(),
        "max": lambda u: u.max(axis=2, keepdims=True),
        "min": lambda u: u.min(axis=(0, 1), keepdims=True),
        "any": lambda u: (u > 1000).any(axis=1, keepdims=True),
        "all": lambda u: (u >= 0).all(),
        "argmin": lambda u: u.argmin(),
        "argmax": lambda u: u.argmax(),
        "count": np.count_nonzero,
        "ptp": np.ptp,
        "initial": lambda u: u.sum(axis=0, initial=3.0, keepdims=True),
        "where": lambda u: np.sum(u, axis=1, where=u > 300, keepdims=True),
        "array_equal": lambda u: np.array_equal(u, u),
        "lines": lambda u: np.apply_along_axis(np.sort, 1, u),
    }
)
def reduction(w, value):
    u = w.field(w.pen.with_(decomp=(0, 2), order=(2, 0, 1)))
    expected = value(w.data)
    return lambda: w.gives(value(u), expected)


@each(
    {
        "mean": lambda u: u.mean(axis=(0, 1), keepdims=True),
        "std": lambda u: u.std(axis=0, keepdims=True),
        "var": lambda u: u.var(),
        "prod": lambda u: (1 + u / 1e6).prod(axis=1, keepdims=True),
        "norm": np.linalg.norm,
        "vdot": lambda u: np.vdot(u, u),
        "median": np.median,
        "quantiles": lambda u: np.quantile(u, np.linspace(0, 1, 9)),
        "allclose": lambda u: np.allclose(u, u),
    }
)
def rounded_reduction(w, value):
    u = w.field()
    with np.errstate(all="ignore"):
        expected = value(w.data if value is not np.linalg.norm else w.data.reshape(-1))
    return lambda: w.gives(value(u), expected, rounded=True)


@case
def reduction_swapped(w):
    u = w.field(dtype=">f8")
    return lambda: w.holds_about(u.sum(axis=0), w.data.sum(axis=0, keepdims=True))


@case
def assertion(w):
    u = w.field()
    wrong = w.data.copy()
    wrong[-1, 0, -1] += 1
    index = (w.data.shape[0] - 1, 0, w.data.shape[2] - 1)

    def call():
        pencils.testing.assert_equal(u, w.data)
        owner = u.pencil.owner(index)
        w.raises(
            AssertionError,
            lambda: pencils.testing.assert_allclose(u, wrong, rtol=1e-12),
            f"global index {index} on rank {owner}",
        )

    return call


@case
def disagreement(w):
    u = w.field()
    root = 1 if w.size > 1 and w.rank == w.size - 1 else 0

    def call():
        if w.size > 1:
            w.raises(RankDisagreementError, lambda: pencils.gather(u, root=root), "root")
        w.equal(u.sum(), w.data.sum())

    return call


@case
def mistake_of_one_rank(w):
    u = w.field()

    def call():
        broken = np.zeros(3) if w.rank == w.size - 1 else None
        if w.size > 1:
            w.raises(
                ValueError,
                lambda: pencils.partition(w.pen, broken, root=w.size - 1),
                f"rank {w.size - 1}: ",
            )
        w.equal(u.max(), w.data.max())

    return call


@case
def replicas_differ(w):
    u = w.field(dims=(1, 2))

    def call():
        w.refill(u)
        pencils.debug.verify_replicas(u)
        differ = u.pencil.process_shape[0] > 1
        if w.rank == w.size - 1 and u.local.size:
            u.local[0, -1, -1] += 1
        box = u.extent.layout.box(w.size - 1)
        if differ and box.volume:
            w.raises(ReplicaError, lambda: pencils.debug.verify_replicas(u), f"{w.size - 1}")
        w.refill(u)

    return call


@case
def block_that_fails(w):
    """Raise in the body of a ``with`` block on one rank: all ranks raise at its end."""
    path = w.folder / "fails.h5"
    u = w.field()

    def fail():
        with pencils.TimeSeries(path, "w", comm=w.comm) as series:
            series.append(0, {"u": u})
            if w.rank == w.size - 1:
                raise ZeroDivisionError("on purpose")

    def call():
        w.raises(ZeroDivisionError, fail, "on purpose")
        with pencils.TimeSeries(path, comm=w.comm) as series:
            w.equal(series.times, [0.0])
        w.comm.Barrier()

    return call


def _execute(comm, outputs, **inputs):
    partition = graph.find_distributed_partition(comm, outputs)
    graph.verify_distributed_partition(comm, partition)
    return graph.execute_distributed_partition(partition, None, None, comm, input_args=inputs)


@case
def graph_ring(w):
    def call():
        x = graph.make_placeholder("x", (3,), float)
        held = graph.staple_distributed_send(2 * x, (w.rank + 1) % w.size, "ring", x)
        before = (w.rank - 1) % w.size
        outputs = {"y": held + graph.make_distributed_recv(before, "ring", (3,), float)}
        found = _execute(w.comm, outputs, x=np.full(3, w.rank + 1.0))
        w.equal(found["y"], np.full(3, w.rank + 1.0 + 2 * (before + 1)))

    return call


@case
def graph_of_fields(w):
    pens = [w.pen.with_(periodic=True), w.across.with_(periodic=True)]
    coords = w.coords(w.rank, 4)

    def call():
        x = graph.make_placeholder("x", pens[0].local_shape)
        padded = graph.halo_exchange(x, pens[0], 1)
        inside = padded[2:, 1:-1, 1:-1] - 2 * padded[1:-1, 1:-1, 1:-1]
        moved = graph.transpose(inside, *pens)
        outputs = {"y": moved, "p": graph.take(moved, pens[1], coords)}
        found = _execute(w.comm, outputs, x=w.data[pens[0].local_slices])
        expected = np.roll(w.data, -1, 0) - 2 * w.data
        w.equal(found["y"], expected[pens[1].local_slices])
        w.equal(found["p"], expected[tuple(coords)])

    return call


def _cyclic(w):
    first = dap.CyclicMap(size=w.shape[0], nprocs=w.size, rank=w.rank, block_size=2)
    return [first, *(dap.BlockMap(size=n, start=0, stop=n) for n in w.shape[1:])]


def _lists(w):
    points = np.arange(w.shape[0])[::-1][w.rank :: w.size].copy()
    first = dap.UnstructuredMap(
        size=w.shape[0], nprocs=w.size, rank=w.rank, indices=points, one_to_one=True
    )
    return [first, *_cyclic(w)[1:]]


@each({"cyclic": _cyclic, "lists": _lists})
def dap_export(w, value):
    u = w.field()
    maps = value(w)
    if value is _lists:
        rows = np.asarray(maps[0].indices)
    else:
        rows = np.arange(w.shape[0])
        rows = rows[rows // 2 % w.size == w.rank]

    def call():
        exported = dap.export_as(u, maps)
        w.equal(np.asarray(exported["buffer"]), w.data[rows])

    return call


@each({"cyclic": _cyclic, "lists": _lists})
def dap_import(w, value):
    exported = dap.export_as(w.field(), value(w))

    def call():
        view = dap.import_array(exported, w.comm)
        w.holds(view.to_pencil(w.across), w.data)

    return call


@case
def dap_round(w):
    pen = w.pen.with_(periodic=True)
    u = w.field(pen, halo=1)

    def call():
        u.exchange_halo()
        v = dap.import_array(u, w.comm)
        w.holds(v + u, 2 * w.data)
        dap.validate_on(w.comm, dap.export(u))

    return call


@case
def copies(w):
    u, kept = w.field(), pencils.recovery.BuddyCopies()
    again = w.zeros(w.across)

    def call():
        step = kept._complete + 1
        kept.save(step, {"u": u})
        again.fill(0)
        assert kept.resume({"u": again}).step == step
        w.holds(again, w.data)

    return call


if find_spec("mpi4py_fft"):

    @case
    def mpi4py_fft(w):
        from pencils.interop import mpi4py_fft as theirs

        u = w.field()
        return lambda: w.holds(theirs.to_array(theirs.from_array(u), w.comm), w.data)


@each(
    {
        "real": {"dtype": float},
        "complex": {"dtype": complex},
        "auto": {"dtype": float, "backend": "auto"},
    }
    | ({"fftw": {"dtype": float, "backend": "fftw"}} if find_spec("mpi4py_fft") else {})
)
def fft(w, value):
    value = {"backend": "scipy"} | value
    u = w.field(dtype=value["dtype"])
    data = w.expected(u)
    expected = (np.fft.rfftn if u.dtype.kind == "f" else np.fft.fftn)(data)

    def call():
        with PencilFFT(w.pen, **value) as plan:
            waves = plan.forward(u)
            w.holds_about(waves / data.size, expected / data.size)
            w.holds_about(plan.backward(waves), data)

    return call


@case
def fft_plan(w):
    pen = w.pen.with_(decomp=(0, 1))
    output = Pencil((*w.shape[:2], w.shape[2] // 2 + 1), w.comm, decomp=(0, 2))
    plan = PencilFFT(pen, backend="scipy", output=output)
    u = w.field(pen)

    def call():
        for tag in range(2):
            w.refill(u, tag)
            waves = plan.forward(u)
            expected = np.fft.rfftn(w.expected(u, tag))
            w.holds_about(waves / w.data.size, expected / w.data.size)
            w.holds_about(plan.backward(waves), w.expected(u, tag))
        w.refill(u)

    return call


@each({"2/3": "2/3", "3/2": "3/2"})
def fft_dealiased(w, value):
    u = w.field()

    def call():
        with PencilFFT(w.pen, backend="scipy", dealias=value) as plan:
            fine = plan.forward(w.field(plan.input_pencil))
            again = plan.forward(plan.backward(fine))
            w.about(again.local, fine.local)
            w.equal(u.sum(), w.data.sum())

    return call


@case
def fft_onto_itself(w):
    """Transform into memory that the field shares, from its first byte on."""
    plan = PencilFFT(w.pen.with_(decomp=0), axes=(1, 2), backend="scipy")
    here, there = plan.input_pencil.local_shape, plan.output_pencil.local_shape
    room = np.zeros(int(np.prod(there)), complex)
    waves = pencils.PencilArray(plan.output_pencil, room.reshape(there))
    points = room.view(float)[: int(np.prod(here))].reshape(here)
    u = pencils.PencilArray(plan.input_pencil, points)

    def call():
        w.refill(u)
        w.holds_about(plan.forward(u, waves), np.fft.rfftn(w.data, axes=(1, 2)))
        w.holds_about(plan.backward(waves, u), w.data)

    return call


@case
def fft_of_vectors(w):
    u = w.field(components=(2, 2), dtype="f4", halo=1)

    def call():
        with PencilFFT(w.pen, "f4", (2, 0), components=(2, 2), backend="scipy") as plan:
            back = plan.backward(plan.forward(u))
        w.record(back.local)
        assert np.allclose(back.local, w.expected(u)[back.local_slices], atol=1e-2)

    return call


@case
def halves(w):
    """Two communicators, whose ranks make other calls at the same time."""
    color = w.rank % 2
    comm = w.comm.Split(color, w.rank)
    pen = Pencil(w.shape, comm, periodic=True)
    u = w.field(pen, halo=1)

    def call():
        w.refill(u)
        if color:
            u.exchange_halo()
            w.holds(u.shift((1, 0, 0)) + 0, np.roll(w.data, -1, 0))
        else:
            w.holds(pencils.transpose(u, pen.with_(decomp=2)), w.data)
            w.equal(u.sum(), w.data.sum())
        v = w.field(tag=1)
        w.holds(pencils.transpose(v, w.across), numbers(w.shape, "f8", 1))

    return call


@case
def alone(w):
    """Each rank by itself, on the communicator of one."""

    def call():
        u = w.field(Pencil(w.shape, MPI.COMM_SELF), halo=1)
        u.exchange_halo()
        w.equal(pencils.gather(u), w.data)
        w.equal(w.field().sum(), w.data.sum())

    return call
