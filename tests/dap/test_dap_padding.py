"""Padding in exports: all that the text does not exclude, and the same again after an import.

The processes are simulated ranks of this one. Exports are read by the text alone, in `read_all`.
"""

from collections import Counter
from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from dap_cases import block, exports, worlds, wrap
from hypothesis import given
from tiers import examples

import pencils
from pencils import dap


def read_dim(exported, dim):
    """Read by the text: global index of each point of the buffer, and the widths of the ghosts."""
    entry, is_old = exported["dim_data"][dim], exported["__version__"] == "0.9.0"
    size, extent = entry["size"], exported["buffer"].shape[dim]
    rank, nprocs = entry.get("proc_grid_rank", 0), entry.get("proc_grid_size", 1)
    start, stop = entry.get("start", 0), entry.get("stop", size)
    lo, hi = entry.get("padding", (0, 0))
    around = is_old and entry.get("periodic", False)
    lo, hi = lo * (around or rank > 0), hi * (around or rank < nprocs - 1)
    if is_old:
        assert start < size or extent == 0
        start, stop = start - lo, stop + hi
    else:
        assert 0 <= start <= stop <= size
    assert extent == stop - start
    return [at % max(size, 1) for at in range(start, stop)], (lo, hi)


def owned(cells, ghosts):
    return cells[ghosts[0] : len(cells) - ghosts[1]]


def check_line(line, size, *, is_old):
    """Check by the text the processes along one dimension."""
    parts = [owned(*one) for one in line]
    assert [at for part in parts for at in part] == list(range(size))
    for here, (_, (lo, hi)) in enumerate(line):
        assert lo <= len(parts[here - 1])
        assert hi <= len(parts[(here + 1) % len(parts)])
    assert is_old or all(left[1][1] == right[1][0] for left, right in pairwise(line))


def read_all(exported):
    """Assemble the array from exports in the order of ranks; ghosts must equal their points."""
    dims = exported[0]["dim_data"]
    grid = [dim.get("proc_grid_size", 1) for dim in dims]
    ranks = np.arange(prod(grid)).reshape(grid)
    assert len(exported) == prod(grid)
    for rank, one in enumerate(exported):
        coords = [dim.get("proc_grid_rank", 0) for dim in one["dim_data"]]
        assert ranks[tuple(coords)] == rank
    found = [[read_dim(one, dim) for dim in range(len(dims))] for one in exported]
    for dim, entry in enumerate(dims):
        for line in np.moveaxis(ranks, dim, -1).reshape(-1, grid[dim]).tolist():
            is_old = exported[0]["__version__"] == "0.9.0"
            check_line([found[rank][dim] for rank in line], entry["size"], is_old=is_old)
            same = {"size", "periodic", *(("padding",) if is_old else ())}
            keys = [exported[rank]["dim_data"][dim].keys() & same for rank in line]
            assert all(each == keys[0] for each in keys)
    whole = np.full([entry["size"] for entry in dims], np.nan)
    for one, along in zip(exported, found, strict=True):
        inside = tuple(slice(lo, len(cells) - hi) for cells, (lo, hi) in along)
        whole[np.ix_(*(owned(*each) for each in along))] = one["buffer"][inside]
    for one, along in zip(exported, found, strict=True):
        assert np.array_equal(one["buffer"], whole[np.ix_(*(cells for cells, _ in along))])
    return whole


# Every export that the text does not exclude.

SHAPES = [((12,), (0,)), ((7,), (0,)), ((2,), (0,)), ((8, 5), (0, 1)), ((3, 6), (1,))]
WIDTHS = [(1, 1), (2, 2), (1, 2), (0, 1), (2, 0)]
CASES = [
    (shape, decomp, [width, (1, 1)][: len(shape)], [periodic, not periodic][: len(shape)])
    for (shape, decomp), width, periodic in product(SHAPES, WIDTHS, [False, True])
]
WAYS = list(product(dap.VERSIONS, ["comm", "all"]))


def export_cases():
    """Export every case in every way: the process grid, and exports or the rule that is named."""
    every = []
    for shape, decomp, halo, periodic in CASES:
        pencil = pencils.Pencil(shape, decomp=decomp, periodic=periodic)
        u = pencils.zeros(pencil, halo=halo)
        u.local[...] = np.arange(1.0, 1.0 + u.size).reshape(shape)[u.local_slices]
        u.exchange_halo()
        u.fill_boundary("constant", value=-7.0)
        found = {}
        for version, halo_way in WAYS:
            try:
                found[version, halo_way] = dap.export(u, version, halo=halo_way)
            except dap.UnsupportedError as error:
                found[version, halo_way] = error.code
        every.append((pencil.process_shape, found, u.__distarray__(), dap.export(u)))
    return every


def rules_against(points, nprocs, width, version, way, *, periodic):
    """Return the rules of the text that exclude the ghosts of one dimension."""
    lo, hi = width
    broken = set()
    counts = [len(part) for part in np.array_split(range(points), nprocs)]
    first_without = points if 0 not in counts else sum(counts[: counts.index(0)])
    around = periodic and version == "0.9.0"
    if way == "all" and not around:  # boundary points are owned, but by no process alone
        broken |= {"G7"} if (lo and not counts[0]) or (hi and not counts[-1]) else set()
        counts[0] += lo
        counts[-1] += hi
    for here in range(nprocs):
        below = lo > counts[here - 1] and (around or here > 0)
        above = hi > counts[(here + 1) % nprocs] and (around or here < nprocs - 1)
        broken |= {"G7"} if below or above else set()
    if version == "0.10.0" and nprocs > 1 and lo != hi:
        broken.add("G6")  # hi on one side of each boundary between two processes, lo on the other
    if version == "0.9.0" and first_without < points:
        broken.add("B6")
    return broken


@pytest.mark.parametrize("nprocs", [1, 2, 3, 6])
def test_what_is_refused_is_excluded_by_the_text(nprocs):
    """Of every case: legal by both checkers, with all points and ghosts, or a rule against it."""
    every = pencils.simulate(nprocs, export_cases)
    refused = Counter()
    for (shape, _, halo, periodic), *ranks in zip(CASES, *every, strict=True):
        grid = ranks[0][0]
        whole = np.arange(1.0, 1.0 + prod(shape)).reshape(shape)
        plain = [one for _, _, _, one in ranks]
        for version, way in WAYS:
            rules = set()
            for dim, points in enumerate(shape):
                how = {"periodic": periodic[dim]}
                rules |= rules_against(points, grid[dim], halo[dim], version, way, **how)
            exported = [found[version, way] for _, found, _, _ in ranks]
            method = [one for _, _, one, _ in ranks] if (version, way) == WAYS[2] else None
            if rules:
                assert len(set(exported)) == 1
                assert exported[0] in rules
                refused[exported[0]] += 1
                exported = plain if method else []
            else:
                dap.validate_collective(exported)
                expected = whole
                for dim, (width, around) in enumerate(zip(halo, periodic, strict=True)):
                    if way == "all" and not (around and version == "0.9.0"):
                        pads = [width if axis == dim else (0, 0) for axis in range(len(shape))]
                        values = {} if around else {"constant_values": -7.0}
                        mode = "wrap" if around else "constant"
                        expected = np.pad(expected, pads, mode=mode, **values)
                assert np.array_equal(read_all(exported), expected)
            for shown, one in zip(method or (), exported, strict=bool(method)):
                assert shown["dim_data"] == one["dim_data"]
                assert np.array_equal(shown["buffer"], one["buffer"])
                assert [dim["size"] for dim in shown["dim_data"]] == list(shape)
    assert refused == REFUSED[nprocs]


# Of 200 exports each. Nothing but two rules is left: widths differ on both sides of a boundary
# between processes (G6), or ghosts are wider than what the neighbour owns (G7).
REFUSED = {1: {}, 2: {"G6": 48, "G7": 11}, 3: {"G6": 44, "G7": 32}, 6: {"G6": 44, "G7": 48}}


# What was imported is exported again, equal.


def padded(rank, version, column):
    """Export one process of the table of paddings."""
    widths = [(4, 1), (1, 2), (2, 3), (3, 0)]
    bounds = [[(0, 10), (8, 17), (13, 23), (17, 27)], [(0, 9), (9, 15), (15, 20), (20, 27)]]
    start, stop = bounds[0][rank]
    begin, end = bounds[column][rank]
    said = block(rank, begin, end, proc_grid_size=4, size=27, padding=widths[rank])
    return wrap(said, shape=stop - start, version=version) | {"buffer": np.arange(start, stop)}


def eighteen(rank, version):
    """Export one process of the example of version 0.9 with 18 points."""
    begin, end = [(0, 9), (9, 18)][rank]
    inside = version == "0.10.0"
    said = block(rank, begin - rank * inside, end + (1 - rank) * inside, size=18, padding=(1, 1))
    values = np.arange(begin - rank, end + 1 - rank)
    return wrap(said, shape=10, version=version) | {"buffer": values}


def around(rank, lo=2, hi=2):  # noqa: ARG001 - the only process
    said = block(0, 0, 10 + lo + hi, proc_grid_size=1, size=10 + lo + hi)
    said |= {"padding": (lo, hi), "periodic": True}
    values = np.pad(np.arange(10), (lo, hi), mode="wrap")
    return wrap(said, shape=len(values)) | {"buffer": values}


def around_on_two(rank):
    """Widths differ at the ends and inside."""
    begin, end, padding = [(0, 9, (3, 2)), (5, 16, (2, 1))][rank]
    said = block(rank, begin, end, size=16, padding=padding, periodic=True)
    return wrap(said, shape=end - begin) | {"buffer": np.arange(begin, end)}


def rows(rank):
    """Only the second row has boundary points."""
    along = block(0, 0, 6, size=6, proc_grid_size=1) | ({"padding": (2, 1)} if rank else {})
    said = block(rank, rank, rank + 1, size=2), along
    return wrap(*said, shape=(1, 6))


def everything(make, halo):
    """Import on all processes, and export in all ways."""
    from mpi4py import MPI

    given = make(MPI.COMM_WORLD.rank)
    u = dap.import_array(given, halo=halo)
    version = given["__version__"]
    ways = {way: dap.export(u, version, halo=way) for way in ("none", "comm", "all")}
    onto = pencils.PencilArray.from_distarray(u.pencil, given, halo=halo)
    assert_equal(dap.export(onto, version, halo="all"), ways["all"])
    return given, ways, u.__distarray__(), u


def assert_equal(one, other):
    assert one["__version__"] == other["__version__"]
    assert one["dim_data"] == other["dim_data"]
    assert np.array_equal(one["buffer"], other["buffer"])


@pytest.mark.parametrize(
    ("nprocs", "make"),
    [
        (4, lambda rank: padded(rank, "0.10.0", 0)),
        (4, lambda rank: padded(rank, "0.9.0", 1)),
        (2, lambda rank: eighteen(rank, "0.9.0")),
        (2, lambda rank: eighteen(rank, "0.10.0")),
        (2, rows),
    ],
    ids=["table", "old table", "old example", "example", "rows"],
)
def test_the_padding_of_imports_is_exported_again(nprocs, make):
    for theirs, ways, method, u in pencils.simulate(nprocs, everything, make, "keep"):
        assert_equal(ways["comm"], theirs)
        assert_equal(ways["all"], theirs)
        assert np.shares_memory(ways["all"]["buffer"], theirs["buffer"])
        assert np.array_equal(ways["none"]["buffer"], u.local)
        assert not any("padding" in dim for dim in ways["none"]["dim_data"])
        if theirs["__version__"] == "0.10.0":
            assert_equal(method, theirs)
        assert [dim["size"] for dim in method["dim_data"]] == list(u.shape)


@pytest.mark.parametrize(("nprocs", "make"), [(1, around), (2, around_on_two)])
def test_what_was_wrapped_is_exported_again(nprocs, make):
    for theirs, ways, method, u in pencils.simulate(nprocs, everything, make, "wrap"):
        assert_equal(ways["all"], theirs)
        assert_equal(method, ways["comm"])
        assert method["dim_data"][0]["size"] == u.shape[0] == (10 if nprocs == 1 else 12)
        assert np.array_equal(ways["none"]["buffer"], u.local)


@examples(40)
@given(worlds())
def test_whatever_is_imported_is_exported_again(world):
    version, dims = world
    given = exports(version, dims)
    for number, one in enumerate(given):
        one["buffer"][...] = number

    def program(halo):
        from mpi4py import MPI

        u = dap.import_array(given[MPI.COMM_WORLD.rank], halo=halo)
        return dap.export(u, version, halo="all"), u.__distarray__()

    for halo in ("keep", "wrap"):
        found = pencils.simulate(len(given), program, halo)
        for (again, _), one in zip(found, given, strict=True):
            assert dap.validate(again).dims == dap.validate(one).dims
            assert np.array_equal(again["buffer"], one["buffer"])
        dap.validate_collective([method for _, method in found])
