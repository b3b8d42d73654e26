"""Values that stand beside fields come back as they were."""

import numpy as np
import pytest

from pencils.io.file_info import Stored, decode, encode

VALUES = [
    *(True, False, 0, -3, 2**63 - 1, 2**64 - 1, 0.1, float("inf"), 1 - 2j),
    *("", "Taylor–Green", "two\nlines"),
    *(np.float32(0.1), np.int8(-1), np.True_, np.bytes_(b"b"), np.complex64(1j)),
    *(np.arange(3), np.zeros((2, 0)), np.array(2.5), np.ones((2, 3), ">f8"), np.array([b"ab"])),
    np.array([(1.0, 2)], dtype="f8,i2"),
]
BITS = [np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_keep_type_and_bits(value):
    found = decode(encode(value))
    if np.ndim(value) == 0 and isinstance(value, np.ndarray):
        value = value[()]  # as NumPy itself has it
    assert type(found) is type(value)
    assert np.asarray(found).dtype == np.asarray(value).dtype
    assert np.array_equal(found, value)


def test_nan_and_signed_zero():
    assert np.isnan(decode(encode(float("nan"))))
    assert np.signbit(decode(encode(-0.0)))


@pytest.mark.parametrize("make", BITS)
def test_random_generators_go_on_as_they_would_have(make):
    rng = np.random.Generator(make(np.random.SeedSequence([1, 2**100], spawn_key=(3,))))
    rng.random(3, dtype="f4")  # which leaves half a word for later
    rng.spawn(2)
    twin = decode(encode(rng))
    assert np.array_equal(twin.normal(size=100), rng.normal(size=100))
    assert twin.random(dtype="f4") == rng.random(dtype="f4")
    assert twin.spawn(1)[0].random() == rng.spawn(1)[0].random()
    bits = decode(encode(rng.bit_generator))
    assert type(bits) is make
    assert bits.random_raw() == rng.bit_generator.random_raw()


def test_a_generator_without_a_seed_sequence():
    bits = np.random.RandomState(7)._bit_generator
    assert decode(encode(bits)).random_raw() == bits.random_raw()


@pytest.mark.parametrize(
    "value",
    [None, [1], (1,), {"a": 1}, b"b", 2**64, object(), np.array([None]), "a\0b", "\ud800", int],
)
def test_what_cannot_be_stored(value):
    with pytest.raises(TypeError):
        encode(value)


def test_generators_of_other_packages():
    class Own(np.random.PCG64):
        pass

    with pytest.raises(TypeError, match="cannot be stored; use one of"):
        encode(Own())
    state = encode(np.random.PCG64()).data.item().replace(b"PCG64", b"seed!")
    with pytest.raises(ValueError, match="no bit generator 'seed!'"):
        decode(Stored("BitGenerator", np.asarray(state)))


def test_kinds_of_later_versions_stay_arrays():
    assert np.array_equal(decode(Stored("tree", np.arange(3))), np.arange(3))


def test_equal_values_have_equal_texts_and_others_have_not():
    rng, other = np.random.default_rng(1), np.random.default_rng(2)
    values = [*VALUES, -0.0, 0.0, float("nan"), rng, other, np.arange(4)]
    texts = [repr(encode(value)) for value in values]
    assert texts == [repr(encode(value)) for value in values]
    stored = {(kind, t.dtype.str, t.shape, t.tobytes()) for kind, t in map(encode, values)}
    assert len({*texts}) == len(stored)
