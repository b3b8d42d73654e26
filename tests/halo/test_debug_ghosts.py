"""With checks on, ghosts are unset after every write that can be seen, and nothing else is."""

import os
from functools import reduce

import numpy as np
import pytest
from mpi_helpers import everywhere, numbered, python, random_pencil, same, spread

import pencils
from pencils import Pencil
from pencils.array.base import checks

BY_DEFAULT = os.environ.get("PENCILS_CHECK", "0") not in {"", "0"}
several = pytest.mark.parallel([1, 2, 3, 4, 6])

WRITES = {
    "all": lambda u, v: u.__setitem__(..., v),
    "a plane": lambda u, _: u.__setitem__(0, 1),
    "in place at a key": lambda u, _: u.__setitem__(slice(2), u[:2].__iadd__(1)),
    "local": lambda u, _: setattr(u, "local", 1),
    "local in place": lambda u, _: setattr(u, "local", u.local.__iadd__(1)),
    "in place": lambda u, v: u.__iadd__(v),
    "power in place": lambda u, _: u.__ipow__(2),
    "out": lambda u, v: np.multiply(v, 2, out=u),
    "out of a pair": lambda u, v: np.divmod(v, 2, out=(u, None)),
    "where": lambda u, v: np.add(v, 2, out=u, where=v > 3),
    "round": lambda u, v: np.round(v, out=u),
    "clip": lambda u, v: np.clip(v, 1, 2, out=u),
    "einsum": lambda u, v: np.einsum("...,...->...", v, v, out=u),
    "copyto": np.copyto,
    "nan_to_num": lambda u, _: np.nan_to_num(u, copy=False),
    "fill of a section": lambda u, _: u[1:3, :].fill(2),
}
DELIBERATE = {
    "padded": lambda u: setattr(u, "padded", 1),
    "padded in place": lambda u: setattr(u, "padded", u.padded.__iadd__(1)),
    "fill": lambda u: u.fill(2),
    "copy": lambda u: u.copy(),
    "nan_to_num": np.nan_to_num,
    "arithmetic": lambda u: 2 * u + u.shift((0, 0)),
}


@pytest.fixture(autouse=True)
def _off():
    """Every test begins and ends with checks off, unless the whole run has them on."""
    assert checks.on == BY_DEFAULT
    yield
    assert checks.on == BY_DEFAULT


def ghosts_of(field):
    """Mark the points of the padded block that are not own, but are points of some rank."""
    box, layout = field.extent.box, field.extent.layout
    exists, own = [], []
    for lo, hi, (left, right), n, wraps in zip(
        box.start, box.stop, field.halo, layout.shape, layout.periodic, strict=True
    ):
        at = np.arange(lo - left, hi + right)
        exists.append((n > 0) & (wraps | ((at >= 0) & (at < n))))
        own.append((at >= lo) & (at < hi))
    mask = reduce(np.multiply.outer, exists) & ~reduce(np.multiply.outer, own)
    return np.broadcast_to(mask, field.padded.shape)


def unset(field):
    """Whether all ghosts are unset, and no other point is."""
    nothing = np.isnat if field.dtype.kind in "mM" else np.isnan
    return np.array_equal(nothing(field.padded), ghosts_of(field))


@several
@pytest.mark.parametrize("write", WRITES)
def test_every_write_unsets_the_ghosts_and_only_these(comm, write):
    pen = Pencil((5, 4), comm, periodic=(False, True))
    u = pencils.ones(pen, halo=[(1, 2), (2, 1)])
    v = spread(pen, numbered(pen.shape))
    expected = u.copy()
    WRITES[write](expected, v)
    assert everywhere(comm, BY_DEFAULT or not np.isnan(expected.padded).any())
    with pencils.debug.ghosts():
        WRITES[write](u, v)
    assert everywhere(comm, unset(u))
    assert everywhere(comm, same(u.local, expected.local))
    rest = ~ghosts_of(u)
    assert everywhere(comm, same(u.padded[rest], expected.padded[rest]))


@several
@pytest.mark.parametrize("act", DELIBERATE)
def test_what_sets_the_halo_on_purpose_or_writes_nothing_leaves_it(comm, act):
    u = pencils.ones(Pencil((5, 4), comm, periodic=True), halo=1)
    with pencils.debug.ghosts():
        DELIBERATE[act](u)
        made = [pencils.zeros(u.pencil, halo=1), pencils.zeros_like(u), u.copy(), u.astype("f4")]
    assert everywhere(comm, not any(np.isnan(field.padded).any() for field in (u, *made)))


@several
def test_any_field_has_its_own_ghosts(comm):
    rng = np.random.default_rng(5)
    verdicts = []
    for _ in range(25):
        ndim = rng.integers(1, 4)
        pen = random_pencil(rng, comm, rng.integers(0, 7, ndim).tolist())
        pen = pen.with_(periodic=(rng.random(ndim) < 0.5).tolist())
        dims = np.flatnonzero(rng.random(ndim) < 0.7).tolist()
        halo = [
            tuple(pair) if d in dims else 0 for d, pair in enumerate(rng.integers(0, 3, (ndim, 2)))
        ]
        dtype = rng.choice(["f4", "g", ">f8", "c16", "M8[s]", "m8[ns]"])
        u = pencils.zeros(pen, dtype=dtype, halo=halo, dims=dims, components=(2,) * rng.integers(2))
        with pencils.debug.ghosts():
            u[...] = np.ones((), dtype)
        verdicts.append(unset(u))
        if u.dtype.kind == "c":
            verdicts += [unset(u.real), unset(u.imag)]
    assert everywhere(comm, all(verdicts))


@several
def test_a_forgotten_exchange_shows_in_the_result(comm):
    pen = Pencil((2 * comm.size, 3), comm, decomp=0)
    u = pencils.zeros(pen, halo=[(1, 1), 0])
    with pencils.debug.ghosts():
        u[...] = 1
        slope = u.shift((1, 0)) - u.shift((-1, 0))
    wrong = np.isnan(slope.local).all(axis=1)
    first, last = comm.rank == 0, comm.rank == comm.size - 1
    assert everywhere(comm, wrong.tolist() == [not first, not last])
    # A view unsets its own ghosts.
    pen = Pencil((4, 3), comm, periodic=True)
    u = pencils.zeros(pen, dtype=complex, halo=1, components=2)
    with pencils.debug.ghosts():
        u.component(1).imag[...] = 1
    assert everywhere(comm, not np.isnan(u.padded[0]).any())
    assert everywhere(comm, not np.isnan(u.padded[1].real).any())
    assert everywhere(comm, unset(u.component(1).imag))


@several
@pytest.mark.parametrize("dtype", ["i4", "u1", "?", "S3", [("a", "f8"), ("b", "i2")]])
def test_types_without_nan_are_left_alone(comm, dtype):
    """And all fields by a write that fails."""
    u = pencils.zeros(Pencil((4, 3), comm, periodic=True), dtype=dtype, halo=1)
    before, v = u.padded.copy(), pencils.ones(u.pencil, halo=1)
    with pencils.debug.ghosts():
        u.local = u.local.copy()
        u[...] = u.copy()
        with pytest.raises(ValueError, match="broadcast"):
            v[...] = np.ones((2, 2))
    assert everywhere(comm, same(u.padded, before) and (v.padded == 1).all())


def test_blocks_nest_and_end_with_errors():
    with pencils.debug.ghosts():
        with pencils.debug.ghosts():
            assert checks.on
        assert checks.on
    assert checks.on == BY_DEFAULT
    with pytest.raises(ZeroDivisionError), pencils.debug.ghosts():
        1 / 0  # noqa: B018
    assert checks.on == BY_DEFAULT


PROGRAM = """
import numpy as np, pencils
u = pencils.zeros(pencils.Pencil(4, periodic=True), halo=1)
u += 1
print(np.isnan(u.padded).sum())
"""


@pytest.mark.parametrize(("value", "count"), [(None, 0), ("", 0), ("0", 0), ("1", 2)])
def test_the_environment_turns_checks_on_for_the_whole_program(value, count):
    variables = {} if value is None else {"PENCILS_CHECK": value}
    done = python("-c", PROGRAM, without={"PENCILS_CHECK"}, **variables)
    assert done.stdout.strip() == str(count), done.stderr


def test_transposes_into_a_field_unset_its_ghosts(comm, mpi_tmp_path):
    source = pencils.Pencil((6, 5), comm, decomp=0, periodic=True)
    u, out = pencils.ones(source), pencils.zeros(source.with_(decomp=1), halo=1)
    with pencils.Transposition(source, out.pencil, check=False) as plan, pencils.debug.ghosts():
        calls = [
            lambda: pencils.transpose(u, out.pencil, out),
            lambda: plan(u, out),
            lambda: plan(u, out),  # found again
            lambda: plan.start(u, out).wait(),
            lambda: plan.batch([u], [out]),
        ]
        for call in calls:
            out.padded[...] = 7.0
            call()
            ghosts = out.padded.copy()
            ghosts[1:-1, 1:-1] = np.nan
            assert everywhere(comm, np.isnan(ghosts).all() and (out.local == 1).all())
    # Loading unsets ghosts.
    pencil = pencils.Pencil((6, 5), comm, periodic=(True, False))
    u = pencils.ones(pencil, halo=1)
    pencils.save(mpi_tmp_path / "u.h5", {"u": u})
    with pencils.debug.ghosts():
        new = pencils.load(mpi_tmp_path / "u.h5", pencil, halo=1)["u"]
        pencils.load(mpi_tmp_path / "u.h5", into={"u": u})
    assert everywhere(comm, unset(u) and unset(new))
    assert everywhere(comm, (u.local == 1).all() and (new.local == 1).all())
