"""Simulated datatypes describe and copy the same bytes as those of the MPI library."""

import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from mpi4py import MPI

from pencils.simulation import datatypes
from pencils.simulation.buffers import as_buffer
from pencils.simulation.datatypes import ORDER_C, ORDER_F, Datatype
from pencils.simulation.derived import live
from pencils.simulation.exceptions import MPIError
from pencils.simulation.memory import buffer

MIDDLE = 1 << 16  # bytes before and after the address at which tests use datatypes

NAMES = sorted(
    name
    for name in dir(MPI)
    if isinstance(getattr(MPI, name), MPI.Datatype) and getattr(MPI, name) != MPI.DATATYPE_NULL
)


def both(name):
    return getattr(MPI, name), getattr(datatypes, name)


basic = st.sampled_from(["BYTE", "C_BOOL", "SHORT", "INT", "DOUBLE", "DOUBLE_INT", "SHORT_INT"])
count = st.integers(0, 3)
stride = st.integers(-9, 9)


def counts_and(displacements, *more):
    return st.lists(st.tuples(count, displacements, *more), max_size=4).map(
        lambda rows: [list(column) for column in zip(*rows, strict=True)] or [[]] * (2 + len(more))
    )


def boxes(axis):
    return st.lists(axis, min_size=1, max_size=3).map(
        lambda rows: [list(column) for column in zip(*rows, strict=True)]
    )


axis = st.integers(1, 4).flatmap(
    lambda n: st.integers(1, n).flatmap(
        lambda sub: st.tuples(st.just(n), st.just(sub), st.integers(0, n - sub))
    )
)


def derived(inner):
    """Descriptions of datatypes: name of the constructor, base types, arguments."""
    one = st.tuples(inner)
    return st.one_of(
        st.tuples(st.just("Dup"), one, st.just(())),
        st.tuples(st.just("Create_contiguous"), one, st.tuples(count)),
        st.tuples(st.just("Create_vector"), one, st.tuples(count, count, stride)),
        st.tuples(st.just("Create_hvector"), one, st.tuples(count, count, stride)),
        st.tuples(st.just("Create_indexed"), one, counts_and(stride)),
        st.tuples(st.just("Create_hindexed"), one, counts_and(stride)),
        st.tuples(st.just("Create_indexed_block"), one, st.tuples(count, st.lists(stride))),
        st.tuples(st.just("Create_hindexed_block"), one, st.tuples(count, st.lists(stride))),
        st.tuples(st.just("Create_resized"), one, st.tuples(stride, st.integers(0, 40))),
        st.tuples(st.just("Create_subarray"), one, boxes(axis)),
        st.lists(st.tuples(count, stride, inner), min_size=1, max_size=3).map(
            lambda rows: (
                "Create_struct",
                tuple(row[2] for row in rows),
                ([row[0] for row in rows], [row[1] for row in rows]),
            )
        ),
    )


recipes = st.recursive(basic, derived, max_leaves=4)


def build(module, recipe):
    """Create a datatype from its description."""
    if isinstance(recipe, str):
        return getattr(module, recipe)
    name, inner, arguments = recipe
    kinds = [build(module, part) for part in inner]
    if name == "Create_struct":
        return module.Datatype.Create_struct(*arguments, kinds)
    return getattr(kinds[0], name)(*arguments)


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


@given(recipes, st.integers(0, 3))
def test_derived_types_are_those_of_mpi(recipe, number):
    real, simulated = build(MPI, recipe), build(datatypes, recipe)
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
