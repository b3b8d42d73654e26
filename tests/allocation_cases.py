"""Collective calls in which a test makes allocations fail. Each case makes its own fields.

There are no graphs: if one fails on a rank, only ranks that wait for its messages fail, too.
"""

import contextlib
import shutil
from functools import partial

import numpy as np
from mpi_helpers import reaching

import pencils
from pencils import (
    GlobalIndexer,
    GlobalMultiIndexer,
    HaloExchange,
    Interpolation,
    LineSolver,
    Pencil,
    ReduceOp,
    Transposition,
    dap,
)
from pencils.comm.pack import using
from pencils.fft import PencilFFT
from pencils.interop import mpi4py_fft as theirs

SHAPE = (36, 24, 20)
CASES = {}


class Here:
    """Pencils on a communicator, fields and points for the cases."""

    def __init__(self, comm, folder):
        self.comm = comm
        self.folder = folder
        self.pen = Pencil(SHAPE, comm)
        self.across = self.pen.with_(decomp=2)
        self.data = np.arange(float(np.prod(SHAPE))).reshape(SHAPE)
        # Each rank requests other points of the whole domain, some of them twice.
        rng = np.random.default_rng(comm.rank)
        self.coords = [rng.integers(0, n, 700) for n in SHAPE]
        self.places = [rng.uniform(0, n - 1, 700) for n in SHAPE]
        self.cuts = 500 * np.arange(comm.size + 1)
        # All of the next section, so that each item is written, and others.
        others = rng.integers(0, self.cuts[-1], 100)
        self.items = np.concatenate(
            [np.arange(500) + self.cuts[(comm.rank + 1) % comm.size], others]
        )

    def field(self, pen=None, **options):
        """Return a field of distinct numbers."""
        u = pencils.zeros(self.pen if pen is None else pen, **options)
        u.local[...] = self.data[u.pencil.local_slices].astype(u.dtype)
        return u

    def root(self, value):
        """Return the value on rank 0, and None elsewhere."""
        return value if self.comm.rank == 0 else None


def case(function):
    """Add a case: a function of `Here` that returns the call to test and the fields to check."""
    CASES[function.__name__] = function
    return function


def each(values):
    """Add a case for each of the values, by name."""

    def add(function):
        for name, value in values.items():
            CASES[f"{function.__name__} {name}"] = partial(function, value=value)
        return function

    return add


# ---- fields come and go ----


@case
def create_shared(here):
    return lambda: pencils.full(here.pen, 2.0, shared=True), []


@each({"root": 0, "root halo": 1})
def partition(here, value):
    return lambda: pencils.partition(here.pen, here.root(here.data), root=0, halo=value), []


@each({"lazy": 0})
def partition_lazy(here, value):
    class Lazy:
        shape, dtype = SHAPE, np.dtype(float)

        def __getitem__(self, key):
            return here.data[key].copy()

    return lambda: pencils.partition(here.pen, here.root(Lazy()), root=value), []


@each({"root": {}, "all": {"root": None}, "key": {"key": np.s_[::-2, 3:]}})
def gather(here, value):
    u = here.field()
    return lambda: pencils.gather(u, **value), [u]


@case
def gather_strided(here):
    u = here.field(here.pen.with_(decomp=(1, 2)), halo=2)
    return lambda: pencils.gather(u, root=here.comm.size - 1), [u]


# ---- fields move ----


@each({"new": False, "out": True})
def transpose(here, value):
    u = here.field()
    out = here.field(here.across) if value else None
    return lambda: pencils.transpose(u, here.across, out=out), [u, *([out] if value else [])]


@case
def transpose_in_place(here):
    pens = [here.pen, here.across]
    u, v = pencils.alias(pens)
    u.local[...] = here.data[here.pen.local_slices]
    back = u.copy()

    def call():
        pencils.transpose(back, here.pen, out=u)
        return pencils.transpose(u, here.across, out=v)

    return call, []


def _methods(*names):
    return {name: {"method": name} for name in reaching(names)}


@each(
    _methods("shared", "messages", "alltoallv", "alltoallw")
    | {
        "staging": {"max_buffer_bytes": 5000, "method": "messages"},
        "staging shared": {"max_buffer_bytes": 5000},
    }
)
def transposition(here, value):
    plan = Transposition(here.pen, here.across, **value)
    u, out = here.field(), here.field(here.across)
    return lambda: plan(u, out), [u, out]


@each(_methods("shared", "messages", "alltoallv", "alltoallw"))
def transposition_new_out(here, value):
    plan = Transposition(here.pen, here.across, **value)
    u = here.field()
    return lambda: plan(u), [u]


@each(_methods("auto", "messages") | {"bounded": {"max_buffer_bytes": 5000}})
def make_transposition(here, value):
    u, out = here.field(), here.field(here.across)

    def call():
        with Transposition(here.pen, here.across, **value) as plan:
            return plan(u, out)

    return call, [u, out]


@each(_methods("shared", "messages", "alltoallv", "alltoallw"))
def start_twice(here, value):
    plan = Transposition(here.pen, here.across, **value)
    pairs = [(here.field(), here.field(here.across)) for _ in range(2)]
    begun = []

    def call():
        while begun:  # what a failure left behind
            begun.pop().wait()
        begun.extend(plan.start(*pair) for pair in pairs)
        return [begun.pop().wait() for _ in pairs]

    return call, []


@each(_methods("messages", "alltoallv", "alltoallw"))
def aliased(here, value):
    plan = Transposition(here.pen, here.across, **value)
    u, v = pencils.alias([here.pen, here.across])

    def call():
        u.local[...] = here.data[here.pen.local_slices]
        return plan(u, v)

    return call, []


@each(_methods("messages", "shared"))
def many(here, value):
    plan = Transposition(here.pen, here.across, **value)
    us = [here.field(), here.field()]
    return lambda: plan.batch(us), us


@case
def transposition_work(here):
    plan = Transposition(here.pen, here.across)

    def call():
        u, out = plan.buffers()
        u.local[...] = 1.0
        return plan(u, out)

    return call, []


@case
def transposition_reversed(here):
    plan = Transposition(here.pen, here.across, method="messages")
    u = here.field(here.across)

    def call():
        with plan.reversed() as back:
            return back(u)

    return call, [u]


# ---- lines ----

LINES = {
    "local": {"axis": 2},
    "shared": {"shared": True},
    "reduced": {"method": "reduced"},
    "near": {"method": "reduced", "main": 9},
    "transposed": {"method": "transposed"},
    "fields": {"method": "transposed", "main": "field"},
}


def _line_solver(here, *, axis=0, main=2, method="auto", shared=False):
    pen = here.pen.with_(decomp=0)
    if method == "reduced" and SHAPE[0] < 3 * here.comm.size:  # blocks are too short for it
        method = "auto"
    diagonal = pencils.full(pen, 4.0) if main == "field" else main
    options = {"axis": axis, "diagonals": (1, diagonal, 1), "method": method}
    return partial(LineSolver, pen, **options), here.field(pen, shared=shared)


@each(LINES)
def line_solver(here, value):
    make, b = _line_solver(here, **value)
    plan, out = make(), b.copy()
    return lambda: plan(b, out), [b, out]


@each(LINES)
def line_solver_new_out(here, value):
    make, b = _line_solver(here, **value)
    plan = make()
    return lambda: plan(b), [b]


@each(LINES)
def line_solver_start_twice(here, value):
    make, b = _line_solver(here, **value)
    plan, begun = make(), []

    def call():
        while begun:  # what a failure left behind
            begun.pop().wait()
        begun.extend(plan.start(b) for _ in range(2))
        return [begun.pop().wait() for _ in range(2)]

    return call, [b]


@each({"reduced": False, "shared": True})
def solve_banded(here, value):
    b = here.field(here.pen.with_(decomp=0), shared=value)
    ab = np.ones((3, SHAPE[0])) * [[1], [4], [1]]
    return lambda: pencils.solve_banded((1, 1), ab, b, axis=0), [b]


@each({"first": {}, "second": {"derivative": 2}, "along whole lines": {"axis": 2}})
def derivative(here, value):
    u = here.field(here.pen.with_(decomp=0))
    options = {"axis": 0} | value
    return lambda: pencils.derivative(u, **options), [u]


@each({"between walls": {}, "on a ring": {"periodic": True, "wind": 1}})
def midpoints(here, value):
    u = here.field(here.pen.with_(decomp=0))
    return lambda: pencils.midpoints(u, 0, **value), [u]


@each({"whole": 2, "cut": 0})
def along_lines(here, value):
    u = here.field(here.pen.with_(decomp=0))
    return lambda: pencils.along(np.flip, u, value), [u]


@each(LINES)
def make_line_solver(here, value):
    make, b = _line_solver(here, **value)

    def call():
        with make() as plan:
            return plan(b)

    return call, [b]


@each(_methods("reduced", "transposed"))
def line_solver_of_numpy(here, value):
    make, b = _line_solver(here, **value)
    out = b.copy()
    with using("numpy"):
        plan = make()

    def call():
        with using("numpy"):
            return plan(b, out)

    return call, [b, out]


# ---- ghosts ----


@each({"exchange": "exchange_halo", "accumulate": "accumulate_halo"})
def halo(here, value):
    u = here.field(here.pen.with_(periodic=True), halo=2)

    def call():
        getattr(u, value)()
        return u.padded

    return call, [u]


@case
def exchange_halos(here):
    us = [here.field(here.pen.with_(periodic=True), halo=1, dtype=kind) for kind in ("f8", "f4")]

    def call():
        pencils.halo.exchange_halos(us)
        return [u.padded for u in us]

    return call, us


@case
def start_halo_exchange(here):
    u = here.field(here.pen.with_(periodic=True), halo=2)

    def call():
        u.start_halo_exchange().wait()
        return u.padded

    return call, [u]


@each(
    _methods("messages", "shared")
    | {"sweeps": {"route": "sweeps", "method": "messages"}, "star": {"corners": False}}
)
def halo_plan(here, value):
    u = here.field(here.pen.with_(periodic=True), halo=2)
    plan = HaloExchange(u, **value)

    def call():
        plan(u)
        return u.padded

    return call, [u]


@each(_methods("messages", "shared"))
def halo_plan_accumulate(here, value):
    u = here.field(here.pen.with_(periodic=True), halo=2)
    plan = HaloExchange(u, **value)

    def call():
        plan.accumulate(u)
        return u.padded

    return call, [u]


@case
def halo_start(here):
    us = [here.field(here.pen.with_(periodic=True), halo=2) for _ in range(2)]
    plan = HaloExchange(us[0], method="messages")
    begun = []

    def call():
        while begun:
            begun.pop().wait()
        begun.extend(plan.start(u) for u in us)
        while begun:
            begun.pop().wait()
        return [u.padded for u in us]

    return call, []


# ---- points ----


@each({"private": {}, "shared": {"shared": True}})
def take(here, value):
    u = here.field(**value)
    return lambda: u.take_points(here.coords), [u]


@case
def take_onto_itself(here):
    u = here.field(shared=True)
    out = u.local.reshape(-1)[:700]
    return lambda: u.take_points(here.coords, out), [u]


@each({"last": None, "sum": ReduceOp.SUM})
def put(here, value):
    u = here.field()
    values = np.arange(700.0)

    def call():
        u.put_points(here.coords, values, reduce=value)
        return u.local

    return call, [u]


@case
def put_converted(here):
    u = here.field(here.pen.with_(order=(2, 1, 0)), dtype=">f4", halo=1)

    values = np.arange(700)

    def call():
        u.put_points(here.coords, values)
        return u.local

    return call, [u]


@case
def put_replicas(here):
    u = pencils.zeros(here.pen, dims=(1, 2), components=30)
    values = np.arange(30 * 50.0).reshape(30, 50)
    coords = [0, *(index[:50] for index in here.coords[1:])]

    def call():
        u.put_points(coords, values)
        return u.local

    return call, [u]


@each({"kernels": None, "numpy": "numpy"})
def indexer(here, value):
    u, v = here.field(shared=True, components=2), here.field(components=2)
    out = np.empty((2, 700))

    def call():
        with (
            using(value) if value else contextlib.nullcontext(),
            pencils.PointIndexer(here.pen, here.coords) as at,
        ):
            at.take(u, out)
            at.put(v, out)
            return out, v.local, u.take_points(here.coords)

    return call, [u]


@each({"take": "take", "put": "put"})
def indexer_start(here, value):
    at = pencils.PointIndexer(here.pen, here.coords)
    us = [here.field() for _ in range(2)]
    more = [np.arange(700.0)] if value == "put" else []
    begun = []

    def call():
        while begun:
            begun.pop().wait()
        begun.extend(getattr(at, f"{value}_start")(u, *more) for u in us)
        return [begun.pop().wait() for _ in us] if value == "take" else _all(begun, us)

    return call, []


def _all(begun, us):
    while begun:
        begun.pop().wait()
    return [u.local for u in us]


def _section(here, count=1):
    return np.arange(500.0 * count) + here.comm.rank


@each({"plain": {}, "rows": {"count": 3}, "sum": {"reduce": ReduceOp.SUM}})
def global_take(here, value):
    at = GlobalIndexer(here.cuts, here.items, here.comm)
    section = _section(here, value.get("count", 1))
    return lambda: at.Take(section, None, **value), [section]


@each({"plain": {}, "rows": {"count": 3}, "sum": {"reduce": ReduceOp.SUM}})
def global_put(here, value):
    at = GlobalIndexer(here.cuts, here.items, here.comm)
    values = np.arange(600.0 * value.get("count", 1))
    return lambda: at.Put(values, None, **value), [values]


@case
def global_put_into(here):
    at = GlobalIndexer(here.cuts, here.items, here.comm)
    values, section = np.arange(600.0), _section(here)
    return lambda: at.Put(values, section), [section]


@case
def global_start(here):
    at = GlobalIndexer(here.cuts, here.items, here.comm)
    values, section = np.arange(600.0), _section(here)

    def call():
        return at.Take_start(section).wait(), at.Put_start(values).wait()

    return call, [section]


@case
def global_objects(here):
    at = GlobalIndexer(here.cuts, here.items, here.comm)
    section = [f"{here.comm.rank} {item}" for item in range(500)]
    values = [f"{here.comm.rank} {item}" for item in range(600)]

    def call():
        return [at.take(section), at.put(values)]

    return call, []


@case
def global_ragged(here):
    at = GlobalIndexer(here.cuts, here.items, here.comm)
    counts = np.arange(500) % 3
    section = counts, np.arange(float(counts.sum()))
    lengths = np.arange(600) % 4
    values = lengths, np.arange(float(lengths.sum()))

    def call():
        return [*at.Take_v(section), *at.Put_v(values), *at.Put_v(values, section, extend=True)]

    return call, []


@case
def global_make(here):
    section = _section(here)

    def call():
        with GlobalIndexer(here.cuts, here.items, here.comm) as at:
            return at.Take(section)

    return call, [section]


@case
def global_lists(here):
    at = GlobalMultiIndexer(here.cuts, [here.items, here.items[:300]], here.comm)
    section, values = _section(here), [np.arange(600.0), np.arange(300.0)]

    def call():
        return [*at.Take(section), at.Put(values), at.Put(values, None, reduce=ReduceOp.MAX)]

    return call, [section]


@each({"plain": {}, "fill": {"fill_value": 0.0}})
def interpolate(here, value):
    u = here.field()
    return lambda: pencils.interpolate(u, here.places, **value), [u]


@case
def interpolation(here):
    u, v = here.field(), here.field()

    def call():
        with Interpolation(here.pen, here.places) as at:
            found = at(u)
            at.deposit(v, found)
            return found, v.local

    return call, [u]


@case
def deposit(here):
    v = here.field()
    at = Interpolation(here.pen, here.places)
    values = np.arange(700.0)

    def call():
        at.deposit(v, values)
        return v.local

    return call, [v]


# ---- along an axis ----


@each(
    {
        "cumsum": lambda u: np.cumsum(u, 0),
        "nancumprod": lambda u: np.nancumprod(u, 0),
        "roll": lambda u: np.roll(u, (1, 2), (0, 2)),
        "flip": lambda u: np.flip(u, 0),
        "gradient": np.gradient,
        "gradient of coordinates": lambda u: np.gradient(u, np.arange(36) ** 2, axis=0),
        "diff": lambda u: np.diff(u, axis=0),
        "second diff": lambda u: np.diff(u, 2, 0),
        "trapezoid": lambda u: np.trapezoid(u, axis=0),
    }
)
def along(here, value):
    u = here.field()
    return lambda: value(u), [u]


# ---- one value of many ----


@each(
    {
        "sum": lambda u: u.sum(axis=0),
        "mean": lambda u: u.mean(axis=(0, 1)),
        "max": lambda u: u.max(axis=2),
        "min": lambda u: u.min(axis=0),
        "std": lambda u: u.std(axis=0),
        "var": lambda u: u.var(),
        "argmin": lambda u: u.argmin(),
        "any": lambda u: u.any(axis=1),
        "norm": np.linalg.norm,
        "vdot": lambda u: np.vdot(u, u),
        "allclose": lambda u: np.allclose(u, u),
        "array_equal": lambda u: np.array_equal(u, u),
        "initial": lambda u: u.sum(axis=0, initial=3.0),
        "median": np.median,
        "quantiles": lambda u: np.quantile(u, np.linspace(0, 1, 9)),
    }
)
def reduction(here, value):
    u = here.field()
    return lambda: value(u), [u]


@case
def reduction_swapped(here):
    u = here.field(dtype=">f8")
    return lambda: u.sum(axis=0), [u]


@case
def reduction_order(here):
    u = here.field(here.pen.with_(order=(2, 0, 1)))
    return lambda: u.max(axis=0), [u]


@case
def reduction_where(here):
    u = here.field()
    mask = u > 3
    return lambda: np.sum(u, axis=1, where=mask), [u]


@case
def verify_replicas(here):
    u = pencils.zeros(here.pen, dims=(1, 2), components=30)
    return lambda: pencils.debug.verify_replicas(u), [u]


# ---- files ----


@each({"plain": {}, "compressed": {"compression": "gzip"}, "later": {"wait": False}})
def save(here, value):
    u = here.field()
    path = here.folder / "save.h5"

    def call():
        saving = pencils.save(path, {"u": u, "n": 3}, **value)
        if saving is not None and hasattr(saving, "wait"):
            saving.wait()

    return call, [u]


@each({"plain": {}, "compressed": {"compression": "gzip"}})
def save_several(here, value):
    kinds = {"a": float, "b": float, "c": "f4", "d": float}
    fields = {name: here.field(here.across, dtype=dtype) for name, dtype in kinds.items()}
    path = here.folder / "several.h5"
    return lambda: pencils.save(path, fields, **value), [*fields.values()]


@each({"plain": {}, "compressed": {"compression": "gzip"}})
def load(here, value):
    path = here.folder / "load.h5"
    pencils.save(path, {"u": here.field()}, **value)
    return lambda: pencils.load(path, here.across)["u"], []


@case
def verify(here):
    path = here.folder / "verify.h5"
    pencils.save(path, {"u": here.field()})
    return lambda: pencils.verify(path), []


@case
def open_read(here):
    path = here.folder / "open.h5"
    pencils.save(path, {"u": here.field()})

    def call():
        with pencils.open(path, comm=here.comm) as file:
            return file["u"].read(here.across)

    return call, []


@case
def open_write(here):
    u, path = here.field(here.across), here.folder / "written.h5"
    pencils.save(path, {"u": u})

    def call():
        with pencils.open(path, "r+", here.comm) as file:
            file["u"].write(u)

    return call, [u]


@case
def time_series(here):
    u, v, w = here.field(), here.field(here.across), here.field(here.across)

    def call():
        path = here.folder / "series.h5"
        if here.comm.rank == 0:
            path.unlink(missing_ok=True)
        here.comm.Barrier()
        with pencils.TimeSeries(path, comm=here.comm) as series:
            series.append(1.0, {"u": u, "v": v, "w": w})

    return call, [u, v, w]


@case
def checkpoint_series(here):
    u = here.field()

    def call():
        steps = here.folder / "steps"
        if here.comm.rank == 0:
            shutil.rmtree(steps, ignore_errors=True)
        here.comm.Barrier()
        with pencils.CheckpointSeries(steps, comm=here.comm) as series:
            series.save(1, {"u": u})

    return call, [u]


# ---- other worlds ----


@case
def copies_save(here):
    u, copies = here.field(), pencils.BuddyCopies()
    return lambda: copies.save(copies._complete + 1, {"u": u}), [u]


@case
def copies_resume(here):
    u, copies = here.field(), pencils.BuddyCopies()
    copies.save(1, {"u": u})
    again = pencils.zeros(here.across)
    return lambda: copies.resume({"u": again}).step, [again]


def _maps(here):
    size, rank = here.comm.size, here.comm.rank
    return [
        dap.CyclicMap(size=SHAPE[0], nprocs=size, rank=rank, block_size=2),
        *(dap.BlockMap(size=n, start=0, stop=n) for n in SHAPE[1:]),
    ]


def _lists(here):
    points = np.arange(SHAPE[0])[::-1][here.comm.rank :: here.comm.size].copy()
    first = dap.UnstructuredMap(
        size=SHAPE[0],
        nprocs=here.comm.size,
        rank=here.comm.rank,
        indices=points,
        one_to_one=True,
    )
    return [first, *_maps(here)[1:]]


@case
def dap_export_lists(here):
    u = here.field()
    return lambda: np.asarray(dap.export_as(u, _lists(here))["buffer"]), [u]


@case
def dap_import_lists(here):
    exported = dap.export_as(here.field(), _lists(here))
    return lambda: dap.import_array(exported, here.comm).to_pencil(here.across), []


@case
def dap_export(here):
    u = here.field()
    return lambda: np.asarray(dap.export_as(u, _maps(here))["buffer"]), [u]


@case
def dap_import(here):
    exported = dap.export_as(here.field(), _maps(here))
    return lambda: dap.import_array(exported, here.comm).to_pencil(here.across), []


@each({"fftw": {"backend": "fftw"}})  # SciPy allocates a little in the midst
def fft(here, value):
    u = here.field()

    def call():
        with PencilFFT(here.pen, **value) as plan:
            return plan.backward(plan.forward(u))

    return call, []


@each({"fftw": {"backend": "fftw"}})  # SciPy allocates a little in the midst
def fft_plan(here, value):
    plan = PencilFFT(here.pen, **value)
    u = here.field()
    return lambda: plan.backward(plan.forward(u)), []


@case
def mpi4py_fft(here):
    u = here.field()
    return lambda: theirs.to_array(theirs.from_array(u), here.comm), [u]
