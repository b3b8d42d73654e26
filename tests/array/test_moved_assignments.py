"""Assignments of fields whose points lie on other ranks: ``u[1:] = u[:-1]``, as in NumPy."""

import numpy as np
import pytest
from fields import LARGE, assert_holds, both, draw, lay, spread
from mpi_helpers import all_raise, collectives, other_blocks

import pencils
from pencils.errors import ArgumentError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def pairs(n):
    """Slices of equal lengths of `n` points, many of which overlap."""
    yield from ((np.s_[1:], np.s_[:-1]), (np.s_[:-1], np.s_[1:]), (np.s_[-1:], np.s_[:1]))
    yield from ((np.s_[: n // 2], np.s_[n - n // 2 :]), (np.s_[::2], np.s_[: (n + 1) // 2]))
    yield (np.s_[1::2], np.s_[: 2 * (n // 2) : 2])


@pytest.mark.parametrize("shared", [False, True])
def test_sections_overlap_as_in_numpy(pencil, shared):
    a = draw((2, *pencil.shape))
    u = pencils.empty(pencil, components=2, halo=1, shared=shared)
    u[...] = a
    for axis, n in enumerate(pencil.shape, 1):
        for _ in range(2):  # the second time with kept plans
            for target, source in pairs(n):
                before = (slice(None),) * axis
                u[(*before, target)] = u[(*before, source)]
                a[(*before, target)] = a[(*before, source)].copy()
                assert_holds(u, a)


@pytest.mark.parametrize("name", LARGE)
def test_large_sections_overlap_as_in_numpy(comm, name):
    u, a = both(lay(comm, name), draw(LARGE[name]["shape"]))
    for target, source in pairs(len(a)):
        u[target] = u[source]
        a[target] = a[source].copy()
        assert_holds(u, a)


def test_fields_of_other_pencils_are_moved(comm):
    pencil = lay(comm, "pencils")
    u, a = both(pencil, draw(pencil.shape))
    half = pencils.Pencil((3, 4, 6), comm, decomp=2)
    v, b = both(half, draw(half.shape, seed=1), halo=1)
    u[::2] = v
    a[::2] = b
    assert_holds(u, a)
    v[:2, ::-1] = u[3:]
    b[:2, ::-1] = a[3:]
    u[...] = spread(other_blocks(pencil), 2 * a) if comm.size > 1 else 2 * a
    assert_holds(v, b)
    assert_holds(u, 2 * a)


@pytest.mark.parametrize("types", [(float, int), (int, float), ("c8", "f4"), ("f4", ">f8")])
def test_types_components_and_singletons(comm, types):
    """Values are converted and broadcast as in NumPy."""
    pencil = lay(comm, "pencils")
    u, a = both(pencil, draw((2, *pencil.shape), types[0]))
    v, b = both(pencil, draw(pencil.shape, types[1], seed=1))
    for _ in range(2):
        u[:, 1:] = v[:-1]
        a[:, 1:] = b[:-1]
        u[1, :, ::2] = v[:, 2:]
        a[1, :, ::2] = b[:, 2:]
        assert_holds(u, a)
    x, c = both(pencil, draw((pencil.shape[0], 1, 1), types[1], seed=2), dims=0)
    u[:, 1:, 1:] = x[:-1]
    a[:, 1:, 1:] = c[:-1]
    assert_holds(u, a)
    x[1:] = x[:-1]
    c[1:] = c[:-1].copy()
    assert_holds(x, c)


def test_only_fields_of_other_points_are_moved(comm):
    pencil = lay(comm, "pencils")
    u, v = pencils.zeros(pencil), pencils.ones(pencil.with_(order=(2, 0, 1)))
    x = pencils.ones(pencil, dims=0)
    with collectives() as calls:
        u[1:-1] = 2 * v[1:-1]
        u[1:, 2] = x[1:]
        u[1:] = np.ones((1, 4, 6))
    assert not calls


def test_what_does_not_fit_raises_on_all_ranks(comm):
    pencil = lay(comm, "pencils")
    u, before = both(pencil, draw(pencil.shape))
    thin = pencils.ones(pencil, dims=(1, 2))
    other = pencils.Pencil((5, 4, 6), comm.Split(0, -comm.rank)) if comm.size > 1 else None
    for key, value, kind, text in (
        (np.s_[1:], u, PencilMismatchError, "the same section of both"),
        (np.s_[1:], u[0], PencilMismatchError, "replicate"),
        (np.s_[1:], u[:-1, 1:], PencilMismatchError, "shapes differ"),
        (np.s_[...], pencils.ones(pencils.Pencil(5, comm)), PencilMismatchError, "dimensions"),
        (np.s_[1:], pencils.ones(pencil, components=2)[:, :-1], ArgumentError, "components"),
        *([(..., pencils.ones(other), PencilMismatchError, "processes")] if other else []),
    ):
        all_raise(comm, kind, text, u.__setitem__, key, value)
    all_raise(comm, ArgumentError, "do not fit", thin[:, 1:].__setitem__, ..., u[:, :-1])
    assert_holds(u, before)
    for value in (u, u.astype(int)):
        mine = pencils.partition(pencil, before, copy=True)
        mine[1:] = value[:-1]
        mine.local.flags.writeable = mine.padded.flags.writeable = comm.rank != comm.size - 1
        kept = mine.local.copy()
        all_raise(comm, ArgumentError, "read-only", mine.__setitem__, np.s_[1:], value[:-1])
        assert np.array_equal(mine.local, kept)
