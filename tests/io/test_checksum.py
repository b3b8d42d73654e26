"""Checksums: the same however the array is cut, another one for another array."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pencils.comm import pack
from pencils.io import direct as module
from pencils.io.direct import checksum, checksum_box

DTYPES = ["?", "i1", "u2", "f4", "f8", "c16", ">f8", "g", "S3", "S5", "f8,i1,?", "V12"]


def some(shape, dtype, seed=0):
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).view(kind).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES)
@given(cuts=st.lists(st.integers(0, 50_000), max_size=5))
def test_parts_add_up_to_the_whole(dtype, cuts):
    whole = some(50_000, dtype)
    bounds = [0, *sorted(cuts), whole.size]
    parts = [checksum(whole[a:b], a) for a, b in pairwise(bounds)]
    assert sum(parts) % 2**64 == checksum(whole)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_boxes_add_up_to_the_whole(dtype, data):
    shape = data.draw(st.lists(st.integers(0, 40), max_size=3))
    whole = some(shape, dtype)
    total = 0
    cuts = [data.draw(st.integers(0, n)) for n in shape]
    for corner in np.ndindex(*[2] * len(shape)):
        start = [cut * at for cut, at in zip(cuts, corner, strict=True)]
        ends = zip(start, cuts, shape, corner, strict=True)
        box = whole[*(slice(lo, n if at else cut) for lo, cut, n, at in ends), ...]
        total += checksum_box(box, start, shape)
    assert total % 2**64 == checksum(whole)


@pytest.mark.parametrize("shape", [(5, 70_000), (70_000, 5), (41, 42, 43), (1, 1, 10**5)])
def test_the_sum_of_a_large_box(shape):
    whole = some((2, *shape), "f4")
    parts = (
        checksum_box(part, (at, *[0] * len(shape)), (2, *shape))
        for at, part in ((0, whole[:1]), (1, whole[1:]))
    )
    assert sum(parts) % 2**64 == checksum(whole)


def test_shape_and_strides_do_not_count():
    whole = some((6, 5, 4), "f8")
    assert checksum(whole) == checksum(whole.ravel())
    assert checksum(whole[:, ::2].T) == checksum(whole[:, ::2].T.copy())
    assert checksum(np.asarray(2.5)) == checksum(np.array([2.5]))
    assert checksum(np.empty((0, 3))) == 0


def test_the_value_is_that_of_the_files_which_are_out_there():
    assert checksum(np.arange(100.0)) == VALUES["f8"]
    assert checksum(np.arange(100, dtype="u1")) == VALUES["u1"]


@pytest.mark.parametrize("dtype", DTYPES)
@given(cut=st.integers(0, 200), size=st.integers(0, 300), first=st.integers(0, 2**40))
def test_all_kernels_compute_the_same(dtype, cut, size, first):
    data = some(500, dtype)[cut : cut + size]
    box = some((3, 7, 11), dtype)[:, cut % 3 : 5, cut % 5 : 9]
    found = set()
    for name in pack.available():
        with pack.using(name):
            found.add((checksum(data, first), checksum_box(box, (0, 1, cut), (9, 7, 300))))
    assert len(found) == 1


@pytest.mark.skipif(pack.compiled() is None, reason="needs the compiled kernels")
def test_the_kernel_refuses_what_are_no_rows():
    kernels = pack.compiled()
    data = np.zeros(24, np.uint8)
    rows = [kernels.mixed_sum(data[at : at + 4], 4, 5 + at) for at in (0, 8, 16)]
    assert kernels.mixed_sum(data, 4, 5, 1, 3, 8, 8) == sum(rows) % 2**64
    assert kernels.mixed_sum(data, 4, 5, 2, 3, 2, 8) == kernels.mixed_sum(data, 4, 5, 6, 1)
    for width in (-1, 0, 3, 16):
        with pytest.raises(ValueError, match="words have"):
            kernels.mixed_sum(data, width, 0)
    most = 2**63 - 1
    outside = [(-2,), (7,), (most,), (1, 0), (1, -1), (1, most, 0, 1), (2, 3, 0, 9), (2, 2, 0, -4)]
    for wrong in [*outside, (0, 2, 0, most), (1, 2, 0, most), (-1, 2)]:
        with pytest.raises(ValueError, match="exceed"):
            kernels.mixed_sum(data, 4, 0, *wrong)


VALUES = {"f8": 7824377398971332616, "u1": 15777708709639560148}


def flip_bits(data, rng):
    for at in rng.integers(0, data.size, int(rng.integers(1, 5))):
        data[at] ^= 1 << int(rng.integers(8))


def flip_signs(data, rng):
    words = data.view("u8")
    words[rng.choice(words.size, 2 * int(rng.integers(1, 4)), replace=False)] ^= 1 << 63


def swap_words(data, rng):
    words = data.view("u8")
    i, j = rng.choice(words.size, 2, replace=False)
    words[[i, j]] = words[[j, i]]


def swap_planes(data, rng):
    planes = data.reshape(16, -1)
    i, j = rng.choice(16, 2, replace=False)
    planes[[i, j]] = planes[[j, i]]


def zero_a_run(data, rng):
    at = int(rng.integers(data.size - 512))
    data[at : at + 512] = 0


def shift(data, rng):
    data[...] = np.roll(data, 8 * int(rng.integers(1, data.size // 8)))


def repeat_a_page(data, rng):
    i, j = rng.choice(data.size // 512, 2, replace=False)
    data[512 * i : 512 * i + 512] = data[512 * j : 512 * j + 512]


DAMAGES = [flip_bits, flip_signs, swap_words, swap_planes, zero_a_run, shift, repeat_a_page]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["noise", "smooth", "integers"])
def test_no_damage_goes_unnoticed(damage, kind):
    rng = np.random.default_rng(5)
    whole = {
        "noise": rng.normal(size=4096),
        "smooth": np.sin(np.linspace(0, 7, 4096)),
        "integers": np.arange(1.0, 4097),
    }[kind]
    right = checksum(whole)
    for _ in range(300):
        damaged = whole.copy()
        damage(damaged.view(np.uint8), rng)
        if damaged.tobytes() != whole.tobytes():
            assert checksum(damaged) != right


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [0, 1, 7, 16383, 16385])
def test_compiled_sums_are_those_of_numpy(monkeypatch, dtype, size):
    data, first = some(size, dtype), 2**40 + 3
    found = checksum(data, first)
    monkeypatch.setattr(module, "compiled", lambda: None)
    assert checksum(data, first) == found
