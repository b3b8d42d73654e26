"""Checks that several modules share."""

import numpy as np
from agreement import assert_agrees, kept, outcome
from mpi_helpers import all_raise, everywhere, ranks_at_fault

import pencils
from pencils.errors import RankDisagreementError


def assert_mistake_raises_on_all(comm, case, good, shape=(4, 3)):
    """Check a mistake of all ranks, and of one while others make a good call."""
    call, kind, text = case
    u = pencils.ones(pencils.Pencil(shape, comm))
    all_raise(comm, kind, text, call, u)
    for rank in ranks_at_fault(comm) if comm.size > 1 else ():
        mine = call if comm.rank == rank else good
        _, _, error = outcome(lambda mine=mine: mine(u))
        assert everywhere(comm, isinstance(error, kind | RankDisagreementError)), error
    assert np.sum(u) == u.size


def assert_like_numpy(function, u, a, axis=None, *, rtol=0.0, theirs=None, **options):
    """Check results, warnings and errors of a function; `theirs` are options for NumPy only."""
    given = options | (theirs or {})
    expected, texts, error = outcome(lambda: kept(a, axis, u.pencil.ndim, function, **given))
    result, found, raised = outcome(lambda: function(u, axis=axis, **options))
    assert isinstance(raised, type(error)), (error, raised)
    if error is None:
        assert_agrees(result, expected, rtol=rtol)
        assert found == texts
