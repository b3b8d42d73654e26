"""Blocks in the bytes of a file, and selections cut into runs, against NumPy, in one process."""

from math import prod
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pencils.comm import pack
from pencils.io import direct
from pencils.io.direct import checksum, checksum_box, is_direct, longest_runs, read_points
from pencils.io.open_file import own_ranges
from pencils.layout import Selection, build_layout


class File:
    """Bytes in memory that count how often and how much is read."""

    def __init__(self, data):
        self.data, self.calls, self.nbytes = data, 0, 0

    def read(self, offset, target):
        assert target.flags.c_contiguous
        assert target.dtype == np.uint8
        target[...] = self.data[offset : offset + target.size]
        self.calls += 1
        self.nbytes += target.size


@st.composite
def boxes(draw):
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple))
    pairs = [sorted((draw(st.integers(0, n)), draw(st.integers(0, n)))) for n in shape]
    return shape, [slice(*pair) for pair in pairs]


@pytest.mark.parametrize("kernels", pack.available())
@given(
    case=boxes(),
    dtype=st.sampled_from(["i1", "f4", "f8", "c16", ">f8", "S3", "f8,i1,?"]),
    gap=st.integers(0, 2),
    limits=st.tuples(st.sampled_from([0, 100, 2**16]), st.sampled_from([1, 60, 2**19])),
)
def test_every_block_is_read_and_summed_up(kernels, case, dtype, gap, limits):
    (shape, key), (run, piece) = case, limits
    kind = np.dtype(dtype)
    data = np.random.default_rng(0).integers(0, 256, 7 + prod(shape) * kind.itemsize, np.uint8)
    whole = np.frombuffer(data[7:].tobytes(), kind).reshape(shape)
    wanted, start = whole[tuple(key)], tuple(part.start for part in key)
    memory = np.zeros([n + 2 * gap for n in reversed(wanted.shape)], kind).T  # in another order
    target = memory[tuple(slice(gap, gap + n) for n in wanted.shape)]
    for block in (target, np.zeros(wanted.shape, kind)):
        with pack.using(kernels), pytest.MonkeyPatch.context() as patch:
            patch.setattr(direct, "DIRECT_BYTES", run)
            patch.setattr(direct, "_PIECE_BYTES", piece)
            progress = []
            options = {"summed": True, "progress": progress.append}
            total = read_points(File(data), 7, shape, start, block, **options)
        assert block.tobytes() == wanted.tobytes()
        assert sum(progress) == wanted.nbytes
        assert total == (checksum_box(wanted, start, shape) if wanted.size else 0)
    if wanted.size == whole.size:
        assert total == checksum(whole)


def test_what_need_not_be_summed_up_is_not():
    data, target = np.ones(48, np.uint8), np.zeros((2, 3))
    assert read_points(File(data), 0, (2, 3), (0, 0), target, summed=False) == 0
    assert target.tobytes() == data.tobytes()


@pytest.mark.parametrize(
    ("start", "extents", "calls", "factor"),
    [
        ((0, 0, 0), (128, 256, 256), 128, 1),  # of 512 KiB
        ((0, 128, 0), (256, 128, 256), 256, 1),  # in place
        ((0, 0, 128), (256, 256, 128), 256, 2),  # every second KiB, by the half MiB
        ((0, 128, 128), (256, 128, 128), 256, 2),
    ],
)
def test_how_often_and_how_much_is_read(monkeypatch, start, extents, calls, factor):
    file = SimpleNamespace(read=lambda _, target: read.append(target.size))
    read = []
    monkeypatch.setattr(direct, "copy", lambda *_: None)
    target = np.empty(extents)
    read_points(file, 0, (256,) * 3, start, target, summed=False)
    assert len(read) == calls
    assert sum(read) <= factor * target.nbytes


@pytest.mark.parametrize(
    ("shape", "ranks", "decomp", "answer"),
    [
        ((256, 256, 256), 2, (0,), True),
        ((256, 256, 256), 64, (0, 1), True),
        ((256, 256, 256), 4, (2,), True),
        ((256, 256, 256), 8, (2,), False),  # each rank would read seven bytes for one
        ((256, 256, 256), 16, (1, 2), True),
        ((256, 256, 256), 64, (1, 2), False),
        ((2**12, 2**12, 2**17), 16, (2,), True),  # runs of 64 KiB
    ],
)
def test_when_ranks_exchange_what_they_read(shape, ranks, decomp, answer):
    layout = build_layout(shape, ranks, decomp=decomp)
    assert is_direct(layout, (), 8) == answer
    assert is_direct(layout, (3,), 8) == answer


@st.composite
def selections(draw):
    shape = draw(st.lists(st.integers(0, 5), min_size=0, max_size=4).map(tuple))
    key = tuple(draw(st.slices(extent)) for extent in shape)
    return shape, [range(extent)[part] for extent, part in zip(shape, key, strict=True)]


@given(selections())
def test_runs_cover_the_box_in_order(case):
    shape, ranges = case
    numbers = np.arange(prod(shape)).reshape(shape)
    box = numbers[np.ix_(*map(list, ranges))] if shape else numbers
    found = np.full((*box.shape, 1), -1)
    runs = list(longest_runs(ranges, shape))
    for first, index in runs:
        length = found[index].size
        found[index] = np.arange(first, first + length).reshape(found[index].shape)
    assert np.array_equal(found[..., 0], box)


@pytest.mark.parametrize(
    ("key", "count"),
    [(np.s_[...], 1), (np.s_[2], 1), (np.s_[1:3], 1), (np.s_[:, 1:], 4), (np.s_[..., ::2], 60)],
)
def test_runs_are_as_long_as_can_be(key, count):
    selection = Selection.from_key(key, (4, 5, 6))
    whole = [slice(0, extent) for extent in selection.shape]
    assert len(list(longest_runs(own_ranges(selection, whole), (4, 5, 6)))) == count


@given(st.data())
def test_a_part_of_a_selection(data):
    shape = (4, 5, 6)
    key = tuple(data.draw(st.one_of(st.integers(0, n - 1), st.slices(n))) for n in shape)
    numbers = np.arange(120).reshape(shape)
    selection = Selection.from_key(key, shape)
    part = [slice(*sorted((data.draw(st.integers(0, n)), n))) for n in selection.shape]
    ranges = own_ranges(selection, part)
    found = numbers[np.ix_(*map(list, ranges))]
    wanted = np.asarray(numbers[key])[tuple(part)]
    assert np.array_equal(found.reshape(wanted.shape), wanted)
