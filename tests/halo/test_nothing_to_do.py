"""Calls that would do nothing to any field raise, on every rank, and say what to do."""

import pytest
from mpi_helpers import all_raise, everywhere

import pencils
from pencils import HaloExchange
from pencils.errors import ArgumentError
from pencils.halo import exchange_halos

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

VERBS = {
    "exchange_halo": lambda u: u.exchange_halo(),
    "without corners": lambda u: u.exchange_halo(corners=False),
    "start_halo_exchange": lambda u: u.start_halo_exchange(),
    "accumulate_halo": lambda u: u.accumulate_halo(),
    "exchange_halos": lambda u: exchange_halos([u]),
    "HaloExchange": HaloExchange,
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize("periodic", [False, True])
def test_fields_without_halo_have_no_ghosts(comm, verb, periodic):
    pencil = pencils.Pencil((6, 5), comm, periodic=periodic)
    u = pencils.ones(pencil)
    all_raise(comm, ArgumentError, ("no halo", "zeros(pencil, halo=1)"), verb, u)
    # There may be none here, but elsewhere; a field of one point cannot have any.
    given = [{"halo": (1, 0)}, {"halo": [(0, 0), (0, 1)]}, {"halo": 2, "dims": ()}, {"dims": ()}]
    for options in given * 2:
        u = pencils.ones(pencil, **options)
        done = verb(u)
        if isinstance(done, HaloExchange):
            done(u)
            done.free()
        elif done is not None:
            done.wait()
        assert everywhere(comm, (u.local == 1).all() or "dims" not in options)


def test_fields_of_which_some_have_a_halo(comm):
    pencil = pencils.Pencil((6, 5), comm, periodic=True)
    u, v = pencils.ones(pencil), pencils.ones(pencil, halo=1)
    exchange_halos([u, v])
    assert everywhere(comm, v.padded.all())
    all_raise(
        comm,
        ArgumentError,
        "none of the fields has a halo",
        lambda: exchange_halos([u, pencils.ones(pencil)]),
    )
    # Programs for any periodicity need not ask.
    pencil = pencils.Pencil((comm.size, 5, 4), comm, decomp=0, periodic=(True, False, False))
    u = pencils.zeros(pencil, halo=[(1, 1), (1, 0), (0, 0)])
    u.fill_boundary("constant", value=3)
    assert everywhere(comm, (u.padded[:, 0] == 3).all() and not u.padded[:, 1:].any())
    point = pencils.ones(pencil, halo=1, dims=())
    point.fill_boundary("constant", value=3)
    assert everywhere(comm, (point.padded == 1).all())
    flat = pencils.Pencil((6, 5), comm, periodic=(True, False))
    for periodic, halo in (((True, True), 1), ((True, False), (1, 0))):
        u = pencils.zeros(flat.with_(periodic=periodic), halo=halo)
        u.fill_boundary("constant", value=3)
        assert everywhere(comm, not u.padded.any())


def test_boundaries_that_are_not_there(comm):
    pencil = pencils.Pencil((6, 5, 4), comm, periodic=(True, False, False))
    cases = [
        (0, {}, "dimension 0, which is periodic"),
        (0, {}, "dimension 1, along which the field has no halo"),
        (0, {}, "there are no boundary points to fill"),
        (1, {"axis": 0}, "dimension 0, which is periodic"),
        (1, {"axis": (1, 0)}, "dimension 0, which is periodic"),
        ((1, 1, 0), {"axis": 2}, "dimension 2, along which the field has no halo"),
        ((1, 1, 0), {"axis": (1, 2)}, "leave it out"),
        ([(0, 0), (1, 0), (0, 0)], {"side": "hi"}, "halo (1, 0), none on side 'hi'"),
        ([(1, 1), (1, 0), (0, 1)], {"side": "hi", "axis": 1}, "none on side 'hi'"),
    ]
    for halo, options, text in cases:
        u = pencils.zeros(pencil, halo=halo)
        all_raise(comm, ArgumentError, text, u.fill_boundary, "constant", value=3, **options)
        assert everywhere(comm, not u.padded.any())
