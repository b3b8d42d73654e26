"""What a field is: shapes, views, copies, text, and what it refuses to be."""

import copy
import pickle

import numpy as np
import pytest
from fields import assert_holds, both, draw, in_memory_order, lay, spread

import pencils
from pencils import PencilArray
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def test_shapes_are_global(pencil):
    u, a = both(pencil, draw((2, 3, *pencil.shape), "f4"), halo=1)
    assert (u.shape, u.ndim, u.size, u.dtype) == (a.shape, a.ndim, a.size, a.dtype)
    assert len(u) == len(a)
    assert u.components == (2, 3)
    assert u.local_shape == u.local.shape == (2, 3, *pencil.local_shape)
    assert u.padded.shape == (2, 3, *(n + 2 for n in pencil.local_shape))
    assert u.halo == ((1, 1),) * pencil.ndim
    assert np.array_equal(a[u.local_slices], u.local)
    assert u.pencil is pencil


def test_singletons_have_extent_1_everywhere(comm):
    pencil = lay(comm, "pencils")
    u = pencils.zeros(pencil, dims=(0, -1), components=3)
    nx, _, nz = pencil.shape
    assert u.singletons == {1}
    assert u.shape == (3, nx, 1, nz)
    assert u.size == 3 * nx * nz
    assert u.local_shape == (3, pencil.local_shape[0], 1, nz)
    assert comm.allreduce(u.extent.box.volume) == nx * nz * pencil.process_shape[1]


def test_adoption_does_not_copy(pencil):
    block = draw(pencil.local_shape)
    u = PencilArray(pencil, block)
    assert np.shares_memory(u.local, block) or block.size == 0
    assert u.local is block
    padded = np.zeros((2, *(n + 3 for n in pencil.local_shape)), "i4")
    v = PencilArray(pencil, padded, halo=[(1, 2)] * pencil.ndim)
    v.local[...] = 1
    assert padded.sum() == v.local.size
    strided = np.zeros(pencil.local_shape[::-1]).T
    assert PencilArray(pencil, strided).padded is strided
    listed = block.tolist() if block.size else block  # lists without numbers have no shape
    assert np.array_equal(PencilArray(pencil, listed).local, block)


def test_adoption_checks_the_shape(pencil):
    wrong = np.zeros(tuple(n + 1 for n in pencil.local_shape))
    with pytest.raises(ArgumentError, match=r"do not fit rank \d+.*use partition\(\)"):
        PencilArray(pencil, wrong)
    with pytest.raises(ArgumentError, match="block with halo has shape"):
        PencilArray(pencil, np.zeros(pencil.local_shape), halo=1)
    with pytest.raises(ArgumentError, match="do not fit rank"):
        PencilArray(pencil, 1.0)
    with pytest.raises(TypeError, match="pencil must be a Pencil"):
        PencilArray(wrong, wrong)
    with pytest.raises(TypeError, match="Python objects"):
        PencilArray(pencil, np.zeros(pencil.local_shape, object))


def test_local_and_padded_can_be_assigned(pencil):
    u = pencils.zeros(pencil, halo=1)
    u.local += 1
    u.local = u.local * 2
    assert_holds(u, np.full(pencil.shape, 2.0))
    assert u.padded.sum() == 2 * u.local.size
    u.padded -= 1
    u.padded = 5
    assert (u.padded == 5).all()
    u.local = draw(pencil.shape)[u.local_slices]
    assert_holds(u, draw(pencil.shape))
    with pytest.raises(AttributeError):
        u.halo = 2


def test_components_are_views(pencil):
    u, a = both(pencil, draw((2, 3, *pencil.shape)), halo=1)
    assert_holds(u.component(1), a[1])
    assert_holds(u.component(1, -1), a[1, -1])
    assert u.component(0).halo == u.halo
    u.component(1, 0).local[...] = 7
    assert (u.local[1, 0] == 7).all()
    with pytest.raises(IndexError, match=r"component axes, \(2, 3\)"):
        u.component(0, 0, 0)
    with pytest.raises(IndexError):
        u.component(2)


def test_copies(pencil):
    a = draw(pencil.shape)
    u = pencils.ones(pencil, halo=1)
    u.local = a[u.local_slices]
    for twin in (u.copy(), copy.copy(u), copy.deepcopy(u), np.copy(u), u.astype(float)):
        assert_holds(twin, a)
        assert twin.halo == u.halo
        assert twin.pencil is u.pencil
        assert np.array_equal(twin.padded, u.padded)
        assert not np.shares_memory(twin.padded, u.padded)
    assert_holds(u.astype("c8"), a.astype("c8"))
    assert_holds(u.astype(int), a.astype(int))
    with pytest.raises(TypeError, match="Python objects"):
        u.astype(object)


def test_parts_of_complex_fields(pencil):
    u, a = both(pencil, draw(pencil.shape, "c16"), halo=1)
    assert_holds(u.real, a.real)
    assert_holds(u.imag, a.imag)
    assert_holds(u.conj(), a.conj())
    u.real.local[...] = 2
    u.imag[...] = 3
    assert_holds(u, np.full(pencil.shape, 2 + 3j))
    assert_holds(spread(pencil, a.real).imag, np.zeros(pencil.shape))


def test_fill(pencil):
    u = pencils.zeros(pencil, halo=1, components=2)
    u.fill(3)
    assert (u.padded == 3).all()
    with pytest.raises(ArgumentError, match="one value"):
        u.fill([1, 2])


def test_results_keep_the_memory_order(pencil):
    u = pencils.zeros(pencil, components=2)
    assert in_memory_order(u)
    assert in_memory_order(u + 1)
    assert in_memory_order(1 + pencils.zeros(pencil, halo=2))
    strided = PencilArray(pencil, np.zeros(pencil.local_shape[::-1]).T)
    assert in_memory_order(strided * 2)
    assert in_memory_order(u.copy())


def test_it_does_not_turn_into_an_array(pencil):
    u = pencils.zeros(pencil)
    for call in (np.asarray, np.array, lambda u: np.array([u, u]), lambda u: np.asarray(u, int)):
        with pytest.raises(TypeError, match=r"u\.local.*gather"):
            call(u)


def test_it_is_no_truth_value_no_sequence_no_key(pencil):
    u = pencils.ones(pencil)
    with pytest.raises(ValueError, match=r"u\.any\(\), u\.all\(\), or u\.item\(\)"):
        bool(u)
    with pytest.raises(TypeError, match="not iterable"):
        list(u)
    with pytest.raises(TypeError, match=r"\(u == value\)\.any\(\)"):
        0 in u  # noqa: B015
    with pytest.raises(TypeError, match="unhashable"):
        hash(u)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(u)
    for number in (float, int, complex):
        with pytest.raises(TypeError, match=r"u\.item\((0(, 0)*)?\) returns"):
            number(u)


def test_repr_is_short_and_local(pencil):
    u = spread(pencil, draw((2, *pencil.shape), "f4"), halo=1)
    text = repr(u)
    assert len(text.splitlines()) == 4
    for part in (str(u.shape), "float32", "components (2,)", "halo", repr(pencil)):
        assert part in text
    assert f"rank {pencil.rank} of {pencil.size}" in text
    assert ("..." in text) == (u.local.size > 4)
    plain = repr(pencils.zeros(pencil, dims=0))
    assert "components" not in plain
    assert ("singleton dimensions" in plain) == (pencil.ndim > 1)


def test_others_can_take_over_operators(pencil):
    class Other:
        __array_ufunc__ = None

        def __radd__(self, field):
            return "added"

        def __eq__(self, field):
            return "compared"

        def __rpow__(self, field):
            return "raised"

        __hash__ = None

    u = pencils.ones(pencil)
    assert (u + Other(), u == Other(), u ** Other()) == ("added", "compared", "raised")


def test_components_are_unstacked_as_views(comm):
    """A vector field falls into fields that share its memory and halo; a scalar field does not."""
    pen = pencils.Pencil((5, 4), comm)
    u = pencils.zeros(pen, components=(3, 2), halo=1)
    for i, part in enumerate(u.unstack()):
        part[...] = i
        assert part.components == (2,)
        assert part.halo == u.halo
    assert [part.max() for part in u.unstack()] == [0, 1, 2]
    with pytest.raises(IndexError, match="component"):
        pencils.zeros(pen).unstack()
