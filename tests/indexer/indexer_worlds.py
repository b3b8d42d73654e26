"""Any distribution and any lists of indices on any number of ranks, and an oracle for all ranks."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st
from mpi4py import MPI

SIZE = MPI.COMM_WORLD.size


@dataclass(frozen=True)
class World:
    """Sections of a collection and, by rank, the lists of indices."""

    cuts: list
    lists: list

    @property
    def size(self):
        return self.cuts[-1]

    @property
    def written(self):
        """All indices in write order: by rank, list and position."""
        return [i for lists in self.lists for index in lists for i in index]

    def here(self, comm):
        """Return the lists of this rank, its rows, and its requests among all."""
        before = sum(len(i) for lists in self.lists[: comm.rank] for i in lists)
        mine = sum(len(i) for i in self.lists[comm.rank])
        return (
            [np.array(index) for index in self.lists[comm.rank]],  # an empty one is of floats
            slice(self.cuts[comm.rank], self.cuts[comm.rank + 1]),
            slice(before, before + mine),
        )

    def split(self, comm, values, count=1):
        """Cut what belongs to the requests of this rank into its lists."""
        ends = np.cumsum([0, *(count * len(index) for index in self.lists[comm.rank])])
        return [values[lo:hi] for lo, hi in pairwise(ends)]


@st.composite
def worlds(draw, ranks=SIZE):
    """Draw a world; sections, lists and the collection may be empty."""
    size = draw(st.integers(0, 3) | st.integers(0, 12))
    inner = draw(st.lists(st.integers(0, size), min_size=ranks - 1, max_size=ranks - 1))
    index = st.lists(st.integers(0, size - 1), max_size=6) if size else st.just([])
    lists = st.lists(st.lists(index, max_size=3), min_size=ranks, max_size=ranks)
    return World([0, *sorted(inner), size], draw(lists))


def put(before, written, values):
    """Write one after the other."""
    after = before.copy()
    for i, value in zip(written, values, strict=True):
        after[i] = value
    return after


def put_with(operate, before, written, values):
    """Combine one after the other."""
    after = before.copy()
    for i, value in zip(written, values, strict=True):
        after[i] = operate(after[i], value)
    return after


def put_rows(before, written, rows, *, extend):
    """Write rows of values, given as lists, one after the other."""
    after = [list(row) for row in before]
    for i, row in zip(written, rows, strict=True):
        after[i] = [*after[i], *row] if extend else list(row)
    return after


def flat(rows, dtype=float):
    """Turn lists of values into counts and values."""
    values = [value for row in rows for value in row]
    return np.array([len(row) for row in rows], np.int64), np.array(values, dtype)
