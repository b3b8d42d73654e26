"""Copies between blocks of any strides: every implementation against numpy.copyto."""

import gc
import os
import subprocess
import sys
import weakref
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import combined

from pencils.comm import pack
from pencils.errors import ArgumentError

SIZES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 64, 100, 300]
DTYPES = ["?", "i1", "f2", "f4", "f8", "c16", "G", "M8[s]", "S5", "U3", "V7", "i4,f8", "(2,3)f4"]
ALWAYS, NEVER = 0, 2**62

implementations = pytest.mark.parametrize("name", pack.available())
modes = pytest.mark.parametrize(
    ("name", "stream_from"),
    [(name, ALWAYS) for name in pack.available()[:-1]]
    + [(name, NEVER) for name in pack.available()],
)


@pytest.fixture(autouse=True)
def _as_before():
    before = pack._kernels and pack._kernels.stream_from(NEVER)
    yield
    if pack._kernels:
        pack._kernels.stream_from(before)


@pytest.fixture(name="worth_lines", autouse=True)
def _worth_lines(monkeypatch):
    """Have NumPy's tricks tried on small blocks, too."""
    for limit in ("SMALL", "WORTH_LINES", "FAR"):
        monkeypatch.setattr(pack, limit, 0)
    monkeypatch.setattr(pack, "SCRATCH", 1 << 13)


def set_stream(stream_from):
    if pack._kernels:
        pack._kernels.stream_from(stream_from)


@cache
def pattern(count):
    return (np.arange(count) * 7 + np.arange(count) // 251).astype(np.uint8)


def some_bytes(count):
    return pattern(1 << count.bit_length())[:count].copy()


class Memory:
    """Bytes with an array somewhere inside, of any memory order, gaps and directions."""

    def __init__(self, shape, dtype, *, order, gaps, chunks, offset):
        dtype = np.dtype(dtype)
        extents = [(shape[axis] * gaps[axis], gaps[axis]) for axis in order]
        held = tuple(extent for extent, _ in extents)
        self.raw = some_bytes(offset + int(np.prod(held, dtype=int)) * dtype.itemsize + 64)
        array = np.ndarray(held, dtype, self.raw.data, offset).transpose(np.argsort(order))
        steps = (
            slice(None, None, -gap if chunk else gap)
            for gap, chunk in zip(gaps, chunks, strict=True)
        )
        self.array = array[(*steps, ...)]
        assert self.array.shape == shape


@st.composite
def blocks(draw):
    """Draw target and source of the same shape in memory of their own."""
    ndim = draw(st.integers(0, 5))
    most = [1, 700, 60, 20, 8, 5][ndim]
    shape = tuple(draw(st.lists(st.integers(1, most), min_size=ndim, max_size=ndim)))
    if draw(st.integers(0, 19)) == 0:
        shape = tuple(n * draw(st.integers(0, 1)) for n in shape)
    dtype = draw(st.sampled_from([f"V{size}" for size in SIZES]))

    def memory():
        return Memory(
            shape,
            dtype,
            order=draw(st.permutations(range(ndim))),
            gaps=draw(st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=ndim, max_size=ndim)),
            chunks=draw(st.lists(st.booleans(), min_size=ndim, max_size=ndim)),
            offset=draw(st.integers(0, 70)),
        )

    return memory(), memory()


def expected(target, source):
    """Say what the memory of the target holds now and has to hold after the copy."""
    before = target.raw.copy()
    np.copyto(target.array, source.array)
    after = target.raw.copy()
    target.raw[:] = before
    return before, after


@modes
@given(blocks())
def test_any_block_to_any_block_and_nothing_beside_it(name, stream_from, pair):
    target, source = pair
    before, after = expected(target, source)
    set_stream(stream_from)
    with pack.using(name):
        for whole in (0, 2**62):
            pack.copy(target.array, source.array, whole)
            assert np.array_equal(target.raw, after)
            target.raw[:] = before
        pack.prepare_copies([(target.array, source.array)])()
        assert np.array_equal(target.raw, after)


@implementations
def test_a_part_of_a_large_target_is_written_past_the_cache(name):
    """The number of bytes of the whole decides on the way, not on what is copied."""
    source = np.random.default_rng(0).random((7, 11, 40))
    set_stream(10**6)
    with pack.using(name):
        for whole in (0, 1, 10**6, 2**62):
            target = np.zeros((7, 11, 57))
            pack.copy(target[..., 3:43], source, whole)
            assert np.array_equal(target[..., 3:43], source)
            assert not target[..., :3].any()
            assert not target[..., 43:].any()


@modes
def test_large_blocks_in_another_memory_order(name, stream_from):
    orders = [(0, 2, 1), (2, 1, 0), (2, 0, 1), (1, 2, 0)]
    shapes = [(130, 77, 67), (64, 64, 128), (3, 160, 300), (300, 201, 3)]
    for shape, order, size in combined(shapes, orders, (1, 2, 4, 8, 16, 24)):
        check_order(name, stream_from, shape, order, size)


@pytest.mark.thorough
@modes
def test_large_and_odd_blocks_in_another_memory_order(name, stream_from):
    check_order(name, stream_from, (200, 130, 77), (2, 1, 0), 8)


def check_order(name, stream_from, shape, order, size):
    target = Memory(shape, f"V{size}", order=order, gaps=(1,) * 3, chunks=(0,) * 3, offset=16)
    source = Memory(shape, f"V{size}", order=range(3), gaps=(1,) * 3, chunks=(0,) * 3, offset=24)
    _, after = expected(target, source)
    set_stream(stream_from)
    with pack.using(name):
        pack.copy(target.array, source.array)
    assert np.array_equal(target.raw, after)


@modes
@pytest.mark.parametrize("points", [1, 3, 8, 31, 32, 33, 64, 129, 515, 5000])
def test_runs_of_every_length(name, stream_from, points):
    held = np.random.default_rng(points).random((5, 40, points + 7))
    target, want = (np.zeros((5, 41, points)) for _ in range(2))
    want[:, 1:] = held[..., 3:-4]
    set_stream(stream_from)
    with pack.using(name):
        pack.copy(target[:, 1:], held[..., 3:-4])
    assert np.array_equal(target, want)


@implementations
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type(name, dtype):
    count = 4 * 5 * 6
    data = some_bytes(count * np.dtype(dtype).itemsize)
    source = np.frombuffer(data & 1 if dtype == "?" else data, dtype=np.dtype([("", dtype)]))
    source = source[source.dtype.names[0]][:count]
    source = source.reshape(4, 5, 6, *source.shape[1:])
    target = np.zeros((6, 5, 4, *source.shape[3:]), source.dtype).swapaxes(0, 2)
    with pack.using(name):
        pack.copy(target, source)
    assert target.tobytes() == source.tobytes()


@implementations
def test_a_source_may_repeat_itself_and_have_many_axes(name):
    source = np.arange(6.0).reshape(2, 1, 3)
    target = np.zeros((2, 4, 3))
    many = np.zeros((1, 2) * 16)
    with pack.using(name):
        pack.copy(target, np.broadcast_to(source, target.shape))
        pack.copy(many, np.broadcast_to(3.0, many.shape))
    assert (target == source).all()
    assert (many == 3).all()


@implementations
def test_prepared_copies_see_new_data_and_keep_their_arrays(name):
    source = np.zeros((30, 40))
    targets = np.zeros((40, 30)), np.zeros((30, 20))
    with pack.using(name):
        run = pack.prepare_copies([(targets[0].T, source), (targets[1], source[:, ::2])])
        no_op = pack.prepare_copies([])
    no_op()
    for value in (1, 2):
        source[:] = np.arange(1200).reshape(30, 40) * value
        run()
        assert np.array_equal(targets[0].T, source)
        assert np.array_equal(targets[1], source[:, ::2])
    held = weakref.ref(source)
    del source
    assert held() is not None
    run()
    gone = weakref.ref(run)
    del run
    gc.collect()
    assert gone() is None
    assert held() is None


@implementations
@pytest.mark.parametrize("dtype", ["i2", "f4", "f8", "c16"])
def test_copies_of_columns_are_made_one_after_the_other(name, dtype):
    """Columns whose copies may be joined, and others that depend on the copy before."""
    rng = np.random.default_rng(3)
    with pack.using(name):
        for shape in [(1, 1, 6), (4, 5, 6), (3, 40, 7)]:
            expected = rng.integers(0, 999, shape).astype(dtype)
            array = expected.copy()
            for _ in range(30):
                chosen = rng.permuted(np.tile(range(shape[-1]), (4, 1)), axis=1)[:, :2]
                some = slice(rng.integers(2), shape[1] - rng.integers(2))
                pairs = [(array[:, some, to], array[:, some, of]) for to, of in chosen]
                pack.prepare_copies(pairs)()
                for to, of in chosen:
                    expected[:, some, to] = expected[:, some, of]
                assert np.array_equal(array, expected)


@implementations
def test_what_does_not_fit_raises(name):
    whole, fixed = np.zeros((3, 4)), np.zeros((3, 4))
    fixed.flags.writeable = False
    wrong = [(whole, np.zeros(shape)) for shape in ((4, 3), 12, (1, 4))]
    with pack.using(name):
        for pair in (*wrong, (whole, np.zeros((3, 4), "f4")), (fixed, whole)):
            with pytest.raises(ValueError, match=r"shape|read-only"):
                pack.copy(*pair)
            with pytest.raises(ValueError, match=r"shape|read-only"):
                pack.prepare_copies([(whole, whole.copy()), pair])
    assert not whole.any()


@pytest.mark.skipif(pack._kernels is None, reason="there are no compiled kernels")
def test_wrong_arguments_of_the_compiled_copy():
    pair = np.zeros(3), np.ones(3)
    for wrong in ((), pair[:1], (*pair, 1, 1), (*pair, "many"), (*pair, None)):
        with pytest.raises(TypeError):
            pack._kernels.copy(*wrong)
    with pytest.raises(OverflowError):
        pack._kernels.copy(*pair, 2**70)
    assert not pair[0].any()


@implementations
def test_one_implementation_is_in_use_at_a_time(name):
    before = pack.kernels()
    a, b = np.zeros(3), np.ones(3)
    with pack.using(name):
        assert pack.kernels() == name
        run = pack.prepare_copies([(a, b)])
        with pack.using("numpy"):
            assert pack.kernels() == "numpy"
            run()
        assert pack.kernels() == name
    assert pack.kernels() == before
    assert (a == 1).all()


def test_blocks_of_threads_end_in_any_order():
    before = pack.kernels()
    first, second = pack.using("numpy"), pack.using("numpy")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert pack.kernels() == "numpy"
    second.__exit__(None, None, None)
    assert pack.kernels() == before


def test_an_unknown_implementation_raises():
    message = r"'abacus' are not available.* numpy"
    with pytest.raises(ArgumentError, match=message), pack.using("abacus"):
        pass
    assert pack.available()[-1] == "numpy"


@pytest.mark.parametrize("name", [*pack.available(), "abacus"])
def test_the_environment_chooses(name):
    program = [sys.executable, "-c", "from pencils.comm import pack; print(pack.kernels())"]
    variables = os.environ | {pack.VARIABLE: name}
    done = subprocess.run(program, env=variables, capture_output=True, text=True, check=False)
    if name in pack.available():
        assert done.stdout.split() == [name]
    else:
        assert "ArgumentError: copies by 'abacus'" in done.stderr


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"size": "32768K\n", "shared_cpu_list": "0-3,8-11\n"}, 4 << 20),
        ({"size": "16384K\n", "shared_cpu_list": "5\n"}, 16 << 20),
        ({"size": "much\n", "shared_cpu_list": "0\n"}, 4 << 20),
        ({}, 4 << 20),
    ],
)
def test_the_share_of_the_cache(tmp_path, files, share):
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    assert pack._cache_share(tmp_path) == share


@implementations
@pytest.mark.parametrize(
    "shape", [(6,), (20000,), (40, 7), (900, 9), (3, 4, 5, 6), (1, 50, 1), (30, 3, 300)]
)
def test_parts_that_move_within_an_array(name, shape):
    """Nothing is overwritten before it is read."""
    rng = np.random.default_rng(len(shape))
    for _ in range(30):
        order = rng.permutation(len(shape))
        block = rng.random([shape[axis] for axis in order]).transpose(np.argsort(order))
        expected, keys = block.copy(), [[], []]
        for n in shape:
            step = int(rng.choice([1, 1, 2, -1]))
            count = max(1, n // abs(step) - int(rng.choice([0, 1, n // 2])))
            room = n - (count - 1) * abs(step)
            for key in keys:
                start = int(rng.integers(room)) + (count - 1) * max(0, -step)
                key.append(start + step * np.arange(count))
        target, source = (np.ix_(*key) for key in keys)
        expected[target] = expected[source]
        views = []
        for key in keys:
            ends = [
                (int(at[0]), int(at[-1]), 1 if len(at) < 2 else int(at[1] - at[0])) for at in key
            ]
            views.append(
                block[tuple(slice(a, b + s if b + s >= 0 else None, s) for a, b, s in ends)]
            )
        with pack.using(name):
            pairs = pack.in_order([tuple(views)])
            if pairs is None:
                assert name == "numpy"
                continue
            pack.prepare_copies(pairs)()
        assert np.array_equal(block, expected)
