"""Integers that no NumPy array, message or file can count with are refused in words."""

import numpy as np
import pytest
from mpi_helpers import all_raise

import pencils
from pencils import Pencil
from pencils.errors import ArgumentError
from pencils.io.options import as_step_and_time
from pencils.layout import build_layout
from pencils.layout.integers import as_dims, as_int, as_ints

pytestmark = pytest.mark.parallel([1, 2, 3])

HUGE = [2**63, 2**64, -(2**63), 10**5000]  # Python does not print the last one


@pytest.mark.parametrize("huge", HUGE, ids=["2**63", "2**64", "-2**63", "10**5000"])
def test_more_than_64_bits(comm, huge):
    pen = Pencil((6, 5), comm)
    u = pencils.ones(pen, halo=1)
    for name, call in (
        ("shape", lambda: Pencil((6, huge), comm)),
        ("shape", lambda: Pencil([np.int64(6), huge], comm)),
        ("shape", lambda: pen.with_(shape=(huge, 5))),
        ("decomp", lambda: Pencil((6, 5), comm, decomp=huge)),
        ("grid", lambda: Pencil((6, 5), comm, grid=huge)),
        ("order", lambda: Pencil((6, 5), comm, order=(0, huge))),
        ("splits", lambda: Pencil((6, 5), comm, splits=[(0, huge), None])),
        ("axis", lambda: pen.staggered(huge)),
        ("halo", lambda: pencils.zeros(pen, halo=huge)),
        ("halo", lambda: pencils.zeros(pen, halo=((1, huge), 0))),
        ("components", lambda: pencils.zeros(pen, components=huge)),
        ("components", lambda: pencils.zeros(pen, components=(2, huge), shared=True)),
        ("dims", lambda: pencils.zeros(pen, dims=huge)),
        ("index", lambda: pen.owner((0, huge))),
        ("offset", lambda: pen.neighbor((0, huge))),
        ("count", lambda: as_int("count", huge, least=1)),
        ("step", lambda: as_step_and_time(huge, None)),
    ):
        text = f"{name} holds an integer of more than 64 bits"
        all_raise(comm, ArgumentError, text, call)
    assert u.sum() == 30


def test_more_bytes_than_64_bits(comm):
    """The verdict is that of all ranks, whatever they own."""
    pen = Pencil((6, 5), comm)
    for call in (
        lambda: pencils.zeros(Pencil((2**62, 4), comm)),
        lambda: pencils.zeros(Pencil((2**62, 0), comm)),
        lambda: pencils.zeros(pen, halo=2**62),
        lambda: pencils.zeros(pen, components=2**62),
        lambda: pencils.empty(pen, components=(2**32, 2**31), shared=True),
        lambda: pencils.ones(pen, components=2**60, dtype="c16"),
    ):
        all_raise(comm, ArgumentError, "has more than 2**63 bytes", call)
    # What has 64 bits is arithmetic.
    assert comm.size
    layout = build_layout((2**63 - 1,), 2**40)
    assert layout.box(2**40 - 1).stop == (2**63 - 1,)
    assert as_ints("n", (2**63 - 1, 1 - 2**63)) == (2**63 - 1, 1 - 2**63)
    assert as_dims("axis", [np.int8(-1)], 2) == (1,)
