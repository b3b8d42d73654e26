"""Simulated datatypes describe and copy the same bytes as those of the MPI library."""

import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given
from mpi4py import MPI

from simmpi.exceptions import MPIError
from simmpi.types import datatypes
from simmpi.types.buffers import as_buffer
from simmpi.types.datatypes import Datatype
from simmpi.types.derived import live
from simmpi.types.memory import buffer

MIDDLE = 1 << 16  # bytes before and after the address at which tests use datatypes

MPICH = "MPICH" in MPI.Get_library_version()
NAMES = sorted(name for name in dir(MPI) if isinstance(getattr(MPI, name), MPI.Datatype))

basic = st.sampled_from(["BYTE", "C_BOOL", "SHORT", "INT", "DOUBLE", "DOUBLE_INT", "SHORT_INT"])
count = st.integers(1, 3)
stride = st.integers(-9, 9)


def columns(*row, most=4):
    """Draw lists of equal length, of which the first has a positive element."""
    rows = st.lists(st.tuples(*row), min_size=1, max_size=most)
    return rows.map(lambda rows: [list(column) for column in zip(*rows, strict=True)]).filter(
        lambda found: any(found[0])
    )


lengths = st.integers(0, 3)

axis = st.integers(1, 4).flatmap(
    lambda n: st.integers(1, n).flatmap(
        lambda sub: st.tuples(st.just(n), st.just(sub), st.integers(0, n - sub))
    )
)
displacements = st.lists(stride, min_size=1, max_size=4)
order = st.sampled_from(["ORDER_C", "ORDER_F"])


boxes = st.lists(axis, min_size=1, max_size=3)
structs = st.tuples(st.tuples(count, lengths), st.tuples(stride, stride))


def derived(inner):
    # Descriptions of datatypes: name of the constructor, base types, arguments.
    two = st.tuples(count, count, stride), columns(lengths, stride), st.tuples(count, displacements)
    arguments = {
        "Dup": st.just(()),
        "Create_contiguous": st.tuples(count),
        "Create_resized": st.tuples(stride, st.integers(0, 40)),
        "Create_subarray": st.tuples(boxes, order),
    }
    for name, each in zip(("vector", "indexed", "indexed_block"), two, strict=True):
        arguments |= {f"Create_{name}": each, f"Create_h{name}": each}
    made = [st.tuples(st.just(name), st.tuples(inner), each) for name, each in arguments.items()]
    return st.one_of(*made, st.tuples(st.just("Create_struct"), st.tuples(inner, inner), structs))


recipes = st.recursive(basic, derived, max_leaves=4)


def build(module, recipe):
    """Create a datatype from its description."""
    if isinstance(recipe, str):
        return getattr(module, recipe)
    name, inner, arguments = recipe
    kinds = [build(module, part) for part in inner]
    if name == "Create_struct":
        return padded(module.Datatype.Create_struct(*arguments, kinds))
    if name == "Create_subarray":
        box, order = arguments
        arguments = *zip(*box, strict=True), getattr(MPI, order)
    kind = getattr(kinds[0], name)(*arguments)
    return kind if MPICH or name in {"Dup", "Create_resized"} else padded(kind)


def padded(kind):
    """Set bounds: MPI libraries round them up differently if elements are not aligned."""
    return kind.Create_resized(-3, 70)


def numbered():
    return np.resize(np.arange(251, dtype=np.uint8), 2 * MIDDLE)


def address(array, offset=MIDDLE):
    return array.__array_interface__["data"][0] + offset


def bounds(kind):
    return kind.Get_size(), kind.Get_extent(), kind.Get_true_extent()


def overlaps(kind, number):
    """Whether elements share bytes, as no buffer that receives may."""
    starts, lengths = kind.typemap.repeated(number, kind.extent).runs
    order = np.argsort(starts)
    return bool((starts[order][:-1] + lengths[order][:-1] > starts[order][1:]).any())


def exchange(send, receive):
    MPI.COMM_SELF.Sendrecv(send, 0, 0, receive, 0, 0)


def reach(kind, number):
    """Farthest byte, before or after the address, of a number of elements, at most."""
    start, length = kind.Get_true_extent()
    return abs(start) + length + number * abs(kind.Get_extent()[1])


@pytest.mark.skipif(not MPICH, reason="Open MPI sends bytes at stride -1 in the wrong order")
@given(recipes, st.integers(0, 3))
def test_derived_types_are_those_of_mpi(recipe, number):
    real, simulated = build(MPI, recipe), build(datatypes, recipe)
    assume(reach(simulated, number) < MIDDLE)
    assert bounds(simulated) == bounds(real)
    real.Commit(), simulated.Commit()
    memory, nbytes = numbered(), number * real.Get_size()
    packed = np.zeros(nbytes, np.uint8)
    exchange([MPI.buffer.fromaddress(address(memory), 1), number, real], [packed, MPI.BYTE])
    ours = as_buffer([buffer.fromaddress(address(memory), 1), number, simulated])
    np.testing.assert_array_equal(ours.pack(), packed)
    assert ours.nbytes == sum(ours.datatype.runs[1]) * number
    if overlaps(simulated, number):
        return
    data = packed[::-1].copy()
    expected, found = numbered(), numbered()
    exchange([data, MPI.BYTE], [MPI.buffer.fromaddress(address(expected), 1), number, real])
    as_buffer([buffer.fromaddress(address(found), 1), number, simulated]).unpack(data)
    np.testing.assert_array_equal(found, expected)


def test_elements_without_data_have_no_bytes():
    for kind in (
        datatypes.INT.Create_contiguous(0),
        datatypes.INT.Create_vector(0, 1, 2),
        datatypes.INT.Create_vector(3, 0, 2),
        datatypes.INT.Create_indexed([], []),
        datatypes.INT.Create_indexed([0, 0], [1, 2]),
        Datatype.Create_struct([0], [3], [datatypes.INT]),
        Datatype.Create_struct([], [], []),
    ):
        assert (kind.size, kind.true_extent, kind.signature) == (0, 0, ())
        ours = as_buffer([bytearray(8), 1, kind.Commit()], writes=True)
        assert ours.pack().size == 0
        ours.unpack(np.zeros(0, np.uint8))


@pytest.mark.parametrize("name", NAMES)
def test_predefined_types_are_those_of_mpi(name):
    real, simulated = getattr(MPI, name), getattr(datatypes, name)
    if simulated == datatypes.DATATYPE_NULL or not real or not real.Get_size():
        assert not MPICH or (real == MPI.DATATYPE_NULL and not simulated)
        return
    assert simulated.is_predefined
    assert simulated.is_named
    assert pickle.loads(pickle.dumps(simulated)) == simulated
    assert described(simulated) == described(real)
    if MPICH:
        assert simulated.name == real.name


def described(kind):
    # Bounds, and the names of a type and of those made of it.

    def code(kind):
        try:
            return kind.tocode()
        except ValueError:
            return None

    derived = kind.Create_contiguous(3)
    found = [bounds(kind), kind.lb, kind.ub, kind.true_lb, kind.true_ub, kind.typechar]
    found += [kind.typestr, code(kind), code(kind.Dup()), kind.Dup().typestr]
    found += [derived.typestr, derived.typechar]
    derived.Free()
    return found


def test_codes_of_numpy_name_the_same_types():
    for code in MPI._typedict:
        real, simulated = MPI.Datatype.fromcode(code), Datatype.fromcode(code)
        name = next(name for name in NAMES if getattr(MPI, name) == real)
        assert simulated.name == getattr(datatypes, name).name, code
    with pytest.raises(ValueError, match="'zz'"):
        Datatype.fromcode("zz")


NATURAL = [
    ([1, 1], [0, 8], ["DOUBLE", "INT"]),
    ([1, 1], [0, 4], ["SHORT", "BYTE"]),
    ([1, 1], [0, 9], ["INT", "BYTE"]),
    ([1, 1], [-3, 0], ["INT", "BYTE"]),
    ([1, 1], [2, 6], ["INT", "BYTE"]),
    ([2, 0, 3], [0, 1, 16], ["INT", "DOUBLE", "C_BOOL"]),
    ([1, 1], [0, 24], ["DOUBLE_INT", "BYTE"]),
    ([1, 1], [0, 32], ["LONG_DOUBLE", "BYTE"]),
]


@pytest.mark.parametrize(("counts", "places", "names"), NATURAL)
def test_extents_of_structs_are_rounded_up_to_the_alignment(counts, places, names):
    found = []
    for module in (MPI, datatypes):
        kind = module.Datatype.Create_struct(counts, places, [getattr(module, n) for n in names])
        outer = [kind.Create_contiguous(3), kind.Create_vector(2, 1, 3)]
        outer.append(module.Datatype.Create_struct([1, 1], [0, 160], [kind, module.BYTE]))
        found.append([bounds(part) for part in (kind, *outer)])
    assert found[0] == found[1]


def test_many_elements_are_few_pieces():
    # NumPy copies a piece in one call.
    for recipe in (
        ("Create_hvector", ["BYTE"], (1 << 20, 1, 3)),
        ("Create_indexed_block", ["DOUBLE"], (1, range(0, 3 << 20, 3))),
        ("Create_indexed_block", ["DOUBLE"], (1, [*range(0, 3 << 18, 3), 1])),
        ("Create_indexed", ["INT"], ([1, 2] * (1 << 18), range(0, 4 << 19, 4))),
    ):
        assert len(build(datatypes, recipe).typemap.pieces) <= 2
    many = 5 << 31
    whole = datatypes.DOUBLE.Create_contiguous(many)
    assert (whole.size, whole.extent, whole.signature) == (8 * many, 8 * many, (("f8", many),))
    sparse = datatypes.BYTE.Create_hvector(2, 1, many)
    assert sparse.Get_extent() == (0, many + 1)
    assert sparse.Create_indexed([1], [3]).lb == 3 * (many + 1)


def test_packing_boxes_and_signatures():
    kind, data = datatypes.INT.Create_contiguous(3).Commit(), np.arange(3, dtype=np.int32)
    for position in (-1, 1, 30):
        text = f"12 bytes at position {position} do not fit into 12"
        with pytest.raises(MPIError, match=text):
            kind.Pack(data, np.zeros(12, np.uint8), position)
        with pytest.raises(MPIError, match=text):
            kind.Unpack(np.zeros(12, np.uint8), position, data)
    with pytest.raises(MPIError, match="3 elements from 2 on were given along an axis of 4"):
        datatypes.INT.Create_subarray([4], [3], [2])
    empty = datatypes.INT.Create_subarray([4, 3], [0, 3], [4, 0])
    assert bounds(empty) == (0, (0, 48), (0, 0))
    # Pack and unpack follow the position.
    data = np.arange(12, dtype=np.int32)
    found = []
    for module, comm in ((MPI, MPI.COMM_SELF), (datatypes, None)):
        kind = module.INT.Create_vector(2, 1, 2).Create_resized(0, 16).Commit()
        packed, back = np.zeros(40, np.uint8), np.zeros(12, np.int32)
        end = kind.Pack(data, packed, 5, comm)
        assert kind.Unpack(packed, 5, back, comm) == end
        found.append((end, packed.tobytes(), back.tobytes(), kind.Pack_size(3, comm)))
        kind.Free()
    assert found[0] == found[1]
    # Signatures list basic types in order.
    pair = Datatype.Create_struct([1, 2], [8, 0], [datatypes.DOUBLE, datatypes.INT])
    assert pair.signature == (("f8", 1), ("i4", 2))
    assert pair.Create_contiguous(2).signature == (("f8", 1), ("i4", 2)) * 2
    assert datatypes.INT.Create_vector(3, 2, 5).Dup().signature == (("i4", 6),)
    assert datatypes.INT.signature == datatypes.INT32_T.signature
    assert datatypes.BYTE.signature != datatypes.UINT8_T.signature
    both = Datatype.Create_struct([1, 1], [0, 8], [datatypes.DOUBLE, datatypes.REAL8])
    assert both.signature == (("f8", 2),)
    row = both.Create_resized(0, 64).Create_vector(1000, 1000, 1001)
    assert row.signature == (("f8", 2_000_000),)


@given(recipes)
def test_decoded_types_can_be_created_again(recipe):
    kind = build(datatypes, recipe)
    copy = pickle.loads(pickle.dumps(kind))
    assert bounds(copy) == bounds(kind)
    for one, other in zip(copy.runs, kind.runs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert copy.signature == kind.signature
    assert kind.decode()[1] == build(MPI, recipe).decode()[1]


WRONG = {
    "negative count": lambda m: m.INT.Create_contiguous(-1),
    "negative block": lambda m: m.INT.Create_vector(1, -1, 1),
    "negative block of an index": lambda m: m.INT.Create_indexed([-1], [0]),
    "null": lambda m: m.Datatype().Create_contiguous(1),
    "size of null": lambda m: m.DATATYPE_NULL.Get_size(),
    "commit null": lambda m: m.DATATYPE_NULL.Commit(),
    "free predefined": lambda m: m.INT.Free(),
    "free null": lambda m: m.Datatype().Free(),
    "null in a struct": lambda m: m.Datatype.Create_struct([1], [0], [m.Datatype()]),
    "unknown order": lambda m: m.INT.Create_subarray([4], [1], [2], 7),
    "lists of different length": lambda m: m.INT.Create_indexed([1, 1], [0]),
    "types of different length": lambda m: m.Datatype.Create_struct([1], [0], []),
    "no datatype": lambda m: m.Datatype.Create_struct([1], [0], ["i"]),
    "no number": lambda m: m.INT.Create_contiguous("a"),
    "code of a derived type": lambda m: m.INT.Create_contiguous(2).tocode(),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_wrong_arguments_raise_as_in_mpi4py(call):
    with pytest.raises(Exception) as real:  # noqa: PT011
        call(MPI)
    with pytest.raises(Exception) as simulated:  # noqa: PT011
        call(datatypes)
    expected = MPIError if isinstance(real.value, MPI.Exception) else type(real.value)
    assert type(simulated.value) is expected


def test_handles_compare_as_the_datatypes_they_name():
    kind = datatypes.INT.Create_contiguous(2)
    assert kind == Datatype(kind)
    assert hash(kind) == hash(Datatype(kind))
    assert kind != datatypes.INT.Create_contiguous(2)
    assert kind != 3
    kind.name = "pair"
    assert "pair" in repr(kind)
    kind.Free()
    assert kind == datatypes.DATATYPE_NULL
    assert not kind
    assert datatypes.INT
    assert not datatypes.DATATYPE_NULL
    # Datatypes that are not freed are counted.
    before = dict(live())
    kinds = [datatypes.INT.Create_contiguous(2), datatypes.INT.Dup()]
    kinds.append(Datatype.Create_struct([1, 1], [0, 8], kinds))
    created = sorted(live().keys() - before)
    assert [live()[number] for number in created] == ["contiguous", "dup", "struct"]
    ours = as_buffer([np.arange(4), 1, kinds[2].Commit()])
    for kind in kinds:
        kind.Free()
    assert live() == before
    assert ours.pack().size == 12
