"""Rows and points: every implementation against loops in Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pencils.comm import pack, rows

SIZES = [1, 2, 3, 4, 7, 8, 16, 24, 40]

implementations = pytest.mark.parametrize("name", pack.available()[-2:])


def table(rng, count, columns, size, *, gaps, plain):
    """Make items of so many bytes in a table with gaps, or in a plain list."""
    raw = rng.integers(0, 256, (count * gaps, columns, size), np.uint8)
    items = raw.view(f"V{size}")[..., 0][::gaps]
    return items[:, 0] if plain else items


@implementations
@given(st.data())
def test_rows_are_moved(name, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    size, gaps = data.draw(st.sampled_from(SIZES)), data.draw(st.integers(1, 2))
    plain = data.draw(st.booleans())
    columns = 1 if plain else data.draw(st.integers(1, 3))
    count = data.draw(st.integers(0, 70))
    scattered, gathered = data.draw(st.booleans()), data.draw(st.booleans())
    target = table(rng, count + 3 * scattered, columns, size, gaps=gaps, plain=plain)
    source = table(rng, count + 1 * gathered, columns, size, gaps=3 - gaps, plain=plain)
    to = rng.permutation(len(target))[:count] if scattered else None
    chosen = rng.integers(0, len(source), count) if gathered else None
    expected = target.copy()
    for i in range(count):
        expected[to[i] if scattered else i] = source[chosen[i] if gathered else i]
    with pack.using(name):
        rows.mover(target, to, source, chosen)()
    assert target.tobytes() == expected.tobytes()


@st.composite
def points(draw):
    """Draw points on any process grid."""
    ndim = draw(st.integers(1, 4))
    cuts = []
    for _ in range(ndim):
        size = draw(st.integers(1, 9))
        inner = draw(st.lists(st.integers(0, size), max_size=4))
        cuts.append(np.array([0, *sorted(inner), size]))
    parts = [len(cut) - 1 for cut in cuts]
    steps = [int(np.prod(parts[dim + 1 :], dtype=int)) for dim in range(ndim)]
    count = draw(st.sampled_from([0, 1, 3, 130]))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    coords = tuple(rng.integers(0, cut[-1], count) for cut in cuts)
    return rows.Points(coords, tuple(cuts), tuple(steps), 0)


def homes_of(wanted):
    """Give the numbers of all points, and the blocks of all owners."""
    shape = [cut[-1] for cut in wanted.cuts]
    whole = np.arange(np.prod(shape)).reshape(shape)
    found = []
    for at in np.ndindex(*(len(cut) - 1 for cut in wanted.cuts)):
        start = [int(cut[part]) for cut, part in zip(wanted.cuts, at, strict=True)]
        stop = [int(cut[part + 1]) for cut, part in zip(wanted.cuts, at, strict=True)]
        block = whole[tuple(map(slice, start, stop))]
        found.append((np.asfortranarray(block)[..., ::1], start))
    return whole, found


@implementations
@given(points())
def test_points_are_found_and_fetched(name, wanted):
    whole, homes = homes_of(wanted)
    expected = whole[wanted.coords]
    target = np.full((wanted.number, 2), -1)
    with pack.using(name):
        owners, offsets = rows.locate(wanted)
        if name != "numpy":
            rows.fetch(wanted, homes, target[:, 1])
    blocks = [np.ascontiguousarray(block).reshape(-1) for block, _ in homes]
    found = [blocks[owner][offset] for owner, offset in zip(owners, offsets, strict=True)]
    assert found == expected.tolist()
    assert name == "numpy" or target[:, 1].tolist() == found
    assert (target[:, 0] == -1).all()


@implementations
@given(st.lists(st.integers(0, 5)), st.integers(6, 300))
def test_owners_are_sorted_stably(name, owners, size):
    with pack.using(name):
        order, ends = rows.sort(np.array(owners, np.int64), size)
    assert order.tolist() == sorted(range(len(owners)), key=owners.__getitem__)
    assert np.diff(ends, prepend=0).tolist() == [owners.count(owner) for owner in range(size)]


@pytest.mark.skipif(len(pack.available()) == 1, reason="nothing was compiled")
def test_the_compiled_functions_refuse_what_does_not_fit():
    kernels, three = pack._kernels, np.arange(3)
    cases = [
        (kernels.move, (three, None, three)),
        (kernels.move, (three, None, np.arange(4), None)),
        (kernels.move, (three, None, three.astype("i4"), None)),
        (kernels.move, (three, three.astype("i4"), three, None)),
        (kernels.move, (three.reshape(1, 1, 3), None, three, None)),
        (kernels.move, (np.broadcast_to(0, 3), None, three, None)),
        (kernels.locate, ((three,), (), (1,), 0, three, three)),
        (kernels.locate, ((three,), (three,), (1,), 0, three[:2], three)),
        (kernels.locate, ((three,), (three[:1],), (1,), 0, three, three)),
        (kernels.locate, ((three,), (three,), ("1",), 0, three, three)),
        (kernels.fetch, ((three,), (three,), (1,), 0, np.arange(4), np.arange(2))),
        (kernels.sort, (three, three, np.arange(2))),
    ]
    for call, arguments in cases:
        with pytest.raises((TypeError, ValueError, BufferError)):
            call(*arguments)
