"""Fields whose padded blocks end where the domain ends, as those of other packages do."""

import numpy as np
import pytest
from halos import (
    accumulated,
    beyond,
    check_exchange,
    origins,
    random_field,
    random_grid,
    random_shape,
    trim,
)
from mpi_helpers import (
    all_raise,
    everywhere,
    exported_array,
    holds,
    numbered,
    same,
    spread,
)
from tiers import up_to

import pencils
from pencils import HaloExchange, Pencil, dap, gather, transpose
from pencils.comm import memory
from pencils.errors import ArgumentError, RankDisagreementError
from pencils.halo.schedule import ROUTES, HaloSpec

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

versions = pytest.mark.parametrize("version", dap.VERSIONS)
ends = pytest.mark.parametrize("periodic", [False, True])


def slabs(comm, *, periodic=False):
    """Cut dimension 1 only, into blocks of three and four points."""
    return Pencil((5, 3 * comm.size + 1), comm, decomp=1, periodic=periodic)


def trimmed_slabs(comm, *, periodic=False, halo=2, **options):
    """Make numbered global data and a field of them that is trimmed along dimension 1."""
    pen = slabs(comm, periodic=periodic)
    u = pencils.full(pen, -7, halo=halo, **options)
    data = numbered(u.shape, u.dtype)
    u.local[...] = data[u.local_slices]
    return data, trim(u, {1})


def test_fields_views_and_new_memory(comm):
    _, u = trimmed_slabs(comm, components=2)
    first, last = comm.rank == 0, comm.rank == comm.size - 1
    assert u.trimmed == {1}
    assert u.halo == ((2, 2), (2, 2))
    assert everywhere(comm, u.halo_room == ((2, 2), (2 * (not first), 2 * (not last))))
    assert everywhere(comm, u.local.base is not None and (u.local > 0).all())
    assert "halo ((2, 2), (2, 2)), trimmed along [1]>" in repr(u)
    whole = pencils.zeros(slabs(comm), halo=1)
    assert whole.trimmed == frozenset()
    assert whole.halo_room is whole.halo
    assert "trimmed" not in repr(whole)
    # Views are trimmed like the field.
    data, u = trimmed_slabs(comm, components=2, dtype=complex)
    for view, values in (
        (u.component(1), data[1]),
        (u.unstack()[0], data[0]),
        (u.real, data.real),
        (u.imag, data.imag),
    ):
        assert (view.trimmed, view.halo_room) == (u.trimmed, u.halo_room)
        assert everywhere(comm, holds(view, values))
        assert np.shares_memory(view.padded, u.padded)
    # New memory is trimmed nowhere.
    data, u = trimmed_slabs(comm, halo=1)
    likes = [pencils.zeros_like(u), pencils.ones_like(u), pencils.empty_like(u, dtype="f4")]
    for made in (*likes, np.full_like(u, 3), u.copy(), u.astype("i4"), u.blank()):
        assert (made.trimmed, made.halo_room, made.halo) == (frozenset(), u.halo, u.halo)
        assert made.padded.shape == pencils.zeros(u.pencil, halo=1).padded.shape
    for made in (u + 1, -u, np.sqrt(u), u.shift((1, 0))):
        assert (made.trimmed, made.halo) == (frozenset(), ((0, 0), (0, 0)))
    assert everywhere(comm, holds(u, data))


@pytest.mark.parametrize("copied", ["copy", "astype"])
def test_copies_have_the_ghosts_that_there_are(comm, copied):
    rng = np.random.default_rng(21)
    verdicts = []
    for _ in range(up_to(20, 8)):
        ndim = rng.integers(1, 4)
        pen = random_grid(rng, comm, random_shape(rng, ndim))
        u = trim(random_field(rng, pen, "f8").copy(), rng.permutation(ndim)[: rng.integers(1, 4)])
        u.padded[...] = numbered(u.padded.shape)
        new = u.copy() if copied == "copy" else u.astype("f4")
        again = trim(new, u.trimmed)
        verdicts.append(np.array_equal(again.padded, u.padded))
        verdicts.append(not np.shares_memory(new.padded, u.padded))
        verdicts.append((u.interior, u.shells) == (new.interior, new.shells))
    assert everywhere(comm, all(verdicts))


def test_faces_as_wide_as_a_trimmed_block_are_contiguous(comm, monkeypatch):
    """They are sent without packing."""
    monkeypatch.setattr(memory, "ALONE", 1)
    pen = Pencil((3 * comm.size, 4), comm, decomp=0)
    u = trim(pencils.zeros(pen, halo=2), {0, 1})
    (phase,) = ROUTES["sweeps"]([0], [1])
    spec = HaloSpec.of(u)
    sent, received = spec.copies(comm.rank, phase)
    faces = [(c.points, c.source) for c in sent] + [(c.ghosts, c.dest) for c in received]
    assert everywhere(comm, len(faces) == sum(u.halo_room[0]))
    assert everywhere(comm, all(spec.is_large_run(*face) for face in faces))


@ends
def test_nothing_wraps_around(comm, periodic):
    """Seen from the global array: slices of it, cut at its ends."""
    data, u = trimmed_slabs(comm, periodic=(False, periodic))
    expected = accumulated(u)
    u.exchange_halo()
    start, stop = u.extent.box.start[1], u.extent.box.stop[1]
    known = data[:, max(start - 2, 0) : stop + 2]
    assert everywhere(comm, same(u.padded[2:-2], known))
    assert everywhere(comm, (u.padded[:2] == -7).all() and (u.padded[-2:] == -7).all())
    u = trimmed_slabs(comm, periodic=(False, periodic))[1]
    u.accumulate_halo()
    assert everywhere(comm, same(u.padded.copy(), expected))


def test_a_plan_for_one_kind_refuses_the_other(comm):
    _, u = trimmed_slabs(comm, periodic=True)
    ordinary = u.copy()
    for one, other in ((u, ordinary), (ordinary, u)):
        with HaloExchange(one) as plan:
            assert ("trimmed along [1]" in repr(plan)) == (one is u)
            said = f"field 0 has trimmed {other.trimmed}; the plan is for {one.trimmed}"
            all_raise(comm, ArgumentError, said, plan, other)
    for field in (u, u.copy(), u):  # plans that are kept tell both kinds apart
        check_exchange([field], field.exchange_halo)
    if comm.size > 1:
        here = u.copy() if comm.rank == 0 else u
        all_raise(comm, RankDisagreementError, "trimmed", here.exchange_halo)
        all_raise(comm, RankDisagreementError, "trimmed", HaloExchange, here)


@ends
def test_shifts_and_boundaries_along_dimensions(comm, periodic):
    data, u = trimmed_slabs(comm, periodic=(True, periodic))
    u.exchange_halo()
    for step in range(-2, 3):
        moved = u.shift((step, 0))
        assert everywhere(comm, holds(moved, np.roll(data, -step, 0)))
        assert np.shares_memory(moved.local, u.padded)
    # Shift along trimmed dimensions raises on all ranks.
    _, u = trimmed_slabs(comm, periodic=periodic)
    for step in (-1, 2, 9):
        said = f"shift by {step} along dimension 1 leaves the padded blocks: the halo of this field"
        all_raise(comm, ArgumentError, (said, "u.copy()"), u.shift, (0, step))
    copy = u.copy()
    copy.exchange_halo()
    assert copy.shift((0, 1)).pencil is u.pencil
    all_raise(comm, ArgumentError, "leaves the halo", u.shift, (3, 0))
    # Trimmed dimensions have no boundary.
    _, u = trimmed_slabs(comm, periodic=(True, periodic))
    before = u.padded.copy()
    u.fill_boundary("constant")
    assert everywhere(comm, same(u.padded, before))
    said = "is periodic" if periodic else "u.copy() has room for boundary points; leave it out"
    all_raise(
        comm, ArgumentError, ("axis=1 names dimension 1", said), u.fill_boundary, "constant", axis=1
    )


def test_shift_onto_staggered_points(comm):
    data, u = trimmed_slabs(comm)
    pen = u.pencil
    faces = pen.staggered(1)
    all_raise(
        comm,
        ArgumentError,
        "shift by 0 along dimension 1 onto 1 more point leaves the padded blocks",
        u.shift,
        (0, 0),
        onto=faces,
    )
    onto = u.shift((0, 0), onto=pen.staggered(0))
    assert everywhere(comm, same(onto.local[:-1], u.local))
    more = numbered(faces.shape)
    on_faces = trim(spread(faces, more, halo=1), {1})
    assert everywhere(comm, holds(on_faces.shift((0, 0), onto=pen), more[:, :-1]))
    assert everywhere(comm, holds(u.shift((0, 0), onto=pen), data))


@pytest.mark.parametrize("mode", ["edge", "reflect", "antisymmetric", lambda i, j: 100 * i + j])
def test_boundary_points_of_the_other_dimensions(comm, mode):
    """They are those of an ordinary field, beside the ghosts there are."""
    _, u = trimmed_slabs(comm)
    whole = u.copy()
    for field in (u, whole):
        field.exchange_halo()
        field.fill_boundary(mode, axis=None if field is u else 0)
    assert everywhere(comm, same(u.padded, trim(whole, {1}).padded))
    again = u.padded.copy()
    u.fill_boundary(mode, axis=0)
    assert everywhere(comm, same(u.padded, again))


def test_checks_unset_the_ghosts_that_there_are(comm):
    rng = np.random.default_rng(26)
    verdicts = []
    for turn in range(up_to(20, 8)):
        pen = random_grid(rng, comm, random_shape(rng, turn % 3 + 1))
        u = trim(random_field(rng, pen, "f8").copy(), {0})
        u.padded[...] = 2.0
        with pencils.debug.ghosts():
            u[...] = 1.0
        if u.extent.box.volume > 0:
            ghosts = (origins(u) >= 0) & (beyond(u) > 0)
            verdicts.append(np.isnan(u.padded[..., ghosts]).all())
            verdicts.append((u.local == 1.0).all())
            verdicts.append((u.padded[..., origins(u) < 0] == 2.0).all())
    assert everywhere(comm, all(verdicts))


def test_arithmetic_indices_and_transposes(comm):
    data, u = trimmed_slabs(comm)
    v, before = spread(u.pencil, data[::-1], halo=1), u.padded.copy()
    assert everywhere(comm, holds(2 * u - v, 2 * data - data[::-1]))
    assert everywhere(comm, holds(np.where(u > v, u, v), np.maximum(data, data[::-1])))
    rows = np.arange(5.0).reshape(5, 1)
    assert everywhere(comm, holds(u * rows, data * rows))
    assert np.allclose(u.norm(), np.linalg.norm(data))
    assert (u.sum(), u.max(), u.argmax()) == (data.sum(), data.max(), data.argmax())
    assert everywhere(comm, holds(u.sum(axis=1), data.sum(axis=1, keepdims=True)))
    u += v
    u -= v
    np.multiply(u, 1.0, out=u)
    assert everywhere(comm, same(u.padded, before))
    u[:, 0], u[2] = 5.0, 6.0
    data[:, 0], data[2] = 5.0, 6.0
    assert everywhere(comm, holds(u, data))
    start, stop = u.extent.box.start[1], u.extent.box.stop[1]
    kept = range(max(start, 1), min(stop, data.shape[1] - 1))
    assert everywhere(comm, same(u[1, 1:-1].local[0], data[1, kept.start : kept.stop]))
    u.local = spread(u.pencil, data).local
    beside = origins(u) < 0
    assert everywhere(comm, same(u.padded[beside], before[beside]))
    # Transposes and gathers.
    assert everywhere(comm, same(gather(u, root=None), data))
    across = transpose(u, u.pencil.with_(decomp=0))
    assert across.trimmed == frozenset()
    assert everywhere(comm, holds(across, data))
    ghosts = u.padded.copy()
    transpose(2 * across, u.pencil, u)
    assert everywhere(comm, holds(u, 2 * data))
    u.local = data[u.local_slices]
    assert everywhere(comm, same(u.padded, ghosts))


@versions
@ends
@pytest.mark.parametrize("halo", ["none", "comm", "all"])
def test_exports_hold_the_ghosts_that_there_are(comm, version, periodic, halo):
    """With the whole halo, other dimensions grow by their boundary points."""
    data, u = trimmed_slabs(comm, periodic=(False, periodic), components=2)
    u.exchange_halo()
    exported = dap.export(u, version, halo=halo)
    expected = data
    if halo == "all":
        expected = np.pad(data, [(0, 0), (2, 2), (0, 0)], constant_values=-7)
    assert everywhere(comm, np.array_equal(exported_array(u, exported), expected))
    shape = {
        "none": u.local.shape,
        "comm": (2, 5, u.padded.shape[2]),
        "all": u.padded.shape,
    }[halo]
    assert everywhere(comm, exported["buffer"].shape == shape)
    assert np.shares_memory(exported["buffer"], u.padded)
    here = dap.validate(exported).dims[2]
    widths = u.halo_room[1] if halo != "none" else (0, 0)
    assert everywhere(comm, (here.ghosts, here.boundary) == (widths, (0, 0)))
    at = here.local_to_global(np.arange(here.extent), ghosts=True)
    assert everywhere(comm, same(exported["buffer"], expected[:, :, at]))


@versions
@pytest.mark.parametrize("halo", ["none", "comm", "all"])
@pytest.mark.parametrize("seed", range(6))
def test_any_export_is_legal(comm, version, halo, seed):
    """Along what is not cut there are boundary points; ghosts that wrap have no words in 0.10."""
    rng = np.random.default_rng([seed, 27])
    ndim = int(rng.integers(1, 4))
    shape = (2 * comm.size + rng.integers(0, 3, ndim)).tolist()
    decomp = rng.permutation(ndim)[: rng.integers(1, ndim + 1)].tolist()
    pen = Pencil(shape, comm, decomp=decomp, periodic=(rng.random(ndim) < 0.5).tolist())
    widths = rng.integers(0, 3, ndim)
    widths[np.array(pen.periodic) & (np.array(pen.process_shape) == 1)] = 0
    u = trim(spread(pen, numbered(shape), halo=widths), decomp)
    exported = dap.export(u, version, halo=halo)
    grown = [0 if halo != "all" or d in decomp else int(w) for d, w in enumerate(widths)]
    data = np.pad(numbered(shape), [(w, w) for w in grown], constant_values=-7)
    if widths.any():
        u.exchange_halo()
    filled = [d for d, w in enumerate(widths) if w and d not in decomp and not pen.periodic[d]]
    u.fill_boundary("constant", value=-7, axis=filled)
    assert everywhere(comm, np.array_equal(exported_array(u, exported), data))
