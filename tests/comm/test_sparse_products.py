"""Products of sparse matrices and arrays, compared with dense ones, compiled and by NumPy."""

import itertools
from contextlib import contextmanager

import numpy as np
import pytest

from pencils.comm import pack
from pencils.comm.products import Matrix, prepare_product

implementations = pytest.mark.parametrize("name", dict.fromkeys([pack.available()[0], "numpy"]))


def matrix(rng, points, up, down, few=3):
    """Make a matrix that repeats, but for its first and last rows; with its dense form."""
    periods = points // down - few
    width = few * down
    stencils = [rng.choice(width, n, replace=False) for n in rng.integers(1, width + 1, up)]
    middle = [
        [(int(at), rng_of(at, number)) for at in stencil] for number, stencil in enumerate(stencils)
    ]
    ends = [[(int(rng.integers(points)), 0.5), (0, 1.5)] for _ in range(2)]
    found = Matrix([*ends, *middle, ends[0]], up, down, first=2, times=periods)
    dense = np.zeros((found.points, points))
    for period in range(periods):
        for number, pairs in enumerate(middle):
            for at, weight in pairs:
                dense[2 + period * up + number, at + period * down] += weight
    for row, pairs in zip((0, 1, -1), (*ends, ends[0]), strict=True):
        for at, weight in pairs:
            dense[row, at] += weight
    return found, dense


@contextmanager
def writing_past_the_cache(*, past=True):
    """Write small targets past the cache, too."""
    before = past and pack.compiled() and pack.compiled().stream_from(1)
    try:
        yield
    finally:
        if before:
            pack.compiled().stream_from(before)


def rng_of(*key):
    return np.random.default_rng([int(each) for each in key]).normal()


@implementations
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8", "g", ">f8"])
@pytest.mark.parametrize(
    ("points", "steps"),
    [
        ((21,), [(2, 1)]),
        ((60,), [(1, 2)]),
        ((9, 40), [None, (3, 1)]),
        ((40, 9), [(1, 4), None]),
        ((30, 3, 64), [(1, 2), None, (1, 3)]),
        ((12, 24, 17), [(2, 1), (1, 2), (2, 1)]),
        ((3, 200, 900), [None, (1, 2), (1, 2)]),  # more rows than are added up at once
        ((2, 2, 14, 11), [None, (1, 1), (2, 1), (2, 1)]),
        # Planes that are kept until they are added up: more of them than one sum has.
        ((18, 15, 24, 22), [(1, 3), (1, 3), (1, 2), (1, 2)]),
    ],
)
def test_products_are_those_of_dense_matrices(name, dtype, points, steps):
    rng = np.random.default_rng(1)
    base = rng.normal(size=[n + 2 for n in points]) + 1j * rng.normal(size=[n + 2 for n in points])
    base = (base if np.dtype(dtype).kind == "c" else base.real).astype(dtype)
    source = base[tuple(slice(1, -1) for _ in points)]  # with gaps between rows
    expected, matrices = source.astype("c16"), []
    for axis, step in enumerate(steps):
        found, dense = (
            (None, np.eye(points[axis]))
            if step is None
            else (matrix(rng, points[axis], *step, few=1 if points[axis] < 8 else 3))
        )
        matrices.append(found)
        expected = np.moveaxis(np.tensordot(dense, expected, (1, axis)), 0, axis)
    near = {"rtol": 1e-4, "atol": 1e-4} if dtype in {"f4", "c8"} else {"rtol": 1e-11, "atol": 1e-11}
    wide = np.full([n + 1 for n in expected.shape], 7, dtype)
    target = wide[tuple(slice(n) for n in expected.shape)]
    for add, past in ((False, False), (True, False), (False, True)):
        with pack.using(name), writing_past_the_cache(past=past):
            ops = list(
                prepare_product(target, source, lambda: matrices, {}, {}, scale=0.5, add=add)
            )
        for _ in range(2 if add else 1):
            for op in ops:
                op()
        np.testing.assert_allclose(target, expected * (1.5 if add else 0.5), **near)
    assert (wide[..., -1] == 7).all()  # nothing beyond it was written


@implementations
def test_large_targets_are_written_past_the_cache(name):
    u = np.random.default_rng(0).normal(size=(64, 96, 130))
    repeated = Matrix([[(0, 1.0)]] * 2, up=2, times=130)
    means = Matrix([[(0, 0.5), (1, 0.5)]], down=2, times=130)
    found, back = np.empty((64, 96, 260)), np.empty_like(u)
    with pack.using(name), writing_past_the_cache():
        for into, source, each in (found, u, repeated), (back, found, means):
            for op in prepare_product(into, source, lambda each=each: [None, None, each], {}, {}):
                op()
    assert (found == u.repeat(2, -1)).all()
    assert (back == u).all()


@pytest.mark.parametrize("name", pack.available())
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "c8"])
@pytest.mark.parametrize("terms", [2, 3, 4])
def test_windows_read_their_own_points(name, dtype, terms):
    """Most points of the target are sums of successive points; there are NaN around these."""
    rng = np.random.default_rng(0)
    cases = itertools.product((0, 1), (3, 16, 131), (0, 1, 2), (0, 1), (False, True))
    for first, number, before, behind, past in cases:
        base = np.full((3, first + 2 * number + terms), np.nan, dtype)
        source = base[:, : first + 2 * (number - 1) + terms]
        source[...] = rng.integers(-9, 9, source.shape)
        found = np.empty((3, before + number + behind), dtype)
        window, other = [(first + k, 0.5**k) for k in range(terms)], [(first, 3.0)]
        listed = [*[other] * before, window, *[other] * behind]
        sums = Matrix(listed, down=2, first=before, times=number)
        with pack.using(name), writing_past_the_cache(past=past):
            for op in prepare_product(found, source, lambda sums=sums: [None, sums], {}, {}):
                op()
        parts = [0.5**k * source[:, first + k :: 2][:, :number] for k in range(terms)]
        others = [*range(before), *range(before + number, before + number + behind)]
        assert (found[:, before : before + number] == sum(parts)).all()
        assert (found[:, others] == 3 * source[:, [first]]).all()


@pytest.mark.skipif(pack.compiled() is None, reason="for compiled products")
def test_what_does_not_fit_is_refused():
    make, u = pack.compiled().Product, np.zeros((2, 3))
    one = np.zeros(1, np.int64)
    lists = np.array([1, 2]), np.array([0, 1]), np.ones(2)
    for arguments in (
        (u, u.T, (lists,), None, 1.0, False),
        (u, u.astype("f4"), (lists,), None, 1.0, False),
        (u, u, (), None, 1.0, False),
        (u, u, ((one, one, np.ones(1)),), None, 1.0, False),
        (u, u, (lists,), (1, 1, 3, one, *lists), 1.0, False),
        (u, u, ((lists[0], lists[1], np.ones(3)),), None, 1.0, False),
    ):
        with pytest.raises(ValueError, match=r"each|contiguous|axis"):
            make(*arguments)
