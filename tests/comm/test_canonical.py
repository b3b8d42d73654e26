"""Values are compared by what they are, whatever their spelling."""

import enum
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pencils.comm.agree import token
from pencils.comm.canonical import encoded
from pencils.layout import build_layout
from pencils.layout.split import Split


class Text(str):
    __slots__ = ()


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Pair(NamedTuple):
    one: object
    two: object


@dataclass
class Record:
    name: str
    data: object
    note: str = field(default="", compare=False)


RECORDS = np.dtype([("x", "f8"), ("y", "i2", (3,))])
PADDED = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8]})


def gappy(fill):
    """Make records with gaps whose bytes are `fill`."""
    data = np.frombuffer(bytes([fill]) * 2 * PADDED.itemsize, PADDED).copy()
    data["a"], data["b"] = 1, 2
    return data


# What is in one row is equal; of different rows nothing is.
EQUAL = [
    (1, 1.0, True, 1 + 0j, np.int64(1), np.float32(1), np.bool_(1), Level.LOW, np.longdouble(1)),
    (0.0, -0.0, 0, False, np.float64(-0.0)),
    (float("nan"), -float("nan"), np.float32("nan"), np.array(np.nan)),
    (1 / 3, np.float64(1 / 3)),
    (np.longdouble(1) / 3, np.longdouble(1) / 3),
    (np.inf, np.float32(np.inf)),
    (2**70, np.float64(2.0**70)),
    (1j, np.complex128(1j)),
    ("a", Text("a"), np.str_("a"), np.array("a"), Path("a")),
    (b"a", bytearray(b"a"), np.bytes_(b"a")),
    (None,),
    (...,),
    ((1, 2), [1, 2], Pair(np.int8(1), 2.0), [True, 2]),
    ((), []),
    ([None],),
    ({1: 2, "a": 3}, {"a": np.int8(3), 1: 2.0}),
    ({1, 2, 3}, frozenset({3, 2, 1}), {np.int64(1): 0, 3: 0, 2: 0}.keys()),
    (range(0), range(5, 5)),
    (range(3, 4, 7), range(3, 4)),
    (range(1, 8, 3), range(1, 10, 3)),
    (slice(1, None),),
    (slice(1, 2),),
    (Color.RED,),
    (Color.BLUE,),
    (Color,),
    (np.dtype("f8"), np.dtype(float), np.dtype("=f8")),
    (np.dtype(">f8"),),
    (RECORDS, np.dtype([("x", float), ("y", np.int16, 3)])),
    (PADDED, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    (np.array([1.0, np.nan, -0.0]), np.array([1, np.nan, 0.0])),
    (np.array([1.0, 2.0]), np.array([1.0, 0.0, 2.0])[::2]),
    (np.array([1, 2]),),
    (np.array([[1, 2]]),),
    (np.array([1 + 1j]),),
    (np.zeros(2, "g"), np.array([0, -0.0], "g")),
    (gappy(0), gappy(255)),
    (gappy(0)[0], gappy(255)[1]),
    (np.datetime64("2020-01-01"),),
    (np.timedelta64(3, "s"),),
    (np.timedelta64(3, "D"),),
    (np.array([1, "a", None], object),),
    (np.add,),
    (np.sum,),
    (len,),
    (Record("a", 1, "left out"), Record("a", 1.0)),
    (Record("a", 2),),
    (object(), object()),
    (Split(8, 4), Split(8, 4, "ceil"), Split.from_bounds([0, 2, 4, 6, 8])),
    (Split(9, 4, "last"), Split.from_bounds([0, 2, 4, 6, 9])),
    (Split(9, 4),),
    (Split(8, 4, "replicated"),),
    (build_layout((8, 8), 2), build_layout([8, 8], 2, splits=((0, 4, 8), "floor"))),
]


@pytest.mark.parametrize("row", [row for row, values in enumerate(EQUAL) if len(values) > 1])
def test_equal_values_have_the_same_bytes(row):
    values = EQUAL[row]
    assert len({encoded(value) for value in values}) == 1
    assert len({token(value) for value in values}) == 1
    assert len({encoded({"of": [value]}) for value in values}) == 1


def test_different_values_have_different_bytes():
    for one, other in combinations(EQUAL, 2):
        assert encoded(one[0]) != encoded(other[0]), (one, other)


def test_texts_of_numpy_do_not_matter():
    values = {"at": np.float64(0.1), "shape": (np.int64(3),), "data": np.arange(3) / 3}
    usual = encoded(values)
    with np.printoptions(legacy="1.13"):
        assert encoded(values) == usual
    with np.printoptions(precision=2, threshold=2):
        assert encoded(values) == usual
        assert encoded(np.arange(9) / 3) != encoded(np.arange(9) / 3 + 1e-6)
