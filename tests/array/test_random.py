"""Random fields are the same on every process grid, decomposition and memory order."""

from itertools import pairwise

import numpy as np
import pytest
from fields import assert_holds, lay
from mpi4py import MPI

import pencils
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

FIRST = [
    [0.048373749046626946, 0.8224166666374553, 0.09368511632803123],
    [0.4262206537206533, 0.08125205433628635, 0.736037645338254],
]
DRAWS = {"uniform": pencils.random.uniform, "normal": pencils.random.normal}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "c16", "c8"])
def test_fields_do_not_depend_on_the_layout(pencil, name, dtype):
    alone = pencils.Pencil(pencil.shape, MPI.COMM_SELF)
    for components in ((), (2, 3)):
        expected = DRAWS[name](alone, 5, dtype=dtype, components=components)
        field = DRAWS[name](pencil, 5, dtype=dtype, components=components, halo=1)
        assert_holds(field, expected.local)


def test_layouts_differ_along_the_last_axis(comm):
    alone = pencils.random.normal(pencils.Pencil((3, 37), MPI.COMM_SELF), 1)
    for decomp in (0, 1, (0, 1), (1, 0)):
        pencil = pencils.Pencil((3, 37), comm, decomp=decomp)
        assert_holds(pencils.random.normal(pencil, 1), alone.local)


def test_numbers_are_fixed_for_ever(comm):
    u = pencils.random.uniform(pencils.Pencil((2, 3), comm, decomp=1), rng=7)
    expected = np.array(FIRST)
    np.testing.assert_allclose(u.local, expected[u.local_slices], rtol=1e-15)


def test_moments(comm):
    pencil = pencils.Pencil((40, 50, 30), comm)
    u = pencils.random.uniform(pencil, 3, -1, 3)
    assert abs(u.mean() - 1) < 0.02
    assert abs(u.var() - 16 / 12) < 0.02
    assert u.min() >= -1
    assert u.max() < 3
    v = pencils.random.normal(pencil, 3, 5, 2)
    assert abs(v.mean() - 5) < 0.03
    assert abs(v.std() - 2) < 0.03
    assert abs(((v - 5) ** 3).mean()) < 0.5
    assert abs((((v - 5) / 2) ** 4).mean() - 3) < 0.1
    w = pencils.random.normal(pencil, 3, dtype="c16")
    assert abs((w.real * w.imag).mean()) < 0.02
    assert abs(w.var() - 2) < 0.05


def test_every_seed_stream_and_component_differs(comm):
    pencil = pencils.Pencil((30, 20), comm)
    u = pencils.random.normal(pencil, 0, components=2, dtype="c16")
    fields = [u.component(0).real, u.component(0).imag, u.component(1).real, u.component(1).imag]
    fields += [pencils.random.normal(pencil, seed) for seed in (1, 2, 2**32, 2**64, 2**200)]
    for i, one in enumerate(fields):
        for other in fields[:i]:
            assert abs((one * other).mean()) < 0.2


@pytest.mark.parametrize("name", DRAWS)
def test_sources_of_seeds(comm, name):
    """A seed and its SeedSequence mean the same; a generator gives another field in each call."""
    draw, pencil = DRAWS[name], lay(comm, "plane")
    alone = pencils.Pencil(pencil.shape, MPI.COMM_SELF)
    expected = draw(alone, 7).local
    sequence = np.random.SeedSequence(7)
    assert_holds(draw(pencil, sequence), expected)
    children = [draw(pencil, child) for child in sequence.spawn(2)]
    for make in (np.random.default_rng, np.random.MT19937):
        rng, again = make(7), make(7)
        fields = [draw(pencil, rng) for _ in range(3)]
        for field in fields:
            assert_holds(field, draw(alone, again).local)
        for one, other in pairwise([draw(pencil, 7), *children, *fields]):
            assert (one != other).any()


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_the_upper_limit_stays_out_when_rounded(comm, dtype):
    pencil = pencils.Pencil((300, 100), comm)
    for low, high in ((0, 1), (1, 2), (-2, -1)):
        u = pencils.random.uniform(pencil, 1, low, high, dtype=dtype)
        assert u.max() < high
        assert u.min() >= low
    assert_holds(
        pencils.random.uniform(pencil, 1, 2, 2, dtype=dtype), np.full(pencil.shape, 2, dtype)
    )


def test_bad_arguments(comm):
    pencil = lay(comm, "plane")
    for draw in DRAWS.values():
        for rng in (1.5, "rng", None, (1, 2), True, np.random.RandomState(1)):
            with pytest.raises(TypeError, match="rng"):
                draw(pencil, rng)
        with pytest.raises(ArgumentError, match="rng=-1"):
            draw(pencil, -1)
        for dtype in (int, bool, "S3", "M8[s]"):
            with pytest.raises(TypeError, match="floating type"):
                draw(pencil, 1, dtype=dtype)
        with pytest.raises(TypeError, match="must be a Pencil"):
            draw((3, 4), 1)
        assert_holds(draw(pencil, np.int32(4)), draw(pencil, 4).local) if comm.size == 1 else None
    for low, high in ((1, 0), (0, np.inf), (np.nan, 1)):
        with pytest.raises(ArgumentError, match="finite"):
            pencils.random.uniform(pencil, 1, low, high)
