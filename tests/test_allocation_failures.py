"""Memory that runs out on one rank: all ranks raise together, or the call succeeds everywhere.

Whatever a collective call allocates for its data is there before the ranks go on together. Here
each array that one rank asks for in a call fails in turn; then nothing was changed, and the same
call, and others on the same communicator, work. What is pickled, and what MPI and HDF5 allocate
for themselves, is not reached.

``PENCILS_ALLOCATIONS=all`` tries every allocation of every case, on the first and the last rank;
otherwise it is the first ones of each and some of the later ones, on the last rank.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping
from itertools import chain, count
from pathlib import Path

import numpy as np
import pytest
from allocation_cases import CASES, Here
from failing_memory import memory
from mpi_helpers import ranks_at_fault

import pencils

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

ALL = os.environ.get("PENCILS_ALLOCATIONS") == "all"


@pytest.fixture(name="folder")
def _folder(comm):
    with tempfile.TemporaryDirectory() as mine:
        yield Path(comm.bcast(mine))
        comm.Barrier()


@pytest.fixture(name="private")
def _private(comm, request):
    """Make a communicator for all attempts, or None: each is to make plans of verbs anew."""
    private = comm.Dup() if request.param == "warm" else None
    yield private
    if private is not None:
        private.Free()


def parts_of(result):
    """List copies of all arrays in what a call returned."""
    if isinstance(result, pencils.PencilArray):
        return [result.local.copy()]
    if isinstance(result, np.ndarray | np.generic):
        return [np.array(result)]
    if isinstance(result, Mapping):
        result = list(result.values())
    if isinstance(result, Iterable) and not isinstance(result, str | bytes):
        return [part for each in result for part in parts_of(each)]
    return []


def alike(ones, others):
    return len(ones) == len(others) and all(
        one.dtype == other.dtype and np.array_equal(one, other)
        for one, other in zip(ones, others, strict=True)
    )


def attempt(call, fails):
    """Call, while one request of this rank fails, if any; returns the result and the error."""
    try:
        with memory.watched(fails):
            return call(), None
    except Exception as error:  # noqa: BLE001 - looked at by all ranks
        return None, type(error)(*error.args)  # without frames, in which files would stay open


def check_case(comm, make, rank, fails):
    """Let one allocation fail on a rank; tells whether there was that one."""
    call, seen = make()
    before = parts_of(seen)
    result, error = attempt(call, fails if comm.rank == rank else None)
    told = comm.allgather((type(error).__name__, str(error), memory.failed))
    failed = told[rank][2]
    if len({kind for kind, _, _ in told}) > 1 or (error is not None and not failed):
        pytest.fail(f"allocation {fails} on rank {rank}: {told}")
    unchanged = error is None or alike(parts_of(seen), before)
    if error is not None:
        assert told[0][0] == "MemoryError", told
        assert comm.size == 1 or all(f"rank {rank}: " in text for _, text, _ in told), told
        result, error = attempt(call, None)
    verdicts = comm.allgather((unchanged, error is None))
    assert all(all(verdict) for verdict in verdicts), verdicts
    return failed, parts_of(result)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("private", ["cold", "warm"], indirect=True)
def test_all_ranks_raise_together_or_none(comm, private, folder, name):
    if "fft" in name:
        pytest.importorskip("mpi4py_fft")
    run_case(comm, private, lambda fresh: CASES[name](Here(fresh, folder)))


def run_case(comm, private, make):
    for rank in ranks_at_fault(comm) if ALL else [comm.size - 1]:
        expected = None
        for fails in count() if ALL else chain((0, 1, 2), (2**n for n in count(2))):
            fresh = private or comm.Dup()  # that knows no plans of verbs
            failed, found = check_case(comm, lambda fresh=fresh: make(fresh), rank, fails)
            if private is None:
                fresh.Free()
            expected = expected or found
            verdicts = comm.allgather(alike(found, expected))
            assert all(verdicts), (rank, fails, verdicts)
            if not failed:
                break
