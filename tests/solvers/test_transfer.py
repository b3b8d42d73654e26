"""Restriction and prolongation, compared with NumPy on the global grid."""

from functools import partial

import numpy as np
import pytest
from fields import draw
from mpi_helpers import all_raise, collectives, everywhere

import pencils
from pencils.comm import pack
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.solvers import prolong, restrict
from pencils.solvers.weights import Weights

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

# Uneven and empty blocks, periodic dimensions, orders of memory, vertices, factors, agglomeration.
GRIDS = {
    "cells": ({"shape": (24, 16, 12)}, {}),
    "few ranks": ({"shape": (24, 16, 12)}, {"least": 400}),
    "one rank": ({"shape": (12, 8, 4), "decomp": (0, 2)}, {"least": 10**6}),
    "uneven": ({"shape": (14, 6, 10), "splits": "last", "decomp": (2, 0)}, {"least": 0}),
    "ring": ({"shape": (18, 10), "periodic": True, "order": (1, 0)}, {"least": 0}),
    "vertices": ({"shape": (15, 9), "decomp": (0, 1)}, {"centred": "vertex", "least": 0}),
    "vertex ring": (
        {"shape": (8, 14), "periodic": True, "decomp": 1},
        {"centred": "vertex", "least": 20},
    ),
    "short ring": (
        {"shape": (8, 7), "periodic": (True, False), "decomp": 0},
        {"centred": "vertex"},
    ),
    "faces": ({"shape": (13, 8, 6)}, {"centred": ("vertex", "cell", "cell"), "least": 0}),
    "four axes": ({"shape": (6, 8, 4, 6)}, {"least": 0}),
    "thirds": ({"shape": (15, 12)}, {"factor": (3, 1), "least": 0}),
    "tiny": ({"shape": (4, 2), "periodic": (False, True)}, {"least": 0}),
    "fourths": ({"shape": (32,), "periodic": True}, {"factor": 4, "least": 0}),
}
grids = pytest.mark.parametrize("name", GRIDS)


def levels(comm, name):
    options, relation = GRIDS[name]
    fine = pencils.Pencil(comm=comm, **options)
    return fine, fine.coarsen(**relation)


def padded(data, axis, wraps, centred, boundary, width):  # noqa: PLR0917
    """Continue the data along an axis by `width` points on both sides."""
    widths = [(0, 0)] * data.ndim
    widths[axis] = (width, width)
    if wraps:
        return np.pad(data, widths, "wrap")
    if centred == "vertex":
        return np.pad(data, widths, "reflect")
    odd = np.pad(np.ones_like(data), widths)
    both = np.pad(data, widths, "symmetric")
    return np.where(odd != 0, both, -both) if boundary == "odd" else both


def restricted(data, coarse, methods, lead=0):
    """Restrict global data, one axis after the other."""
    for dim, (factor, centred) in enumerate(coarse.coarsened):
        axis, method, middle = lead + dim, methods[dim], 0 if centred == "vertex" else factor // 2
        if factor == 1:
            continue
        near = np.moveaxis(
            padded(data, axis, coarse.periodic[dim], centred, "edge", factor), axis, 0
        )
        first = factor * (1 + np.arange(coarse.shape[dim]))
        if method == "injection":
            middle -= factor % 2 == 0 and centred == "cell"
            found = near[first + middle]
        elif method == "average":
            found = sum(near[first + n] for n in range(factor)) / factor
        else:
            shift = 0 if centred == "vertex" else (factor - 1) / 2
            weights = {n: 1 - abs(n - shift) / factor for n in range(-factor, 2 * factor)}
            found = sum(w / factor * near[first + n] for n, w in weights.items() if w > 0)
        data = np.moveaxis(found, 0, axis)
    return data


def prolonged(data, coarse, fine, methods, boundary, *, lead=0):
    """Interpolate global data, one axis after the other, by polynomials of NumPy."""
    for dim, (factor, centred) in enumerate(coarse.coarsened):
        axis, method, points = lead + dim, methods[dim], coarse.shape[dim]
        if factor == 1:
            continue
        if method == "constant":
            data = np.repeat(data, factor, axis)
            continue
        wraps, count = coarse.periodic[dim], 2 if method == "linear" else 4
        inside = not wraps and (centred == "vertex" or boundary == "extrapolate")
        near, width = np.moveaxis(data, axis, 0), 0
        if not inside:
            width = 2
            while near.shape[0] < points + 2 * width:  # a few points repeat several times
                near = np.moveaxis(padded(data, axis, wraps, centred, boundary, width), axis, 0)
        shift = 0 if centred == "vertex" else (factor - 1) / 2
        found = []
        for x in (np.arange(fine.shape[dim]) - shift) / factor + width:
            nodes = int(np.floor(x)) - count // 2 + 1 + np.arange(min(count, len(near)))
            nodes -= max(0, nodes[-1] + 1 - len(near)) + min(0, nodes[0])
            weights = np.linalg.solve(
                np.vander(nodes - x, increasing=True).T, np.eye(len(nodes))[0]
            )
            found.append(np.tensordot(weights, near[nodes], 1))
        data = np.moveaxis(np.array(found), 0, axis)
    return data


def agree(comm, field, data):
    part = data[field.local_slices]
    assert field.shape == data.shape
    assert everywhere(comm, np.allclose(field.local, part, rtol=1e-12, atol=1e-12))


def of_each(coarse, cells, vertices):
    return [cells if centred == "cell" else vertices for _, centred in coarse.coarsened]


@grids
@pytest.mark.parametrize("method", [None, "injection", "full"])
def test_restriction_is_that_of_numpy(comm, name, method):
    fine, coarse = levels(comm, name)
    data = draw(fine.shape)
    u = pencils.partition(fine, data, halo=1)
    out = pencils.zeros(coarse, halo=2)
    methods = [method] * fine.ndim if method else of_each(coarse, "average", "full")
    expected = restricted(data, coarse, methods)
    for _ in range(3):  # the plan is made, found, and used without arguments being read
        assert restrict(u, coarse, method=method, out=out) is out
        agree(comm, out, expected)
    agree(comm, restrict(u, coarse, method=method), expected)


@grids
@pytest.mark.parametrize(
    ("method", "boundary"),
    [
        ("constant", "edge"),
        ("linear", "edge"),
        ("linear", "odd"),
        ("cubic", "odd"),
        ("cubic", "extrapolate"),
    ],
)
def test_prolongation_is_that_of_numpy(comm, name, method, boundary):
    fine, coarse = levels(comm, name)
    methods = of_each(coarse, method, "linear" if method == "constant" else method)
    data, before = draw(coarse.shape), draw(fine.shape, seed=1)
    v = pencils.partition(coarse, data, halo=1)
    expected = prolonged(data, coarse, fine, methods, boundary)
    out = pencils.zeros(fine, halo=1)
    options = {"method": methods, "boundary": boundary}
    if len(set(methods)) == 1:
        options["method"] = methods[0]
    for _ in range(3):
        assert prolong(v, fine, **options, out=out) is out
        agree(comm, out, expected)
    out[...] = before
    prolong(v, fine, **options, out=out, add=True)
    agree(comm, out, before + expected)


@grids
@pytest.mark.parametrize("pair", [("average", "constant"), ("full", "linear")])
def test_restriction_is_the_transpose_of_prolongation(comm, name, pair):
    fine, coarse = levels(comm, name)
    if pair[0] == "average" and any(centred == "vertex" for _, centred in coarse.coarsened):
        pair = of_each(coarse, "average", "full"), of_each(coarse, "constant", "linear")
    u, v = pencils.partition(fine, draw(fine.shape)), pencils.partition(coarse, draw(coarse.shape))
    for dim, (_, centred) in enumerate(coarse.coarsened):
        if centred == "vertex" and not fine.periodic[dim]:  # fields that vanish on walls
            u[(slice(None),) * dim + (slice(None, None, fine.shape[dim] - 1),)] = 0
            v[(slice(None),) * dim + (slice(None, None, coarse.shape[dim] - 1),)] = 0
    volume = np.prod([factor for factor, _ in coarse.coarsened])
    down = (restrict(u, coarse, method=pair[0]) * v).sum()
    up = (u * prolong(v, fine, method=pair[1])).sum()
    assert down * volume == pytest.approx(up, rel=1e-12)


@pytest.mark.parametrize(("method", "degree"), [("constant", 0), ("linear", 1), ("cubic", 3)])
@pytest.mark.parametrize("centred", ["cell", "vertex"])
def test_polynomials_are_exact(comm, method, degree, centred):
    if (method, centred) == ("constant", "vertex"):
        return
    ends = centred == "vertex"
    fine = pencils.Pencil((16 + ends, 24 + ends), comm)
    coarse = fine.coarsen(centred=centred)

    def values(pencil, step):
        shift = 0 if ends else (step - 1) / 2
        return pencils.from_function(
            pencil,
            lambda x, y: ((step * x + shift) / 10) ** degree - ((step * y + shift) / 9) ** degree,
        )

    found = prolong(values(coarse, 2), fine, method=method, boundary="extrapolate")
    assert abs(found - values(fine, 1)).max() < 1e-12
    found = restrict(values(fine, 1), coarse, method="injection" if ends else "average")
    if degree < 2:
        assert abs(found - values(coarse, 2)).max() < 1e-12


@pytest.mark.parametrize("dtype", ["f4", "c16", "f2", "g", ">f8", "c8"])
def test_all_types_components_and_singletons(comm, dtype):
    fine = pencils.Pencil((8, 12, 6), comm, order=(2, 0, 1))
    coarse = fine.coarsen()
    near = {"rtol": 1e-5, "atol": 1e-2 if dtype == "f2" else 1e-5}
    data = draw((3, *fine.shape), dtype)
    r = restrict(pencils.partition(fine, data), coarse)
    expected = restricted(data, coarse, ["average"] * 3, 1)
    assert r.dtype == data.dtype
    assert everywhere(comm, np.allclose(r.local, expected[r.local_slices], **near))
    w = prolong(r, fine)
    expected = prolonged(expected, coarse, fine, ["linear"] * 3, "edge", lead=1)
    assert everywhere(comm, np.allclose(w.local, expected[w.local_slices], **near))
    flat = data[0, :, :1]
    r = restrict(pencils.partition(fine, flat), coarse)
    assert r.shape == (4, 1, 3)
    for pencil in (coarse, coarse.with_(decomp=(2, 0)), coarse.with_(decomp=(0, 1, 2))):
        moved = pencils.transpose(r, pencil)
        w = prolong(moved, fine, method="constant")
        expected = flat.reshape(4, 2, 1, 3, 2).mean((1, 4)).repeat(2, 0).repeat(2, 2)
        assert everywhere(comm, np.allclose(w.local, expected[w.local_slices], **near))
        back = restrict(pencils.partition(fine, flat), pencil)
        assert everywhere(comm, np.allclose(back.local, moved.local, **near))


@pytest.mark.parametrize("most", [0, 2**17])
def test_other_decompositions_and_orders(comm, monkeypatch, most):
    monkeypatch.setattr("pencils.solvers.transfer._MOST_FETCHED", most)
    fine = pencils.Pencil((12, 8, 20), comm)
    coarse = fine.coarsen()
    data = draw(fine.shape)
    u = pencils.partition(fine, data)
    for options in ({"decomp": (1, 2)}, {"order": (2, 1, 0)}, {"decomp": 2, "order": (1, 0, 2)}):
        other = coarse.with_(**options)
        assert other.coarsened == coarse.coarsened
        agree(comm, restrict(u, other), restricted(data, coarse, ["average"] * 3))
        v = pencils.partition(other, draw(coarse.shape))
        expected = prolonged(draw(coarse.shape), coarse, fine, ["cubic"] * 3, "odd")
        agree(comm, prolong(v, fine, method="cubic", boundary="odd"), expected)


def test_fewer_ranks_need_no_more_calls(comm):
    counts = []
    for least in (0, 10**6):
        with collectives() as calls:
            fine = pencils.Pencil((12, 8, 20), comm)
            u, coarse = pencils.ones(fine), fine.coarsen(least=least)
            v = restrict(u, coarse, method="full")
            before = len(calls)
            restrict(u, coarse, method="full", out=v)
            counts.append(len(calls) - before)
    assert everywhere(comm, counts[0] == counts[1]), counts


def test_singletons_in_another_order_of_memory(comm):
    fine = pencils.Pencil((6, 8, 4), comm, decomp=2)
    coarse = fine.coarsen().with_(order=(1, 0, 2))
    data = draw((3, 4, 1))
    v = pencils.zeros(coarse, dims=(0, 1))
    v.local[...] = data
    found = prolong(v, fine, method="constant")
    assert everywhere(comm, np.array_equal(found.local, data.repeat(2, 0).repeat(2, 1)))


def test_integers_are_injected_and_repeated(comm):
    fine = pencils.Pencil((8, 6), comm)
    coarse = fine.coarsen(least=0)
    data = draw(fine.shape, int)
    u = pencils.partition(fine, data)
    v = restrict(u, coarse, method="injection")
    agree(comm, v, data[::2, ::2])
    agree(comm, prolong(v, fine, method="constant"), data[::2, ::2].repeat(2, 0).repeat(2, 1))
    all_raise(comm, ArgumentError, "u.astype(float)", restrict, u, coarse)
    all_raise(comm, ArgumentError, "'constant'", prolong, v, fine)


def test_mistakes_raise_on_all_ranks(comm):
    fine = pencils.Pencil((8, 6), comm)
    coarse, other = fine.coarsen(), pencils.Pencil((8, 6), comm, periodic=True)
    u, v = pencils.ones(fine), pencils.ones(coarse)
    wrong = partial(all_raise, comm)
    wrong(TypeError, "u must be a PencilArray", restrict, 3, coarse)
    wrong(TypeError, "fine must be a Pencil", prolong, v, u)
    wrong(ArgumentError, "pencil.coarsen(", restrict, u, pencils.Pencil((4, 3), comm))
    wrong(PencilMismatchError, "no level", restrict, pencils.ones(other), coarse)
    wrong(PencilMismatchError, "no level", prolong, v, coarse)
    wrong(ArgumentError, "method='mean' must be 'average'", restrict, u, coarse, method="mean")
    wrong(ArgumentError, "each of 2 dim", prolong, v, fine, method=("cubic", "linear", "cubic"))
    wrong(ArgumentError, "boundary='zero'", prolong, v, fine, boundary="zero")
    wrong(ArgumentError, "pass it as out=", prolong, v, fine, add=True)
    wrong(PencilMismatchError, "out lies on", restrict, u, coarse, out=pencils.ones(fine))
    vertices = other.coarsen(centred="vertex")
    w = pencils.ones(other)
    wrong(ArgumentError, "centred at vertices", restrict, w, vertices, method="average")
    wrong(
        ArgumentError,
        "'linear' or 'cubic'",
        prolong,
        pencils.ones(vertices),
        other,
        method="constant",
    )
    a, b = pencils.alias([fine, coarse])
    wrong(ArgumentError, "shares memory", restrict, a, coarse, out=b)
    restrict(u, coarse, out=v)
    wrong(PencilMismatchError, "out lies on", restrict, u, coarse, out=pencils.ones(fine))
    out = pencils.ones(coarse, dtype="f4" if comm.rank == 0 else float)
    wrong(ArgumentError, "dtype float32", restrict, u, coarse, out=out)
    assert everywhere(comm, (v.local == 1).all())


@pytest.mark.skipif(pack.compiled() is None, reason="NumPy needs the matrices in each call")
def test_fields_elsewhere_in_memory_need_no_other_matrices(comm, monkeypatch):
    pen = pencils.Pencil((24, 18), comm)
    coarse, u = pen.coarsen(), pencils.from_function(pen, lambda x, y: 1.0 * x * y)
    first = restrict(u, coarse)
    restrict(u, coarse)
    monkeypatch.setattr(Weights, "among", None)
    others = [restrict(u, coarse) for _ in range(3)]  # all of them live
    assert all((other.local == first.local).all() for other in others)
