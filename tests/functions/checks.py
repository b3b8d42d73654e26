"""Checks that several modules share."""

import numpy as np
from agreement import assert_agrees, identical, kept, outcome
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


def assert_same_outcome(call, u, a, *, rtol=0.0):
    """Check that a function of a field gives, warns of and raises what it does for the data `a`.

    Or of several fields, as a list.
    """
    expected, texts, error = outcome(lambda: call(a))
    result, found, raised = outcome(lambda: call(u))
    assert isinstance(raised, type(error)), (error, raised)
    if error is not None:
        return
    assert found == texts
    assert isinstance(result, type(expected))
    for pair in zip(arrays_of(result), arrays_of(expected), strict=True):
        assert_agrees(*pair, rtol=rtol)
    assert identical((u[0] if isinstance(u, list) else u).pencil.comm, result)


def arrays_of(result):
    """List the arrays of a result, which may be one, a tuple of them, or with a list in it."""
    if not isinstance(result, list | tuple):
        return [result]
    return [array for part in result for array in arrays_of(part)]


def assert_like_numpy(function, u, a, axis=None, *, rtol=0.0, theirs=None, **options):
    """Check results, warnings and errors of a function; `theirs` are options for NumPy only."""
    given = options | (theirs or {})
    expected, texts, error = outcome(lambda: kept(a, axis, u.pencil.ndim, function, **given))
    result, found, raised = outcome(lambda: function(u, axis=axis, **options))
    assert isinstance(raised, type(error)), (error, raised)
    if error is None:
        assert_agrees(result, expected, rtol=rtol)
        assert found == texts
