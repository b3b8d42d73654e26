"""Shifts, also between points and the faces between them, against slices of the padded world."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from mpi_helpers import (
    all_raise,
    count_calls,
    everywhere,
    holds,
    numbered,
    random_pencil,
    same,
)

import pencils
from pencils import Pencil
from pencils.errors import ArgumentError, PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def draw_subset(rng, ndim):
    return np.flatnonzero(rng.random(ndim) < 0.5).tolist()


def draw_widths(rng, ndim):
    return [tuple(pair) for pair in rng.integers(0, 3, (ndim, 2)).tolist()]


def with_halo(pencil, halo, components=()):
    """Make a field and the global array that its padded blocks are cut from."""
    world = [n + lo + hi for n, (lo, hi) in zip(pencil.shape, halo, strict=True)]
    world = numbered((*components, *world))
    field = pencils.empty(pencil, halo=halo, components=components)
    padded = pencil.box().grow(halo).slices([-lo for lo, _ in halo])
    field.padded[...] = world[(Ellipsis, *padded)]
    return field, world


def test_shift_onto_pencils_that_share_blocks(comm):
    rng = np.random.default_rng(3)
    verdicts = []
    for _ in range(25):
        ndim = rng.integers(1, 4)
        pen = random_pencil(rng, comm, rng.integers(1, 8, ndim).tolist())
        source, onto = (pen.staggered(draw_subset(rng, ndim)) for _ in range(2))
        halo = draw_widths(rng, ndim)
        u, world = with_halo(source, halo, (2,) * rng.integers(2))
        more = [max(0, m - n) for n, m in zip(source.shape, onto.shape, strict=True)]
        fits = [range(-lo, hi - m + 1) for (lo, hi), m in zip(halo, more, strict=True)]
        for steps in product(*fits):
            moved = u.shift(steps, onto=onto)
            key = [
                slice(lo + step, lo + step + n)
                for (lo, _), step, n in zip(halo, steps, onto.shape, strict=True)
            ]
            verdicts.append(holds(moved, world[(Ellipsis, *key)]) and moved.pencil is onto)
            verdicts.append(np.shares_memory(moved.local, u.padded) == (moved.local.size > 0))
    assert everywhere(comm, all(verdicts))


def test_how_far_a_shift_goes_is_the_same_on_every_rank_and_number_of_ranks(comm):
    """On one process as on many, and also where this rank would not read the halo at all."""
    pen = Pencil((6, 4), comm, decomp=0)
    faces = pen.staggered(0)
    u, f = pencils.ones(pen, halo=1), pencils.ones(faces, halo=1)
    for field, onto, steps in ((u, faces, (-1, 0)), (f, pen, (-1, 1)), (u, None, (-1, 1))):
        for step in steps:
            assert field.shift((step, 0), onto=onto).pencil is (onto or pen)
        for step in (steps[0] - 1, steps[1] + 1):
            all_raise(
                comm,
                ArgumentError,
                (
                    f"shift by {step} along dimension 0",
                    "leaves the halo, which is (1, 1) wide there",
                    f"use steps {steps[0]}..{steps[1]}, or create the array with a wider halo",
                ),
                field.shift,
                (step, 0),
                onto=onto,
            )
    all_raise(
        comm,
        ArgumentError,
        "shift by 0 along dimension 0 onto 1 more point leaves the halo, which is (0, 0) wide "
        "there; create",
        lambda: pencils.ones(pen).shift((0, 0), onto=faces),
    )
    assert pencils.ones(faces).shift((0, 0), onto=pen).shape == pen.shape


def test_divergence_of_a_gradient_is_the_second_difference(comm):
    """In three dimensions, with boundary points at the edges; one dimension is periodic."""
    pen = Pencil((7, 5, 6), comm, decomp=(2, 0), periodic=(False, True, False), order=(2, 0, 1))
    world = np.pad(numbered(pen.shape), [(1, 1), (0, 0), (1, 1)], constant_values=7)
    world = np.pad(world, [(0, 0), (1, 1), (0, 0)], mode="wrap")
    p = pencils.empty(pen, halo=1)
    p.padded[...] = world[pen.box().grow(p.halo).slices((-1, -1, -1))]
    laplacian, expected = 0, 0
    for axis in range(3):
        ahead, behind, here = (tuple(s * (d == axis) for d in range(3)) for s in (1, -1, 0))
        faces = pen.staggered(axis)
        gradient = p.shift(here, onto=faces) - p.shift(behind, onto=faces)
        differences = np.diff(world, axis=axis)[
            tuple(slice(None) if dim == axis else slice(1, -1) for dim in range(3))
        ]
        assert everywhere(comm, holds(gradient, differences[tuple(map(slice, faces.shape))]))
        flux = pencils.empty(faces, halo=[(0, step) for step in ahead])
        known = np.append(differences, differences, axis)  # beyond the last face it is not read
        flux.padded[...] = known[faces.box().grow(flux.halo).slices()]
        laplacian = flux.shift(ahead, onto=pen) - flux.shift(here, onto=pen) + laplacian
        expected = np.diff(differences, axis=axis) + expected
    assert everywhere(comm, holds(laplacian, expected))


def test_onto_a_pencil_with_other_blocks(comm):
    pen = Pencil((6, 4), comm, decomp=0)
    u = pencils.ones(pen, halo=1)
    others = [pen.with_(shape=(6, 6)), Pencil((8, 4), comm, decomp=0, periodic=True)]
    if comm.size > 1:  # one process has all points of any pencil
        others.append(pen.with_(decomp=1))
    for other in others:
        all_raise(
            comm,
            PencilMismatchError,
            ("with the same blocks", "staggered()", repr(pen), repr(other)),
            u.shift,
            (0, 0),
            onto=other,
        )
    for wrong in (pen.layout, [pen], "pen", u):
        all_raise(comm, TypeError, "onto must be a Pencil, not", u.shift, (0, 0), onto=wrong)


def test_mixed_singleton_and_cheap_shifts(comm):
    pen = Pencil((6, 4), comm)
    faces = pencils.ones(pen.staggered(0))
    for call in (lambda: faces + pencils.ones(pen), lambda: pencils.ones(pen).__iadd__(faces)):
        all_raise(comm, PencilMismatchError, ".shift((0, 0), onto=", call)
    all_raise(
        comm,
        PencilMismatchError,
        "global shapes differ",
        lambda: pencils.ones(pen) + pencils.ones(pen.with_(shape=(8, 4))),
    )
    # Singletons stay singletons.
    pen = Pencil((5, 4), comm, decomp=(1, 0))
    world = numbered((6, 1))
    u = pencils.empty(pen, halo=[(0, 1), (0, 0)], dims=0)
    lo, hi = pen.box().start[0], pen.box().stop[0]
    u.padded[...] = world[lo : hi + 1]
    for axes, count in ((1, 5), (0, 6), ((0, 1), 6)):
        onto = pen.staggered(axes)
        moved = u.shift((0, 0), onto=onto)
        assert moved.singletons == {1}
        assert everywhere(comm, holds(moved, world[:count]))
        assert (moved + pencils.ones(onto)).shape == onto.shape
    # A stencil of many terms on small blocks is made of shifts: a few dozen calls for each.
    pen = Pencil((6, 4, 4), comm)
    u = pencils.ones(pen, halo=1)
    for onto in (None, pen.staggered(0)):
        u.shift((0, 0, 0), onto=onto)
        count = count_calls(partial(u.shift, (0, 0, 0), onto=onto))
        assert everywhere(comm, count < 60), comm.allgather(count)


def test_interior_and_shells_compute_every_point_once(comm):
    rng = np.random.default_rng(4)
    verdicts = []
    for _ in range(25):
        ndim = rng.integers(1, 4)
        pen = random_pencil(rng, comm, rng.integers(0, 9, ndim).tolist())
        halo = draw_widths(rng, ndim)
        u, _ = with_halo(pen, halo, (2,) * rng.integers(2))
        count = np.zeros((2, *u.local_shape), int)  # they index any array like the own block
        for key in (u.interior, *u.shells):
            count[key] += 1
        verdicts.append((count == 1).all())
        verdicts.append(u.shells == [] or any(map(any, halo)))
        # Neither ghosts nor boundary points have an influence on the interior.
        stale = pencils.full(pen, np.nan, halo=halo, components=u.components)
        stale.local[...] = u.local
        for steps in product(*((-lo, hi) for lo, hi in halo)):
            one, other = (field.shift(steps).local[u.interior] for field in (u, stale))
            verdicts.append(same(one, other))
    assert everywhere(comm, all(verdicts))
