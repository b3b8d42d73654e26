"""Every rule for one process: an export that breaks it, and a neighbour that just does not."""

import ctypes
from functools import partial

import numpy as np
import pytest
from dap_cases import BASE, block, cyclic, errors, old, without
from dap_cases import undistributed as alone
from dap_cases import unstructured as free
from dap_cases import wrap as new

from pencils.dap import (
    DAPError,
    DAPWarning,
    SemanticError,
    StructureError,
    VersionError,
    iter_issues,
    validate,
)

HALF = new(block())
DATE = np.zeros(5, "M8[s]")


class Sized(int):
    """An integer of another type, as NumPy's are."""


def version(text):
    return HALF | {"__version__": text}


def dim_data(value, shape=(5,)):
    return new(shape=shape) | {"dim_data": value}


def listed(indices):
    """Export one point of a list that is this object."""
    return new(free([1]) | {"indices": indices}, shape=1)


def beyond(start):
    """Export nothing: the only block of 12 points is on the other process."""
    return new(cyclic(1, start=start, block_size=12), shape=0)


SIX, OLD_SIX, ONE = (partial(make, shape=n) for make, n in ((new, 6), (old, 6), (new, 1)))
AROUND = alone(padding=(2, 2), periodic=True)

# code, illegal export, legal export, words of the error
ONE_PROCESS = [
    ("E1", without(HALF, "buffer"), HALF, r"\['buffer'\] are missing"),
    ("E1", HALF | {"extra": 1}, HALF, r"\['extra'\] are not among"),
    ("E1", [HALF], HALF, "got list, expected a dict"),
    ("E1", None, HALF, "got NoneType"),
    ("E2", version("0.10"), version("0.10.0"), "got '0.10', expected '0.9.x' or"),
    ("E2", version("v1.0.0alpha"), version("0.10.7"), "v1.0.0alpha"),
    ("E2", version("1.0.0"), version("0.9.1"), "1.0.0"),
    ("E2", version("0.11.0"), version("0.9.12"), "0.11.0"),
    ("E2", version("0.10.0\n"), version("0.10.0"), "0.10.0"),
    ("E2", version((0, 10, 0)), version("0.10.0"), r"\(0, 10, 0\)"),
    ("E3", HALF | {"buffer": [0.0] * 5}, HALF, "list has no buffer"),
    ("E3", HALF | {"buffer": DATE}, HALF | {"buffer": DATE.view(int)}, "other than dates"),
    ("E3", HALF | {"buffer": None}, HALF | {"buffer": b"12345"}, "NoneType has no buffer"),
    ("E4", dim_data([block()]), HALF, "got a list, expected a tuple of dictionaries"),
    ("E4", dim_data(block()), HALF, "expected a tuple of dictionaries"),
    ("E4", dim_data((None,)), HALF, r"got \(None,\)"),
    ("E5", new(block(), {}), new(block(), {}, shape=(5, 3)), "2 dictionaries for a buffer of"),
    ("E5", new(), new(shape=()), "there are 0 dictionaries"),
    ("D1", new(block(dist_type="n")), HALF, r"got 'n', expected one of \('b', 'c', 'u'\)"),
    ("D1", new({"size": 5}), new({}), "got None"),
    ("D1", old({}), old(alone()), r"expected one of \('n', 'b', 'c', 'u'\)"),
    ("D1", new(block(dist_type=[])), HALF, r"got \[\]"),
    ("D2", new(without(block(), "size")), HALF, "the key is missing; expected an integer of"),
    ("D2", new(cyclic(size=-1), shape=0), new(cyclic(size=0), shape=0), "got -1"),
    ("D2", new(block(size=10.0)), new(block(size=np.int8(10))), "got 10.0"),
    ("D2", new(block(size=True)), new(block(size=Sized(10))), "got True"),
    ("D3", new(block(proc_grid_size=0)), HALF, "got 0, expected an integer of at least 1"),
    ("D3", new(without(block(), "proc_grid_size")), HALF, "missing"),
    ("D4", new(block(proc_grid_rank=-1)), HALF, "got -1"),
    ("D4", new(block(2, 5, 10)), new(block(1, 5, 10)), "less than"),
    ("D4", old(without(cyclic(), "proc_grid_rank")), old(cyclic()), "missing"),
    ("B1", new(block(start=-5, stop=0)), HALF, "got -5"),
    ("B1", new(without(block(), "start")), HALF, "missing"),
    ("B2", new(block(1, 5, 4), shape=0), new(block(1, 10, 10), shape=0), "at least start 5"),
    ("B2", new(block(1, 5, 11), shape=6), new(block(1, 4, 10), shape=6), "at most size 10"),
    ("B2", new(block(stop="5")), HALF, "got '5'"),
    ("B3", new(block(), shape=4), HALF, "has 4 points, expected 5"),
    ("B3", SIX(block(padding=(0, 1))), SIX(block(stop=6, padding=(0, 1))), "version 0.9"),
    ("B3", OLD_SIX(block(stop=6, padding=(0, 1))), OLD_SIX(block(padding=(0, 1))), "version 0.10"),
    ("B3", new(block(padding=(0, 1)), shape=7), new(block(padding=(1, 0))), "correct start"),
    (
        "B3",
        OLD_SIX(block(padding=(1, 0))),
        OLD_SIX(block(padding=(1, 0), periodic=True)),
        "expected 5",
    ),
    ("B4", new(block(0, 1, 6)), new(block(0, 0, 5)), "got 1, expected 0 on the first"),
    ("B4", new(block(1, 4, 9)), new(block(1, 5, 10)), "got 9, expected the size 10"),
    ("B4", new(block(0, 10, 10), shape=0), new(block(0, 0, 0), shape=0), "expected 0"),
    ("B5", new(block(padding=[0, 0])), new(block(padding=(0, 0))), "lenient=True accepts it"),
    ("B5", new(block(padding=(0,))), HALF, r"got \(0,\)"),
    ("B5", new(block(padding=(0, -1))), HALF, "two integers of at least 0"),
    ("B5", new(block(padding=(0, False))), new(block(padding=(np.int64(2), 0))), "False"),
    ("B5", new(block(padding=3)), HALF, "got 3"),
    ("B6", new(block(padding=(3, 3))), new(block(padding=(3, 2))), "the 6 points of it between"),
    ("B6", old(block(padding=(6, 0))), old(block(padding=(5, 0))), "at most stop - start = 5"),
    (
        "B6",
        old(block(1, 10, 10, padding=(1, 0)), shape=1),
        old(block(1, 9, 10, padding=(1, 0)), shape=2),
        "no ghosts where start",
    ),
    ("B7", new(block(periodic=1)), new(block(periodic=True)), "got 1, expected True or"),
    ("B7", old(cyclic(periodic="no")), old(cyclic(periodic=np.True_)), "got 'no'"),
    ("N1", old(alone(), shape=6), old(alone(size=6), shape=6), "has 6 points"),
    ("N1", old(AROUND), old(AROUND, shape=9), "expected 9"),
    ("N1", old(alone(padding=(2, 2)), shape=9), old(alone(padding=(2, 2))), "expected 5"),
    ("N2", old(alone(proc_grid_size=2)), old(alone(proc_grid_size=1)), "1 and 0"),
    ("N2", old(alone(proc_grid_rank=1)), old(alone(proc_grid_rank=0)), "omit both"),
    ("C1", new(cyclic(start=-1)), new(cyclic()), "got -1"),
    ("C2", new(cyclic(block_size=0)), new(cyclic(block_size=1)), "got 0"),
    ("C2", new(cyclic(block_size=None)), new(cyclic()), "got None"),
    ("C3", new(cyclic(1, start=0)), new(cyclic(1, start=1)), "block_size = 1"),
    ("C3", beyond(9), beyond(12), "or the size 10"),
    ("C3", beyond(11), beyond(10), "or the size 10"),
    ("C3", new(cyclic(1, start=10)), new(cyclic(1)), "block_size = 1$|= 1 "),
    ("C4", new(cyclic(block_size=3)), new(cyclic(block_size=3), shape=6), "the 6 that grid rank"),
    ("U1", new(BASE | {"dist_type": "u"}, shape=0), new(free([]), shape=0), "missing"),
    ("U1", listed(np.array([1.0])), listed((ctypes.c_int * 1)(1)), "1-D float64"),
    ("U1", listed(np.array([[1]])), listed(bytearray([1])), "2-D int64"),
    ("U1", listed(np.array([2**63], "u8")), listed(np.array([2**62], "u8")), "1-D uint64"),
    ("U1", listed((1,)), ONE(free([1])), "got tuple"),
    ("U2", new(free([7, -1, 7]), shape=3), new(free([7, -1, 99]), shape=3), "7 is given twice"),
    ("U3", new(free([7, 1])), new(free([7, 1]), shape=2), "each of 5 points"),
    ("U4", ONE(free([7], one_to_one=0)), ONE(free([7], one_to_one=True)), "got 0"),
    ("U5", new(free([7], size=0), shape=1), new(free([], size=0), shape=0), "none in a dimension"),
]


RULES = {
    *("E1", "E2", "E3", "E4", "E5", "D1", "D2", "D3", "D4", "N1", "N2"),
    *("B1", "B2", "B3", "B4", "B5", "B6", "B7", "C1", "C2", "C3", "C4"),
    *("U1", "U2", "U3", "U4", "U5"),
}


def test_every_rule_has_a_case():
    assert {code for code, *_ in ONE_PROCESS} == RULES


def kind_of(code):
    if code == "E2":
        return VersionError
    return StructureError if code[0] in "ED" else SemanticError


@pytest.mark.parametrize(("code", "illegal", "legal", "text"), ONE_PROCESS)
def test_a_process_alone(code, illegal, legal, text):
    assert errors(iter_issues(legal)) == []
    found = errors(iter_issues(illegal))
    assert code in [issue.code for issue in found]
    with pytest.raises(DAPError) as raised:
        validate(illegal)
    assert raised.value.code == found[0].code
    assert raised.match(text)
    assert type(raised.value) is kind_of(code)
    assert f"rule {code}" in str(raised.value)


def test_all_issues_are_found_in_the_order_of_the_dimensions():
    wrong = new(block(start=-1, stop=-2, padding=3), cyclic(start=7, block_size=0), shape=(5, 5))
    assert [(issue.dim, issue.code) for issue in iter_issues(wrong)] == [
        (0, "B1"),
        (0, "B2"),
        (0, "B5"),
        (1, "C2"),
    ]


@pytest.mark.parametrize("junk", [None, 3, "abc", {}, {"__version__": None, "buffer": 1, 2: 3}])
def test_nothing_makes_the_search_for_issues_raise(junk):
    assert errors(iter_issues(junk))


def test_a_buffer_with_an_unknown_format_is_a_buffer():
    class Odd(ctypes.Structure):
        _fields_ = (("number", ctypes.c_int), ("pointer", ctypes.c_void_p))

    export = new(block()) | {"buffer": (Odd * 5)()}
    with pytest.warns(DAPWarning, match="NumPy has no type for the elements"):
        found = validate(export)
    assert found.dtype.itemsize == ctypes.sizeof(Odd)
    assert [issue.code for issue in iter_issues(export)] == ["unknown-type"]


def test_records_whose_format_numpy_writes_but_cannot_read():
    """Alone, an element of this type lies as if it were aligned, and its format says so."""
    dtype = np.dtype([("mass", ">f4"), ("at", "i2", (3,)), ("gone", "?")])
    for points in (1, 2):
        assert validate(new({}, shape=(points,), dtype=dtype)).dtype == dtype
