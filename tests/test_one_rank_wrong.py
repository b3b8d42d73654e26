"""What one rank gets wrong raises on all ranks of a collective call, and only there of a local one.

Each entry of the tables below is one argument of one function that is bad, or that is good but
another one than elsewhere, on one rank only. No rank may be left waiting, and the same call must
work afterwards.
"""

# ruff: noqa: FBT003 - of values in tables

import re
import shutil
import signal
import tempfile
import weakref
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiers
from mpi4py import MPI
from mpi_helpers import everywhere, other_blocks, ranks_at_fault

import pencils
from pencils import (
    GlobalIndexer,
    GlobalMultiIndexer,
    HaloExchange,
    Pencil,
    PencilArray,
    Transposition,
    dap,
)
from pencils.errors import RankDisagreementError
from pencils.fft import PencilFFT
from pencils.indexer import Interpolation, ReduceOp, interpolate
from pencils.interop import mpi4py_fft as theirs
from pencils.lines import CompactDerivative, LineSolver

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])
several = pytest.mark.parallel([2, 3, 4, 6])

SHAPE = (6, 5, 4)


class Name(str):
    """Names something that exists only once MPI runs: an attribute of what `here` gives."""

    __slots__ = ()

    def __repr__(self):
        return str(self)


class Names:
    """Gives names as attributes: ``the.u``."""

    def __getattr__(self, name):
        return Name(name)

    __getitem__ = __getattr__


the = Names()


def rows(functions, argument, *values):
    """Rows of a table: an argument of each of some functions, and values of it."""
    return [(function, argument, *values) for function in functions]


class Mute:
    """Has no text. A proxy of one that is gone has no class, either."""

    def __repr__(self):
        raise ValueError("it has no text")


class Yes:
    """Is true some times, then neither true nor false."""

    def __init__(self, times):
        self.times = times

    def __bool__(self):
        self.times -= 1
        if self.times < 0:
            raise ValueError("it was asked before")
        return True


@pytest.fixture(scope="module")
def here(comm):
    """Pencils, fields and plans to be right and wrong with."""
    pen = Pencil(SHAPE, comm)
    across = pen.with_(decomp=2)
    larger = pen.with_(shape=(7, 5, 4))
    flat = Pencil((6, 5), comm, decomp=0)
    # One point that is decomposed: rank 0 has it, and as a singleton all ranks do.
    thin = Pencil((6, 1, 4), comm, decomp=1)
    alone = Pencil(SHAPE, MPI.COMM_SELF)
    u = pencils.ones(pen)
    readonly = pencils.ones(across)
    readonly.local.flags.writeable = False
    h_other, h_alone = pencils.ones(pen, dtype="i4", halo=2), pencils.ones(alone, halo=1)
    ghosted = {
        "h": pencils.ones(pen, halo=1),
        "h_wide": pencils.ones(pen, halo=2),
        "h_short": pencils.ones(pen, dtype="f4", halo=1),
        "h_vector": pencils.ones(pen, components=3, halo=1),
        "h_plane": pencils.ones(pen, dims=(1, 2), halo=1),
        "h_across": pencils.ones(across, halo=1),
        "h_turned": pencils.ones(pen.with_(order=(2, 1, 0)), halo=1),
        "h_larger": pencils.ones(pen.with_(shape=(8, 5, 4)), halo=1),  # (7, 5, 4): a staggered grid
        "h_readonly": pencils.ones(pen, halo=1),
        "h_mask": pencils.ones(pen, dtype=bool, halo=1),
    }
    h, h_wide = ghosted["h"], ghosted["h_wide"]
    ghosted["h_readonly"].padded.flags.writeable = False
    pairs = {name.replace("h", "hs", 1): [field, h_other] for name, field in ghosted.items()}
    # Two points, and two items of a collection that has three on every rank.
    points, cuts, items = ([0, 5], 1, [2, 0]), 3 * np.arange(comm.size + 1), [0, 2]
    waves = pen.with_(shape=(6, 5, 3))
    # By name: how a plan is made, and another one.
    makers = {
        "plan": (partial(Transposition, pen, across), partial(Transposition, across, pen)),
        "halo_plan": (
            partial(HaloExchange, [h, h_other]),
            partial(HaloExchange, [h, h_other], corners=False),
        ),
        "lines": tuple(partial(LineSolver, pen, 0, (1, n, 1)) for n in (4, 5)),
        "slope": tuple(partial(CompactDerivative, pen, 0, order=order) for order in (6, 4)),
        "fft": tuple(
            partial(PencilFFT, pen, output=waves, normalize=kind) for kind in ("backward", "ortho")
        ),
        "indexer": 2 * (partial(pencils.indexer.PointIndexer, pen, points),),
        "cloud": 2 * (partial(Interpolation, pen, points),),
        "single": 2 * (partial(GlobalIndexer, cuts, items, comm),),
        "lists": 2 * (partial(GlobalMultiIndexer, cuts, [items, [1]], comm),),
    }
    plans = {name: make() for name, (make, _) in makers.items()}
    plans |= {f"{name}_other": make() for name, (_, make) in makers.items()}
    freed = {f"{name}_freed": make() for name, (make, _) in makers.items()}
    for plan in freed.values():
        plan.free()
    maps = [
        dap.BlockMap(size=6, start=0, stop=6),
        dap.CyclicMap(size=5, nprocs=comm.size, rank=comm.rank, block_size=2),
        dap.CyclicMap(size=4),
    ]
    maps_short = [*maps[:2], dap.CyclicMap(size=3)]
    view = dap.import_array(dap.export_as(u, maps), comm)
    known = SimpleNamespace(
        **plans,
        **freed,
        **ghosted,
        **pairs,
        comm=comm,
        maps=maps,
        maps_short=maps_short,
        view=view,
        view_short=replace(view, buffer=view.buffer.astype("f4")),
        apart=comm.Dup(),  # never seen by the library
        pen=pen,
        across=across,
        other=other_blocks(pen),
        larger=larger,
        flat=flat,
        alone=alone,
        data=np.ones(SHAPE),
        u=u,
        vector=pencils.ones(pen, components=3),
        short=pencils.ones(pen, dtype="f4"),
        plane=pencils.ones(pen, dims=(1, 2)),
        u_across=pencils.ones(across),
        u_larger=pencils.ones(larger),
        u_flat=pencils.ones(flat),
        u_alone=pencils.ones(alone),
        u_thin=pencils.ones(thin),
        u_single=pencils.ones(thin, dims=(0, 2)),
        mask=u > 0,
        data_mask=np.ones(SHAPE, bool),
        mask_across=pencils.ones(across, dtype=bool),
        mask_alone=pencils.ones(alone, dtype=bool),
        out=pencils.empty(across),
        short_out=pencils.empty(across, dtype="f4"),
        readonly=readonly,
        thin=thin,
        thin_across=thin.with_(decomp=0),
        diagonal_fields=(1, 4 * u, 1),
        diagonal_across=(1, pencils.ones(across), 1),
        diagonal_larger=(1, pencils.ones(larger), 1),
        diagonal_vector=(1, pencils.ones(pen, components=3), 1),
        diagonal_alone=(1, pencils.ones(alone), 1),
        diagonal_gone=(1, weakref.proxy(Mute()), 1),
        diagonal_nan=(1, pencils.full(pen, np.nan), 1),
        rows=pencils.ones(pen, dims=(1, 2)),
        waves=waves,
        waves_across=waves.with_(decomp=2),
        waves_alone=Pencil((6, 5, 3), MPI.COMM_SELF),
        u_hat=pencils.ones(waves, dtype=complex),
        u_hat_short=pencils.ones(waves, dtype="c8"),
        u_hat_vector=pencils.ones(waves, dtype=complex, components=3),
        pair=[pen, across],
        pair_alone=[alone, alone],
        pair_other=[across, pen],
        pair_not_alone=[pen, alone],
        pair_fields=[u, u],
        pair_gone=[pen, weakref.proxy(Mute())],
        us=[u, u],
        us_across=[pencils.ones(across)] * 2,
        us_short=[u, pencils.ones(pen, dtype="f4")],
        us_three=[u, u, u],
        outs=[pencils.empty(across), pencils.empty(across)],
        outs_one=[pencils.empty(across)],
        outs_readonly=[pencils.empty(across), readonly],
        outs_none=[None, None],
        hs_one=[h],
        hs_three=[h, h_other, h_wide],
        hs_swapped=[h_other, h],
        hs_twice=[h, h],
        hs_none=[h, None],
        hs_data=[h.padded, h_other.padded],
        hs_alone=[h_other, h_alone],
        hs_mapping={0: h, 1: h_other},
        hs_gone=[h, weakref.proxy(Mute())],
        gone=weakref.proxy(Mute()),
        mute=Mute(),
        exported=dap.export(u),
        exported_old=dap.export(u, "0.9.0"),
        exported_short={**dap.export(u), "buffer": u.local[1:]},
        exported_times={**dap.export(u), "buffer": np.ones(3, "M8[s]")},
        exported_larger=dap.export(pencils.ones(larger)),
        cuts=cuts,
        cuts_other=np.maximum(cuts - 1, 0),
        target=pencils.ones(pen),
        block=np.ones(pen.local_shape),
        block_short=np.ones(pen.local_shape, "f4"),
        block_vector=np.ones((3, *pen.local_shape)),
        block_wide=np.ones([n + 2 for n in pen.local_shape]),
        block_objects=np.ones(pen.local_shape, object),
        u_readonly=PencilArray(pen, np.broadcast_to(1.0, pen.local_shape)),
        fields={"u": u},
        fields_other={"u": pencils.ones(across)},
        fields_short={"u": pencils.ones(pen, dtype="f4")},
        fields_renamed={"v": u},
        fields_unnamed={"": u},
        fields_numbered={3: u},
        fields_array={"u": np.ones(SHAPE)},
        fields_more={"u": u, "dt": 0.1},
        fields_none={"u": u, "dt": None},
        fields_two={"u": u, "u/v": u},
        fields_vector={"u": pencils.ones(pen, components=3)},
        fields_readonly={"u": readonly},
        fields_into={"u": pencils.zeros(pen)},
        fields_part={"u": (u, np.s_[..., ::2])},
        fields_wrong_part={"u": (u, np.s_[..., 99])},
        fields_alone={"u": pencils.ones(alone)},
        grid=pencils.localgrid(pen, [np.arange(n) for n in SHAPE]),
        grid_other=pencils.localgrid(pen, [np.arange(n) + 0.5 for n in SHAPE]),
        grid_named=pencils.localgrid(pen, [np.arange(n) for n in SHAPE], names=["u", "v", "w"]),
    )
    yield known
    for plan in plans.values():
        plan.free()
    known.apart.Free()


# Functions by name, with arguments that are good on all ranks.

REDUCTIONS = {
    **{
        name: (getattr(PencilArray, name), {"u": the.u})
        for name in (
            *("sum", "prod", "min", "max", "mean", "var", "std", "any", "all"),
            *("argmin", "argmax", "norm"),
        )
    },
    **{
        name: (lambda u, _function=function, **rest: _function(u, **rest), {"u": the.u})
        for name, function in (
            ("count_nonzero", np.count_nonzero),
            ("ptp", np.ptp),
            ("np.sum", np.sum),
            ("np.add.reduce", np.add.reduce),
            ("np.linalg.norm", np.linalg.norm),
        )
    },
}
AXES = [name for name in REDUCTIONS if "norm" not in name]
CONVERTING = ["sum", "prod", "mean", "var", "std", "np.add.reduce"]
STARTING = ["sum", "prod", "min", "max", "np.add.reduce"]
MASKED = [*CONVERTING, "min", "max", "any", "all"]
PAIRS = {
    name: (lambda one, other, _f=function, **rest: _f(one, other, **rest), good)
    for name, function, good in (
        ("vdot", np.vdot, {"one": the.u, "other": the.u}),
        ("allclose", np.allclose, {"one": the.u, "other": the.u}),
        ("array_equal", np.array_equal, {"one": the.u, "other": the.u}),
    )
}
MAKING = {
    name: (getattr(pencils, name), {"pencil": the.pen, "shared": True})
    for name in ("empty", "zeros", "ones")
} | {"full": (pencils.full, {"pencil": the.pen, "fill_value": 2.5, "shared": True})}


def calling(method, *names):
    """Call a method of a plan, with what has these names, if given, by position."""

    def call(plan, **rest):
        positional = [rest.pop(name) for name in names if name in rest]
        return getattr(plan, method)(*positional, **rest)

    return call


def made(kind):
    """Make a plan or open a file, and free or close it."""

    def call(**rest):
        with kind(**rest):
            pass

    return call


def start_and_wait(plan, u, out=None):
    return plan.start(u, out).wait()


def call_halo_plan(plan, fields):
    plan(*fields)


def start_halo_plan(plan, fields):
    plan.start(*fields).wait()


def accumulate_by_plan(plan, fields):
    plan.accumulate(*fields)


def turn_around(plan):
    with plan.reversed() as back:
        return back


class Function:
    """A function of blocks for `along`, with a name that is the same in all processes."""

    def __init__(self, name, function):
        self._name, self._function = name, function

    def __call__(self, block, _axis):
        return self._function(block)

    def __repr__(self):
        return self._name


def fill_and_wait(u, **rest):
    PencilArray.start_halo_exchange(u, **rest).wait()


POINTS = ([0, 5], 1, [2, 0])
POINTWISE = {
    "u.take_points": (PencilArray.take_points, {"u": the.u, "coords": POINTS}),
    "u.put_points": (PencilArray.put_points, {"u": the.target, "coords": POINTS, "values": 1}),
    "indexer": (made(pencils.indexer.PointIndexer), {"pencil": the.pen, "coords": POINTS}),
    "indexer.take": (calling("take", "u"), {"plan": the.indexer, "u": the.u}),
    "indexer.put": (
        calling("put", "u", "values"),
        {"plan": the.indexer, "u": the.target, "values": [1, 2]},
    ),
    "interpolate": (interpolate, {"u": the.u, "points": POINTS}),
    "Interpolation": (made(Interpolation), {"pencil": the.pen, "points": POINTS}),
    "cloud": (calling("__call__", "u"), {"plan": the.cloud, "u": the.u}),
    "deposit": (
        calling("deposit", "u", "values"),
        {"plan": the.cloud, "u": the.target, "values": [1, 2]},
    ),
    "GlobalIndexer": (made(GlobalIndexer), {"distri": the.cuts, "g_idx": [0, 2], "comm": the.comm}),
    "GlobalMultiIndexer": (
        made(GlobalMultiIndexer),
        {"distri": the.cuts, "g_idx_l": [[0, 2], []], "comm": the.comm},
    ),
    "single.Take": (
        calling("Take", "dist_data", "local_data"),
        {"plan": the.single, "dist_data": np.ones(6), "count": 2},
    ),
    "single.Put": (
        calling("Put", "local_data", "dist_data"),
        {"plan": the.single, "local_data": np.ones(4), "count": 2},
    ),
    "lists.Take": (
        calling("Take", "dist_data", "local_data_l"),
        {"plan": the.lists, "dist_data": np.ones(6), "count": 2},
    ),
    "lists.Put": (
        calling("Put", "local_data_l", "dist_data"),
        {"plan": the.lists, "local_data_l": [np.ones(4), np.ones(2)], "count": 2},
    ),
}
# Which argument names the points, the field and the plan.
COORDS = {"u.take_points": "coords", "u.put_points": "coords", "indexer": "coords"}
COORDS |= {"interpolate": "points", "Interpolation": "points"}
POINT_PLANS = {"indexer.take": "indexer", "indexer.put": "indexer"}
POINT_PLANS |= {"cloud": "cloud", "deposit": "cloud"}
LIST_PLANS = {"single.Take": "single", "single.Put": "single"}
LIST_PLANS |= {"lists.Take": "lists", "lists.Put": "lists"}


def save_and_wait(path, fields, **options):
    pencils.save(path, fields, wait=False, **options).wait()


def read_part(path, pencil, key=...):
    return pencils.open(path)["u"].read(pencil, key)


def write_part(path, field, key=...):
    file = pencils.open(path, "r+")
    try:
        file["u"].write(field, key)
    finally:  # all ranks get here, or none
        file.close()


def save_next(directory, fields, step=9, **rest):
    with pencils.CheckpointSeries(directory) as checkpoints:
        checkpoints.resume(Pencil(SHAPE), ())
        checkpoints.save(step, fields, **rest)


def resume(directory, template, **rest):
    with pencils.CheckpointSeries(directory) as checkpoints:
        checkpoints.resume(template, **rest)


def append(path, fields, time):
    """Append to what may be there from a call before, as if it were not."""
    series = pencils.TimeSeries(path)
    try:
        series.truncate(-1)
        series.append(time, fields)
    finally:  # all ranks get here, or none
        series.close()


def truncate(path, time):
    series = pencils.TimeSeries(path)
    try:
        series.truncate(time)
    finally:  # all ranks get here, or none
        series.close()


LINE_VERBS = {
    "solve_banded": (
        pencils.lines.solve_banded,
        {"l_and_u": (1, 1), "ab": np.array([[1.0] * 6, [4.0] * 6, [1.0] * 6]), "b": the.u}
        | {"axis": 0},
    ),
    "derivative": (pencils.derivative, {"u": the.u, "axis": 0}),
    "midpoints": (pencils.lines.midpoints, {"u": the.u, "axis": 0}),
    "along": (
        pencils.functions.along,
        {"f": Function("twice", lambda block: 2 * block), "u": the.u, "axis": 0},
    ),
}
# Which argument is the field, of each of them and of each plan of lines.
LINE_FIELDS = {"solve_banded": "b", "derivative": "u", "midpoints": "u", "along": "u"}
LINE_MAKERS = ["LineSolver", "CompactDerivative"]
DIFFERENCES = ["CompactDerivative", "derivative"]
LINE_PLANS = {"lines": "lines", "lines.start": "lines", "slope": "slope", "slope.start": "slope"}

CALLS = {
    "Pencil": (Pencil, {"shape": SHAPE, "comm": the.comm}),
    "with_": (lambda pencil, **rest: pencil.with_(**rest), {"pencil": the.pen}),
    "staggered": (lambda pencil, **rest: pencil.staggered(**rest), {"pencil": the.pen, "axis": 0}),
    "partition": (pencils.partition, {"pencil": the.pen, "data": the.mine, "root": the.wrong}),
    "gather": (pencils.gather, {"u": the.u, "root": the.wrong}),
    "transpose": (pencils.transpose, {"u": the.u, "pencil": the.across}),
    "Transposition": (made(Transposition), {"source": the.pen, "target": the.across}),
    "plan": (calling("__call__", "u", "out"), {"plan": the.plan, "u": the.u}),
    "start": (start_and_wait, {"plan": the.plan, "u": the.u}),
    "batch": (calling("batch", "us", "outs"), {"plan": the.plan, "us": the.us, "outs": the.outs}),
    "buffers": (calling("buffers"), {"plan": the.plan}),
    "reversed": (turn_around, {"plan": the.plan}),
    "LineSolver": (made(LineSolver), {"pencil": the.pen, "axis": 0, "diagonals": (1, 4, 1)}),
    "lines": (calling("__call__", "u", "out"), {"plan": the.lines, "u": the.u}),
    "lines.start": (start_and_wait, {"plan": the.lines, "u": the.u}),
    "CompactDerivative": (made(CompactDerivative), {"pencil": the.pen, "axis": 0}),
    "slope": (calling("__call__", "u", "out"), {"plan": the.slope, "u": the.u}),
    "slope.start": (start_and_wait, {"plan": the.slope, "u": the.u}),
    **LINE_VERBS,
    "PencilFFT": (made(PencilFFT), {"pencil": the.pen}),
    "fft.forward": (calling("forward", "u"), {"plan": the.fft, "u": the.u}),
    "fft.backward": (calling("backward", "u"), {"plan": the.fft, "u": the.u_hat}),
    "PencilArray": (PencilArray, {"pencil": the.pen, "local_data": the.block}),
    "alias": (pencils.alias, {"pencils": the.pair, "shared": True}),
    "verify_replicas": (pencils.debug.verify_replicas, {"u": the.u}),
    "exchange_halos": (pencils.halo.exchange_halos, {"fields": the.hs}),
    "exchange_halo": (PencilArray.exchange_halo, {"u": the.h}),
    "start_halo_exchange": (fill_and_wait, {"u": the.h}),
    "accumulate_halo": (PencilArray.accumulate_halo, {"u": the.h}),
    "HaloExchange": (made(HaloExchange), {"fields": the.hs}),
    "halo plan": (call_halo_plan, {"plan": the.halo_plan, "fields": the.hs}),
    "halo start": (start_halo_plan, {"plan": the.halo_plan, "fields": the.hs}),
    "halo accumulate": (accumulate_by_plan, {"plan": the.halo_plan, "fields": the.hs}),
    **REDUCTIONS,
    **PAIRS,
    **MAKING,
    **POINTWISE,
    "dap.validate_on": (dap.validate_on, {"comm": the.comm, "exported": the.exported}),
    "dap.import_array": (dap.import_array, {"obj": the.exported, "comm": the.comm}),
    "from_distarray": (PencilArray.from_distarray, {"pencil": the.pen, "obj": the.exported}),
    "dap.export_as": (dap.export_as, {"u": the.u, "dim_maps": the.maps}),
    "to_pencil": (
        lambda view, **rest: view.to_pencil(**rest),
        {"view": the.view, "pencil": the.pen},
    ),
}
FILES = {
    "save": (pencils.save, {"path": the.path, "fields": the.fields}),
    "save in the background": (save_and_wait, {"path": the.path, "fields": the.fields}),
    "load": (pencils.load, {"path": the.path, "template": the.pen}),
    "load in place": (pencils.load, {"path": the.path, "into": the.fields_into}),
    "verify": (pencils.verify, {"path": the.path, "comm": the.comm}),
    "open": (made(pencils.open), {"path": the.path, "comm": the.comm}),
    "read part": (read_part, {"path": the.path, "pencil": the.pen}),
    "write part": (write_part, {"path": the.path, "field": the.u}),
    "CheckpointSeries": (
        made(pencils.CheckpointSeries),
        {"directory": the.run, "comm": the.comm, "signals": ()},
    ),
    "save next": (save_next, {"directory": the.run, "fields": the.fields}),
    "resume": (resume, {"directory": the.run, "template": the.pen}),
    "TimeSeries": (made(pencils.TimeSeries), {"path": the.series_path, "comm": the.comm}),
    "append": (append, {"path": the.series_path, "fields": the.fields, "time": 0.5}),
    "truncate": (truncate, {"path": the.series_path, "time": 0.5}),
}

INTEROP = {
    "to_pencil": (theirs.to_pencil, {"theirs": the.their_pencil, "comm": the.comm}),
    "to_array": (theirs.to_array, {"theirs": the.their_array, "comm": the.comm}),
    "from_pencil": (theirs.from_pencil, {"pencil": the.pen}),
    "subcomm": (theirs.subcomm, {"pencil": the.pen}),
    "from_array": (theirs.from_array, {"u": the.u}),
}

IMPORTS = {"dap.validate_on": "exported", "dap.import_array": "obj", "from_distarray": "obj"}
HALO_VERBS = ["exchange_halo", "start_halo_exchange", "accumulate_halo"]
HALO_GROUPS = ["exchange_halos", "HaloExchange"]
HALO_PLANS = ["halo plan", "halo start", "halo accumulate"]

# Makers of plans: which take `check`, and which describe fields.
CHECKED = ["Transposition", "HaloExchange", "PencilFFT", *LINE_MAKERS, "indexer", "Interpolation"]
CHECKED += ["GlobalIndexer", "GlobalMultiIndexer"]
DESCRIBING = ["Transposition", "alias", *LINE_MAKERS]

OBJECT = object()
TOO_SMALL = np.ones((2, 2))
BAD_AXES = (9, "x", 1.5)
NO_DTYPE = ("nonsense", object)
NO_NUMBERS = (-1, "x", 1.5)
NO_DIMS = (9, "x", (0, 0), 1.5)

BAD_FUNCTIONS = [
    Function("raises", dict),
    Function("none", lambda block: block[:0].sort()),
    Function("shorter", lambda block: block[:0]),
    Function("sum", lambda block: block.sum(0)),
    Function("in place", lambda block: block.fill(0)),
    Function("objects", lambda block: block.astype(object)),
    Function("a field", lambda block: pencils.zeros(Pencil(block.shape, MPI.COMM_SELF))),
]

# What raises when it is asked for its class, or for its text.
UNTELLABLE = [
    *(("transpose", argument, the.gone) for argument in ("u", "pencil", "out")),
    *(("Transposition", argument, the.gone) for argument in ("source", "target", "comm")),
    *rows(HALO_GROUPS, "fields", the.hs_gone),
    ("alias", "pencils", the.pair_gone),
    ("vdot", "other", the.gone),
    ("norm", "ord", the.gone),
    ("PencilFFT", "output", the.gone),
    *(("LineSolver", argument, the.gone) for argument in ("pencil", "diagonals", "shift")),
    ("LineSolver", "diagonals", the.diagonal_gone),
    *((name, argument, the.gone) for name in LINE_PLANS for argument in ("u", "out")),
    *((name, argument, the.gone) for name, field in LINE_FIELDS.items() for argument in (field,
     "axis", "out")),
    *(("CompactDerivative", argument, the.gone) for argument in ("pencil", "spacing")),
    *(("solve_banded", argument, the.gone) for argument in ("l_and_u", "ab")),
    ("derivative", "spacing", the.gone),
    ("midpoints", "coordinates", the.gone),
    ("along", "f", the.gone),
    ("Pencil", "comm", the.mute),
]  # fmt: skip

# What is wrong by itself: function, argument, bad values.
WRONG = [
    ("Pencil", "comm", 3, "x"),
    ("Pencil", "shape", None, "x", 1.5, (), (-1, 4), OBJECT),
    *rows(("Pencil", "with_"), "decomp", 9, "x", (0, 0), (), 1.5),
    *rows(("Pencil", "with_"), "grid", (7, 7), "x", 1.5, (1, 1, 1, 1), (-1, -1)),
    *rows(("Pencil", "with_"), "order", (0, 0, 1), "x", 3, (0, 1)),
    *rows(("Pencil", "with_"), "periodic", (True,), "x", OBJECT),
    *rows(("Pencil", "with_"), "splits", "nonsense", 3, ("first",), ((0, 9), "first", "first"),
     OBJECT),
    ("with_", "shape", "x", 1.5, (), (-1, 4)),
    ("staggered", "axis", None, *NO_DIMS, True),
    ("partition", "pencil", None, "x", the.u, the.larger, the.flat),
    ("partition", "root", 9, -1, "x", 1.5),
    ("partition", "dims", *NO_DIMS),
    ("partition", "halo", *NO_NUMBERS, (1, 2)),
    ("partition", "data", TOO_SMALL, "x", OBJECT, the.u),
    ("gather", "u", None, the.data, "x", the.pen),
    ("gather", "root", 9, -1, "x", 1.5),
    ("gather", "key", 99, "x", [0, 1], (1, 2, 3, 4), (None, 1), 1.5, slice("x")),
    ("gather", "dims", 0, *NO_DIMS),
    ("transpose", "u", None, the.data, "x", the.pen),
    ("transpose", "pencil", None, "x", the.alone, the.larger, the.u),
    ("transpose", "out", the.data, "x", the.u_larger, the.short_out, the.readonly),
    ("transpose", "out", the.u_alone),
    ("Transposition", "source", None, "x", the.alone, the.larger, the.u),
    ("Transposition", "target", None, "x", the.alone, the.larger, the.u),
    ("Transposition", "dtype", *NO_DTYPE, 3),
    *rows((*DESCRIBING, "PencilFFT", *MAKING), "components", *NO_NUMBERS),
    *rows((*DESCRIBING, "PencilArray", *MAKING, "indexer", "Interpolation"), "dims", *NO_DIMS),
    *rows(CHECKED[1:], "check", np.ones(2)),
    ("Transposition", "method", "nonsense", 3, None, []),
    *rows(("plan", "start"), "u", None, the.data, the.u_larger, the.short, the.vector,
     the.u_alone),
    *rows(("plan", "start"), "out", the.data, "x", the.u_larger, the.short_out, the.readonly),
    ("Transposition", "max_buffer_bytes", 0, -1, "x", 1.5, (100,), OBJECT),
    ("Transposition", "comm", 3, "x", MPI.COMM_NULL),
    ("batch", "us", None, 3, the.data, the.us_short, the.outs_none, the.u, []),
    ("batch", "outs", 3, the.outs_one, the.outs_readonly, the.us_three, [None, 3], []),
    *rows(("plan", "start", "batch", "buffers", "reversed"), "plan", the.plan_freed),
    *rows(LINE_MAKERS, "pencil", None, "x", the.u),
    *rows(LINE_MAKERS, "dims", (1, 2)),
    *rows(LINE_MAKERS, "method", "nonsense", 3, None, [], np.ones(2)),
    ("LineSolver", "diagonals", None, 3, "abc", (), (1, 2), (1, "x", 1), (1, None, 1), OBJECT),
    ("LineSolver", "diagonals", (1, 2j, 1), (1, np.ones(5), 1), (1, [[1], [1, 2]], 1), the.u),
    ("LineSolver", "diagonals", (0, 0, 0), (1, np.nan, 1), the.diagonal_nan, {0: 1}),
    ("LineSolver", "diagonals", *(the[f"diagonal_{n}"] for n in ("across", "larger", "vector"))),
    ("LineSolver", "diagonals", the.diagonal_alone),
    ("LineSolver", "shift", np.ones(6), "x", 1j, np.nan, OBJECT, the.u, the.u_larger),
    *rows((*LINE_MAKERS, "derivative", "midpoints", "solve_banded"), "periodic", np.ones(2)),
    *rows(LINE_MAKERS, "dtype", *NO_DTYPE, int, "f2", OBJECT),
    ("LineSolver", "singular", "nonsense", 3, None, []),
    *rows((*LINE_MAKERS, *LINE_VERBS), "axis", *BAD_AXES, None, (0, 1)),
    *rows(DIFFERENCES, "order", 5, "x", 1.5, None, OBJECT),
    *rows(DIFFERENCES, "derivative", 0, 3, "x", 1.5, None, OBJECT),
    *rows(DIFFERENCES, "spacing", 0, np.nan, "x", 1j, None, OBJECT,
     np.arange(5.0), np.zeros(6)),
    *rows(DIFFERENCES, "spacing", the.u, [0, 1, 3, 2, 4, 5], [[1], [1, 2]]),
    ("midpoints", "order", 5, "x", 1.5, OBJECT),
    ("midpoints", "wind", 2, "x", 1.5, None, OBJECT),
    ("midpoints", "coordinates", 1.0, "x", OBJECT, np.arange(5.0), np.zeros(6), the.u),
    ("solve_banded", "l_and_u", None, 3, (1,), (1, -1), ("x", 1), (2, 1), OBJECT),
    ("solve_banded", "ab", None, 3, "x", np.ones((3, 5)), np.zeros((3, 6)), OBJECT, the.u),
    ("solve_banded", "ab", np.full((3, 6), np.nan), np.full((3, 6), 2j), [[1], [1, 2]]),
    ("along", "f", None, 3, OBJECT, *BAD_FUNCTIONS),
    *((name, field, None, "x", the.data, the.pen) for name, field in LINE_FIELDS.items()),
    *rows(LINE_VERBS, "out", 3, "x", the.data, the.u_readonly, the.u_larger, the.vector,
     the.u_alone),
    *((name, "plan", the[f"{plan}_freed"]) for name, plan in LINE_PLANS.items()),
    *rows(LINE_PLANS, "u", None, "x", the.data, the.pen, the.u_larger, the.short, the.vector),
    *rows(LINE_PLANS, "u", the.plane, the.u_alone),
    *rows(LINE_PLANS, "out", 3, "x", the.data, the.u_readonly, the.u_larger, the.short),
    ("PencilFFT", "pencil", None, "x", the.u),
    ("PencilFFT", "dtype", *NO_DTYPE, int, "f2", np.dtype("f8").newbyteorder(), OBJECT),
    ("PencilFFT", "axes", *NO_DIMS),
    ("PencilFFT", "transforms", "nonsense", 3, OBJECT, "r2c", "c2c", ("fft",), {9: "fft"}, {0: 3}),
    ("PencilFFT", "transforms", {"x": "fft"}, {1.5: "fft"}, ("r2c", "r2c", "none"), [[], [], []]),
    ("PencilFFT", "normalize", "nonsense", 3, None, []),
    ("PencilFFT", "dealias", "nonsense", 3, ("2/3",), {9: "2/3"}, {0: "1/2"}, OBJECT),
    ("PencilFFT", "backend", "nonsense", 3, None, []),
    ("PencilFFT", "workers", 0, -1, 2.5, "2", None, OBJECT),
    ("PencilFFT", "output", 3, "x", the.u, the.pen, the.waves_alone),
    *rows(("fft.forward", "fft.backward"), "plan", the.fft_freed),
    ("fft.forward", "u", None, "x", the.data, the.u_larger, the.short, the.vector),
    ("fft.forward", "u", the.plane, the.u_across, the.u_alone, the.u_hat),
    ("fft.forward", "out", 3, "x", the.u, the.u_hat_short, the.u_hat_vector),
    ("fft.backward", "u", None, "x", the.u, the.u_hat_short, the.u_hat_vector),
    ("fft.backward", "out", 3, "x", the.u_hat, the.short, the.u_readonly),
    ("PencilArray", "pencil", None, "x", the.u, the.data),
    ("PencilArray", "local_data", None, "x", 3, TOO_SMALL, the.block_wide, the.block_objects),
    ("PencilArray", "halo", *NO_NUMBERS, (1, 2), 1),
    ("alias", "pencils", None, 3, (), "x", the.pen, the.pair_fields, [None]),
    ("alias", "pencils", the.pair_not_alone),
    ("alias", "dtype", *NO_DTYPE, OBJECT),
    ("verify_replicas", "u", None, the.data, "x"),
    *rows(HALO_VERBS, "u", None, the.data, "x", the.pen, the.h_readonly),
    ("accumulate_halo", "u", the.h_mask),
    *rows((*HALO_VERBS, *HALO_GROUPS), "corners", np.ones(2)),
    *rows(HALO_GROUPS, "fields", None, 3, "x", the.data, the.pen, [], [3]),
    *rows((*HALO_GROUPS, *HALO_PLANS), "fields", the.hs_twice, the.hs_none, the.hs_data,
     the.hs_readonly),
    *rows((*HALO_GROUPS, *HALO_PLANS), "fields", the.hs_across, the.hs_larger, the.hs_alone),
    *rows(HALO_GROUPS, "fields", the.hs_mapping),
    ("HaloExchange", "route", "nonsense", 3, None, []),
    ("HaloExchange", "method", "nonsense", 3, None, [], "alltoallw"),
    *rows(HALO_PLANS, "fields", [], [3, 3], the.hs_one, the.hs_three),
    *rows(HALO_PLANS, "fields", the.hs_swapped, the.hs_wide, the.hs_short, the.hs_vector),
    *rows(HALO_PLANS, "fields", the.hs_plane),
    *rows(HALO_PLANS, "plan", the.halo_plan_freed),
    *rows(AXES, "axis", *BAD_AXES, (0, 0)),
    *((name, "out", 3, the.u) for name in AXES if name != "count_nonzero"),
    *rows(CONVERTING, "dtype", "nonsense", OBJECT),
    *rows(MASKED, "where", 3.5, TOO_SMALL > 0, "x", the.u),
    *rows(MASKED, "where", the.mask_alone),
    *rows(STARTING, "initial", "x", [1, 2], OBJECT),
    *rows(("var", "std"), "ddof", "x", OBJECT, [1, 2]),
    ("norm", "ord", np.ones(3), "x", [1], OBJECT, 1j),
    ("np.linalg.norm", "axis", 0, "x"),
    ("np.linalg.norm", "ord", 3, "fro"),
    ("vdot", "other", None, "x", 3, TOO_SMALL, OBJECT),
    ("allclose", "other", None, "x", TOO_SMALL, OBJECT),
    ("allclose", "rtol", "x", None, OBJECT),
    ("allclose", "atol", "x", None),
    *rows(("vdot", "allclose"), "other", the.u_alone, the.u_larger),
    ("array_equal", "other", the.u_alone),
    *rows(PAIRS, "one", the.u_alone),
    *rows(MAKING, "pencil", None, "x", the.u),
    *rows(MAKING, "dtype", *NO_DTYPE, OBJECT),
    *rows(MAKING, "halo", *NO_NUMBERS, (1, 2)),
    ("full", "fill_value", OBJECT, [1, 2], None, [[1], [1, 2]]),
    *rows(("dap.validate_on", "dap.import_array"), "comm", 3, "x"),
    *((name, exported, None, 3, "x", {}, OBJECT) for name, exported in IMPORTS.items()),
    *((name, exported, the.exported_short, the.exported_times) for name,
     exported in IMPORTS.items()),
    *rows(("dap.import_array", "from_distarray"), "halo", "all", None, 1),
    ("from_distarray", "pencil", None, "x", the.u),
    ("dap.export_as", "u", None, 3, "x", the.data),
    ("dap.export_as", "dim_maps", None, 3, [], [None] * 3, "abc", the.maps_short),
    ("dap.export_as", "version", "0.10", None, 3),
    ("to_pencil", "pencil", None, "x", the.u, the.larger, the.flat, the.alone),
    ("to_pencil", "halo", *NO_NUMBERS, (1, 2)),
    ("to_pencil", "reduce", "mean", 3, np.add, "band", ReduceOp.BAND),
    *((name, coords, None, 3, "x", "abc", (0, 1), OBJECT) for name, coords in COORDS.items()),
    *((name, coords, (6, 1, 0), (0, -1, 0), (0, "x", 0), ([0, 1], [0, 1, 2], 0)) for name,
     coords in COORDS.items()),
    *((name, "coords", (0, 0.5, 0)) for name, at in COORDS.items() if at == "coords"),
    *((name, "points", (0, np.nan, 0)) for name, at in COORDS.items() if at == "points"),
    ("Interpolation", "pencil", None, "x", the.u),
    ("interpolate", "u", None, "x", the.data, the.pen),
    *rows(("interpolate", "Interpolation"), "fill_value", "x", [1, 2], OBJECT),
    *rows(("u.take_points", "indexer.take", "interpolate", "cloud"), "out", 3, "x", np.zeros(3),
     np.zeros(2, int), np.ones((2, 2))[:, 0], the.u),
    *rows(("u.put_points", "indexer.put", "deposit"), "values", [1, 2, 3], "x", 1j, OBJECT, [[1],
     [2, 3]]),
    *rows(("u.put_points", "indexer.put"), "reduce", "sum", 3, np.add, ReduceOp.BOR),
    ("u.put_points", "u", the.u_readonly),
    *rows(POINT_PLANS, "u", None, "x", the.data, the.u_larger, the.plane, the.u_across),
    *rows(("indexer.put", "deposit"), "u", the.u_readonly),
    *((name, "plan", the[f"{plan}_freed"]) for name, plan in (POINT_PLANS | LIST_PLANS).items()),
    *(row for name, index in (("GlobalIndexer", "g_idx"), ("GlobalMultiIndexer",
     "g_idx_l")) for row in ((name, "distri", None, 3, "x", [0], [1, 2, 3], [0, 3.5], [[0, 1]]),
     (name, index, None, 3, "x", [[0], [999]], [[-1]], [[0.5]], [OBJECT]), (name, "comm", 3, "x"))),
    ("GlobalIndexer", "g_idx", [999], [-1], [0.5], [True]),
    *rows(("single.Take", "lists.Take"), "dist_data", None, 3, "x", np.ones(5), np.ones(12)[::2],
     np.ones(6, object)),
    ("single.Take", "local_data", 3, np.ones(3), np.ones(4, "f4")),
    ("lists.Take", "local_data_l", 3, np.ones(6), [np.ones(4)], [np.ones(4), np.ones(3)]),
    ("single.Put", "local_data", None, 3, "x", np.ones(3), np.ones(8)[::2], np.ones(4, object)),
    ("lists.Put", "local_data_l", None, 3, "x", [], [np.ones(4)], [np.ones(4), np.ones(3)]),
    *rows(LIST_PLANS, "count", 0, -1, "x", 1.5, None),
    *rows(LIST_PLANS, "reduce", "sum", 3, np.add),
    *rows(("single.Put", "lists.Put"), "dist_data", 3, np.ones(5), np.ones(6, "f4")),
]  # fmt: skip
WRONG_INTEROP = [
    ("to_pencil", "theirs", None, 3, "x", the.their_array, the.pen),
    ("to_array", "theirs", None, 3, "x", the.their_pencil, the.their_part, the.u),
    *rows(("to_pencil", "to_array"), "comm", 3, "x"),
    *rows(("from_pencil", "subcomm"), "pencil", None, "x", the.u),
    *rows(("from_pencil", "from_array"), "axis", 9, "x", 1.5, (0, 1)),
    ("from_array", "u", None, "x", the.data, the.pen, the.plane, the.h_turned),
]  # fmt: skip
DIFFERENT_INTEROP = [
    ("to_pencil", "theirs", the.their_pencil_larger),
    ("to_array", "theirs", the.their_array_short),
    *rows(("from_pencil", "subcomm"), "pencil", the.larger, the.flat),
    ("from_array", "u", the.vector, the.short, the.u_larger),
]  # fmt: skip
WRONG_FILES = [
    ("save", "path", 3, None, "", "a\0b"),
    ("save", "fields", None, "x", {}, the.u, the.fields_unnamed),
    ("save", "fields", the.fields_numbered, the.fields_none, the.fields_two),
    ("save", "attrs", 3, {3: 1}, {"pencils_x": 1}, {"": 1}),
    ("save", "grid", 3, the.pen, the.grid_named),
    ("save", "step", "x", 1.5),
    ("save", "time", "x", 1j, [1, 2]),
    ("save", "align", *NO_NUMBERS, 0),
    ("save", "compression", "x", 1.5, True, 31999, OBJECT, {"level": 3}, {"compression": None}),
    ("save", "compression", {"shuffle": True, "compression_opts": 3}, {"scaleoffset": "x"}),
    ("save", "chunks", 1.5, "x", 0, (2, 2, 0), (2, 2), {"missing": (2, 2, 2)}, {"u": "x"}, OBJECT),
    ("save", "tolerance", "x", True, [1.0], -1, np.nan, {"missing": 1.0}, {"u": None}, OBJECT),
    ("save in the background", "fields", None, "x", {}, the.u, the.fields_unnamed),
    *rows(("load", "load in place", "verify"), "path", 3, None, "", "missing.h5"),
    ("load", "template", None, "x", the.u, the.flat, the.larger),
    ("load", "template", {"u": None}, {3: 1}),
    ("load", "template", the.fields_short, the.fields_vector),
    ("load", "names", 3, "", [3], "missing"),
    ("load", "halo", *NO_NUMBERS, (1, 2)),
    ("load", "dtype", *NO_DTYPE, int),
    ("load", "into", 3, "x", the.u, {"u": 3}, the.fields_short),
    ("load in place", "into", None, the.fields_vector, the.fields_readonly),
    ("load in place", "names", 3, "", "missing", ["u", "missing"]),
    *rows(("verify", "open", "TimeSeries"), "comm", 3, "x"),
    ("TimeSeries", "path", 3, None, "", "a\0b", the.path),
    ("TimeSeries", "grid", 3, "x", the.pen),
    *rows(("TimeSeries", "CheckpointSeries"), "mode", "r", "wa", None, 3),
    ("TimeSeries", "attrs", 3, {3: 1}, {"pencils_x": 1}),
    ("append", "fields", None, "x", {}, the.u, the.fields_unnamed, {"time": 1.0}),
    ("append", "fields", the.fields_numbered, the.fields_none, the.fields_two),
    ("append", "fields", the.fields_wrong_part, the.fields_alone),
    *rows(("append", "truncate"), "time", "x", None, np.nan, 1j),
    *rows(("open", "read part", "write part"), "path", 3, None, "missing.h5"),
    ("open", "mode", "w", None, 3),
    ("CheckpointSeries", "directory", 3, None, "", "missing/run"),
    ("CheckpointSeries", "comm", 3, "x"),
    ("CheckpointSeries", "keep", *NO_NUMBERS, 0),
    ("CheckpointSeries", "every", *NO_NUMBERS, 0, timedelta(seconds=-1)),
    ("CheckpointSeries", "stop_after", "x", float("nan"), []),
    ("CheckpointSeries", "signals", 3, None, [9999], "x"),
    ("save next", "step", *NO_NUMBERS, None),
    ("save next", "fields", None, "x", {}, the.u, the.fields_unnamed, {"dt": 1.0}),
    ("save next", "time", "x", 1j),
    ("save next", "grid", 3),
    ("save next", "nonsense", 3),
    ("resume", "template", None, "x", {}, the.flat, the.larger, the.alone),
    ("resume", "names", 3, "", [3], "missing"),
    ("resume", "step", *NO_NUMBERS, 8),
    ("resume", "outputs", 3, [3], "x"),
    ("resume", "nonsense", 3),
    ("read part", "pencil", None, "x", the.u, the.larger),
    ("write part", "field", None, "x", the.u_larger, the.short, the.u_alone),
    *rows(("read part", "write part"), "key", 99, "x", [0, 1], 1.5),
]  # fmt: skip

# What is right by itself, but not what the others say.
DIFFERENT = [
    ("Pencil", "shape", (7, 5, 4)),
    *rows(("Pencil", "with_"), "decomp", 2),
    *rows(("Pencil", "with_"), "periodic", True),
    *rows(("Pencil", "with_"), "order", (2, 1, 0)),
    *rows(("Pencil", "with_"), "splits", "floor"),
    ("with_", "pencil", the.across, the.larger),
    ("staggered", "pencil", the.across, the.larger),
    ("staggered", "axis", 1, (0, 1), ()),
    ("partition", "pencil", the.across),
    ("partition", "root", the.next),
    ("partition", "halo", 1),
    ("partition", "dims", (0, 1, 2)),
    ("gather", "u", the.u_across, the.short, the.vector, the.plane),
    ("gather", "root", None, the.next),
    ("gather", "key", np.s_[1, ::2]),
    ("gather", "dims", (2, 1, 0)),
    ("transpose", "u", the.u_across, the.short, the.vector, the.plane),
    ("transpose", "pencil", the.pen),
    ("Transposition", "source", the.across),
    ("Transposition", "dtype", "f4"),
    *rows((*DESCRIBING, "PencilFFT"), "components", 3),
    *rows(DESCRIBING, "dims", (0, 1)),
    *rows(CHECKED, "check", False),
    ("Transposition", "method", "messages", "hybrid", "alltoallw"),
    ("Transposition", "max_buffer_bytes", 100, 10**9),
    *rows((*LINE_MAKERS, "PencilFFT", "PencilArray"), "pencil", the.across, the.larger),
    *rows((*LINE_MAKERS, *LINE_VERBS), "axis", 1),
    ("LineSolver", "diagonals", (1, 5, 1), (1, np.full(6, 4.0), 1), (0, 1, 4, 1, 0), (4,)),
    ("LineSolver", "diagonals", the.diagonal_fields),
    ("LineSolver", "shift", 1.0, the.rows),
    *rows((*LINE_MAKERS, "derivative", "midpoints", "solve_banded"), "periodic", True),
    *rows((*LINE_MAKERS, "PencilFFT"), "dtype", "f4", complex),
    *rows(LINE_MAKERS, "method", "transposed", "shared"),
    ("LineSolver", "singular", "pin"),
    *rows(DIFFERENCES, "order", 4),
    *rows(DIFFERENCES, "derivative", 2),
    *rows(DIFFERENCES, "spacing", 0.5, np.arange(6.0)),
    ("midpoints", "order", 4),
    ("midpoints", "wind", 1, -1),
    ("midpoints", "coordinates", np.arange(6.0)),
    ("solve_banded", "l_and_u", (2, 0), (0, 2)),
    ("solve_banded", "ab", np.array([[1.0] * 6, [5.0] * 6, [1.0] * 6])),
    ("along", "axis", 2),
    ("along", "out", the.target),
    ("along", "f", Function("single", lambda block: block.astype("f4"))),
    ("along", "f", Function("mask", lambda block: block > 0)),
    *((name, field, the.u_across, the.u_larger, the.short, the.vector) for name,
     field in LINE_FIELDS.items()),
    *((name, "plan", the[f"{plan}_other"]) for name, plan in LINE_PLANS.items()),
    *rows(LINE_PLANS, "u", the.u_across),
    *rows(("plan", "start", "batch", "reversed"), "plan", the.plan_other),
    *rows(("plan", "start"), "u", the.u_across),
    ("batch", "us", the.us_across, the.us_three),
    *rows(HALO_VERBS, "u", the.h_wide, the.h_short, the.h_vector, the.h_plane, the.h_across),
    *rows(HALO_VERBS, "u", the.h_turned, the.h_larger),
    *rows((*HALO_VERBS, *HALO_GROUPS), "corners", False),
    *rows(HALO_GROUPS, "fields", the.h, the.hs_one, the.hs_three, the.hs_swapped, the.hs_wide),
    *rows(HALO_GROUPS, "fields", the.hs_short, the.hs_vector, the.hs_plane, the.hs_turned),
    ("HaloExchange", "route", "direct", "sweeps"),
    ("HaloExchange", "method", "messages", "hybrid"),
    *rows(HALO_PLANS, "plan", the.halo_plan_other),
    ("PencilFFT", "axes", 1, (1, 2, 0)),
    ("PencilFFT", "transforms", "dct2", {0: "dct1"}),
    ("PencilFFT", "normalize", "ortho"),
    ("PencilFFT", "dealias", "2/3", "3/2", {0: "2/3"}),
    ("PencilFFT", "backend", "scipy"),
    ("PencilFFT", "workers", 2),
    ("PencilFFT", "output", the.waves, the.waves_across),
    *rows(("fft.forward", "fft.backward"), "plan", the.fft_other),
    ("PencilArray", "local_data", the.block_short, the.block_vector),
    ("alias", "pencils", the.pair_other),
    ("alias", "dtype", "f4"),
    *rows(("verify_replicas", *REDUCTIONS), "u", the.u_across, the.short, the.vector, the.plane),
    *rows(("verify_replicas", *REDUCTIONS), "u", the.u_larger),
    *rows(AXES, "axis", 1),
    *rows(AXES, "keepdims", True),
    *rows(MASKED, "where", the.mask, the.data_mask),
    *rows(CONVERTING, "dtype", "f4"),
    *rows(STARTING, "initial", 3),
    *rows(("var", "std"), "ddof", 1),
    ("norm", "ord", 1, 3, np.inf, 0),
    *rows(PAIRS, "one", the.u_across, the.short),
    *rows(PAIRS, "other", the.u_across, the.short),
    ("allclose", "rtol", 1e-3),
    ("allclose", "equal_nan", True),
    ("array_equal", "equal_nan", True),
    ("array_equal", "other", the.u_larger, OBJECT),
    *rows(MAKING, "pencil", the.across),
    *rows(MAKING, "dtype", "f4"),
    *rows(MAKING, "components", 3),
    *rows(MAKING, "halo", 1),
    *rows(MAKING, "dims", (0, 1)),
    ("full", "fill_value", 2),
    *rows(("dap.import_array", "from_distarray"), "halo", "drop"),
    *rows(("dap.import_array", "from_distarray"), "lenient", True),
    ("from_distarray", "pencil", the.across, the.larger),
    ("dap.export_as", "u", the.u_across, the.short),
    ("dap.export_as", "version", "0.9.0"),
    ("to_pencil", "view", the.view_short),
    ("to_pencil", "pencil", the.across),
    ("to_pencil", "halo", 1),
    ("to_pencil", "reduce", "sum", "max"),
    *((name, field, the.short, the.vector) for name, field in (("u.take_points", "u"),
     ("u.put_points", "u"), ("interpolate", "u"))),
    *((name, field, the.u_across, the.u_larger, the.plane) for name, field in (("u.take_points",
     "u"), ("u.put_points", "u"), ("interpolate", "u"))),
    *rows(POINT_PLANS, "u", the.short, the.vector),
    *((name, "plan", the[f"{plan}_other"]) for name, plan in (POINT_PLANS | LIST_PLANS).items()),
    *rows(("u.put_points", "indexer.put", *LIST_PLANS), "reduce", ReduceOp.SUM),
    *rows(("indexer", "Interpolation"), "pencil", the.across, the.larger),
    ("Interpolation", "dims", (0, 2)),
    *rows(("interpolate", "Interpolation"), "fill_value", 0.0, np.nan),
    *rows(("GlobalIndexer", "GlobalMultiIndexer"), "distri", the.cuts_other),
    *rows(LIST_PLANS, "count", 1),
    ("single.Take", "dist_data", np.ones(6, "f4")),
    ("lists.Take", "dist_data", np.ones(6, "f4")),
    ("single.Put", "local_data", np.ones(4, "f4")),
    ("lists.Put", "local_data_l", [np.ones(4, "f4"), np.ones(2, "f4")]),
]  # fmt: skip
DIFFERENT_FILES = [
    ("save", "path", the.other_path),
    ("save", "fields", the.fields_other, the.fields_short, the.fields_renamed),
    ("save", "attrs", {"step": 1}),
    ("save", "fields", the.fields_array, the.fields_more),
    ("save", "grid", the.grid, the.grid_other),
    ("save", "step", 1, 2),
    ("save", "time", 0.5),
    ("save", "halo", True),
    ("save", "align", 4096),
    ("save", "checksum", False),
    ("save", "compression", "gzip", 4, {"shuffle": True}),
    ("save", "chunks", (2, 2, 2), {"u": (2, 2, 2)}),
    ("save", "tolerance", 0, {"u": 0.0}),
    ("save", "wait", False),
    ("save in the background", "path", the.other_path),
    ("save in the background", "fields", the.fields_other, the.fields_short),
    ("load", "template", the.across, the.fields, {}),
    ("load", "names", "u", ["u"]),
    ("load", "halo", 1),
    ("load", "dtype", "f4"),
    ("load", "into", the.fields_into),
    ("load", "verify", False),
    ("load in place", "into", the.fields_other),
    ("load in place", "template", the.pen),
    ("CheckpointSeries", "directory", the.other_run),
    ("CheckpointSeries", "keep", None, 2),
    ("CheckpointSeries", "every", 2, timedelta(seconds=2)),
    ("CheckpointSeries", "stop_after", 60.0),
    ("CheckpointSeries", "signals", [signal.SIGTERM]),
    *rows(("TimeSeries", "CheckpointSeries"), "mode", "w", "x"),
    ("save next", "step", 5),
    ("save next", "fields", the.fields_other, the.fields_more),
    ("save next", "time", 0.5),
    ("save next", "wait", False),
    ("resume", "step", 3),
    ("resume", "names", "u"),
    ("resume", "template", the.across),
    *rows(("verify", "open", "TimeSeries"), "path", the.other_path),
    ("TimeSeries", "grid", the.grid, the.grid_other),
    ("TimeSeries", "attrs", {"a": 1}),
    ("TimeSeries", "edited", True),
    ("append", "fields", the.fields_other, the.fields_short, the.fields_renamed),
    ("append", "fields", the.fields_array, the.fields_more, the.fields_part),
    *rows(("append", "truncate"), "time", 1.0),
    ("open", "mode", "r+"),
    ("read part", "pencil", the.across),
    ("read part", "key", np.s_[::-1]),
    ("write part", "field", the.u_across),
    ("write part", "key", np.s_[::-1]),
]  # fmt: skip

# Fields of one shape, dtype and components whose blocks are not the same.
ALIKE = [("u", "u_across"), ("u_thin", "u_single"), ("u_single", "u_thin")]
TAKING_ONE = {
    name: CALLS[name] for name in ("gather", "transpose", "verify_replicas", *REDUCTIONS, *PAIRS)
}

LOCAL = {
    "add a field of another shape": lambda g: g.u + g.u_larger,
    "add an array": lambda g: g.u + np.ones(3),
    "add in place": lambda g: g.u.__iadd__(g.u_larger),
    "multiply by a stranger": lambda g: g.u * g.u_flat,
    "ufunc out": lambda g: np.add(g.u, 1, out=g.data),
    "ufunc where": lambda g: np.add(g.u, 1, out=g.u, where=g.u),
    "index": lambda g: g.u[99],
    "index by a list": lambda g: g.u[[0, 1]],
    "assign": lambda g: g.u.__setitem__(..., TOO_SMALL),
    "assign outside": lambda g: g.u.__setitem__(99, 1),
    "assign to local": lambda g: setattr(g.u, "local", np.ones((1, 2, 3, 99))),
    "component": lambda g: g.u.component(3),
    "unstack": lambda g: g.u.unstack(),
    "shift": lambda g: g.u.shift((1, 0, 0)),
    "shift onto other blocks": lambda g: g.u.shift((0, 0, 0), onto=g.other),
    "astype": lambda g: g.u.astype("nonsense"),
    "fill": lambda g: g.u.fill([1, 2]),
    "asarray": lambda g: np.asarray(g.u),
    "iterate": lambda g: list(g.u),
    "truth": lambda g: bool(g.u),
    "dot": lambda g: np.dot(g.u, g.u),
    "where": lambda g: np.where(g.u > 0),
    "stack": lambda g: np.stack([g.u, g.u_larger]),
    "einsum": lambda g: np.einsum("ijk->", g.u),
    "copyto": lambda g: np.copyto(g.u, TOO_SMALL),
    "partition": lambda g: pencils.partition(g.pen, TOO_SMALL),
    "partition nothing": lambda g: pencils.partition(g.pen, None),
    "partition onto nothing": lambda g: pencils.partition(None, g.data),
    "localgrid": lambda g: pencils.localgrid(g.pen, [np.ones(3)]),
    "localgrid of nothing": lambda _: pencils.localgrid(None, [np.ones(3)]),
    "empty": lambda g: pencils.empty(g.pen, halo=-1),
    "zeros": lambda _: pencils.zeros(None),
    "ones": lambda g: pencils.ones(g.pen, dims=9),
    "full": lambda g: pencils.full(g.pen, [1, 2]),
    "empty_like": lambda g: pencils.empty_like(g.u, dtype="nonsense"),
    "from_function": lambda g: pencils.from_function(g.pen, lambda *_: TOO_SMALL),
    "random": lambda g: pencils.random.normal(g.pen, -1),
    "owner": lambda g: g.pen.owner((99, 0, 0)),
    "box": lambda g: g.pen.box(99),
    "neighbor": lambda g: g.pen.neighbor((1,)),
    "to_global": lambda g: g.pen.to_global((99, 0, 0)),
    "freeze": lambda g: setattr(g.pen, "shape", (1,)),
}


def each_value(table):
    """One test for each bad value; the first and the last rank take turns in giving it.

    One process sees that each value is bad, and several that each argument is agreed on: without
    ``--all`` by one of its values.
    """
    rows = [(name, argument, value) for name, argument, *values in table for value in values]
    if MPI.COMM_WORLD.size > 1 and not tiers.ALL:
        arguments = {}
        for row in rows:
            arguments.setdefault(row[:2], []).append(row)
        rows = [those[turn % len(those)] for turn, those in enumerate(arguments.values())]
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param((turn, *row), id=f"{row[0]}({row[1]}={label(row[2])})")
            for turn, row in enumerate(rows)
        ],
    )


def label(value):
    """Name a value, in all processes alike: several may share the tests."""
    return re.sub(r" at 0x\w+|\n", "", repr(value))


def resolved(g, value):
    return getattr(g, value) if isinstance(value, Name) else value


def attempt(g, known, name, **changed):
    """Call a function by name with good arguments but for the changed ones; return the error."""
    function, good = known[name]
    arguments = {key: resolved(g, value) for key, value in (good | changed).items()}
    try:
        function(**arguments)
    except Exception as error:  # noqa: BLE001 - looked at in `check_together`, on all ranks
        return error
    return None


def take_the_blame(g, rank):
    """Let `rank` be the one that is wrong."""
    g.wrong, g.next = rank, (rank + 1) % g.comm.size
    g.mine = g.data if g.comm.rank == rank else None


def check_together(g, rank, error, kind=None):
    """Check that all ranks raised the same, naming `rank`, and that all of them came through."""
    said = g.apart.allgather((type(error).__name__, str(error)))
    assert {what for what, _ in said} == {type(error).__name__}, said
    assert error is not None, said
    if kind is not None:
        assert isinstance(error, kind), said
    if g.comm.size > 1:
        assert all(f"rank {rank}" in text for _, text in said), said


def check_one_rank_wrong(g, known, case, *, good=None, alone=True):
    """Call with a bad value on one rank, and well after that."""
    turn, name, argument, value = case
    good = good or {}
    ranks = ranks_at_fault(g.comm)
    rank = ranks[turn % len(ranks)]
    take_the_blame(g, rank)
    changed = good | ({argument: value} if g.comm.rank == rank else {})
    error = attempt(g, known, name, **changed)
    if g.comm.size > 1 or alone:
        check_together(g, rank, error)
    g.apart.Barrier()
    error = attempt(g, known, name, **good)
    assert everywhere(g.apart, error is None), error


@each_value(WRONG)
def test_a_mistake_on_one_rank_raises_everywhere(here, case):
    check_one_rank_wrong(here, CALLS, case, alone=not is_fine_alone(case))


@several
@each_value(UNTELLABLE)
def test_an_object_that_cannot_be_asked_raises_everywhere(here, case):
    check_one_rank_wrong(here, CALLS, case)


@several
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("name", "argument"),
    [
        *((name, "corners") for name in (*HALO_VERBS, *HALO_GROUPS)),
        ("HaloExchange", "check"),
        ("LineSolver", "check"),
        ("LineSolver", "periodic"),
        ("CompactDerivative", "check"),
        *((name, "periodic") for name in ("CompactDerivative", *LINE_VERBS) if name != "along"),
    ],
)
def test_a_flag_is_not_asked_after_the_agreement(here, name, argument, times):
    """A rank that asked again would raise alone."""
    wrong = here.comm.rank == ranks_at_fault(here.comm)[0]
    error = attempt(here, CALLS, name, **{argument: Yes(times) if wrong else True})
    here.apart.Barrier()
    assert len(set(here.apart.allgather(type(error)))) == 1, error
    assert everywhere(here.apart, attempt(here, CALLS, name) is None)


@each_value(WRONG_FILES)
def test_a_mistake_with_files_on_one_rank_raises_everywhere(here, prepared, mpi_tmp_path, case):
    prepare_files(here, prepared, mpi_tmp_path)
    check_one_rank_wrong(here, FILES, case, alone=not is_fine_alone(case))


def is_fine_alone(case):
    """Whether the value is right on one process: the same blocks, or what may be left out."""
    left_out = {("to_pencil", "pencil"), ("load", "template"), ("load in place", "into")}
    if case[-1] is None:
        return case[1:3] in left_out
    return repr(case[-1]).endswith(("alone", "across"))


@several
@each_value(DIFFERENT)
def test_another_argument_on_one_rank_raises_everywhere(here, case):
    check_one_rank_wrong(here, CALLS, case)


@several
@each_value(DIFFERENT_FILES)
def test_another_argument_for_files_on_one_rank_raises_everywhere(
    here, prepared, mpi_tmp_path, case
):
    prepare_files(here, prepared, mpi_tmp_path)
    check_one_rank_wrong(here, FILES, case)


@pytest.fixture(scope="module")
def here_with_theirs(here):
    """Arrays and pencils of mpi4py-fft beside ours."""
    mpi4py_fft = pytest.importorskip("mpi4py_fft")
    here.their_array = mpi4py_fft.DistArray(SHAPE, val=0)
    here.their_pencil = here.their_array.pencil
    here.their_part = here.their_array.sum(axis=2)
    here.their_array_short = mpi4py_fft.DistArray(
        SHAPE, subcomm=here.their_pencil.subcomm, dtype="f4"
    )
    here.their_pencil_larger = mpi4py_fft.pencil.Pencil(here.their_pencil.subcomm, (7, 5, 4))
    return here


@each_value(WRONG_INTEROP)
def test_a_mistake_with_another_library_on_one_rank_raises_everywhere(here_with_theirs, case):
    check_one_rank_wrong(here_with_theirs, INTEROP, case)


@several
@each_value(DIFFERENT_INTEROP)
def test_another_argument_for_another_library_raises_everywhere(here_with_theirs, case):
    check_one_rank_wrong(here_with_theirs, INTEROP, case)


@pytest.fixture(scope="module")
def prepared(here):
    """Files to be right and wrong with, made once."""
    rank = here.comm.rank
    folder = Path(here.comm.bcast(tempfile.mkdtemp(prefix="pencils-") if rank == 0 else None))
    pencils.save(folder / "run.h5", here.fields)
    with pencils.CheckpointSeries(folder / "run") as checkpoints:
        checkpoints.save(3, here.fields, time=0.5)
    yield folder
    here.comm.barrier()
    if rank == 0:
        shutil.rmtree(folder)


def prepare_files(g, prepared, folder):
    g.path, g.other_path = folder / "run.h5", folder / "other.h5"
    g.run, g.other_run = folder / "run", folder / "other"
    g.series_path = folder / "series.h5"
    if g.comm.rank == 0:
        shutil.copytree(prepared, folder, dirs_exist_ok=True)
    g.apart.Barrier()


@several
@pytest.mark.parametrize(("good", "other"), ALIKE)
@pytest.mark.parametrize("name", TAKING_ONE)
def test_a_field_cut_in_another_way_on_one_rank_raises_everywhere(here, name, good, other):
    rest = {}
    if name == "transpose":
        rest = {"pencil": Name("across" if good == "u" else "thin_across")}
    argument = next(iter(TAKING_ONE[name][1]))
    axes = (None, 0, 1, 2) if name in AXES else (None,)
    for turn, axis in enumerate((*axes, *axes[-1:])):
        options = rest if axis is None else rest | {"axis": axis}
        both = {argument: Name(good)} | ({"other": Name(good)} if name in PAIRS else {})
        check_one_rank_wrong(
            here, TAKING_ONE, (turn, name, argument, Name(other)), good=both | options
        )


@several
@pytest.mark.parametrize(("good", "other"), ALIKE)
@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_cut_in_another_way_on_one_rank_raises_everywhere(here, name, good, other):
    for rank in ranks_at_fault(here.comm):
        mine = Name(other if here.comm.rank == rank else good)
        error = attempt(here, PAIRS, name, one=mine, other=mine)
        check_together(here, rank, error, RankDisagreementError)
        error = attempt(here, PAIRS, name, one=Name(good), other=Name(good))
        assert everywhere(here.apart, error is None), error


@pytest.mark.parametrize("name", LOCAL)
def test_a_local_mistake_raises_where_it_is_made(here, name):
    for rank in ranks_at_fault(here.comm):
        raised = None
        if here.comm.rank == rank:  # the others do not call at all, so nothing can wait for them
            try:
                LOCAL[name](here)
            except (TypeError, ValueError, IndexError, AttributeError) as error:
                raised = error
            (here.u + 1)[0] = 1.0
        verdicts = here.apart.allgather(raised is not None)
        assert [r for r, wrong in enumerate(verdicts) if wrong] == [rank]
        assert here.u.sum() == 120
