"""Memory that runs out on one rank: all ranks raise together, or the call succeeds everywhere.

Whatever a collective call allocates for its data is there before the ranks go on together. Here
each array that one rank asks for in a call fails in turn; then nothing was changed, and the same
call, and others on the same communicator, work. What is pickled, and what MPI and HDF5 allocate
for themselves, is not reached. The calls are those of `tests/campaigns`, which check their results.

``PENCILS_ALLOCATIONS=all`` tries every allocation of every case, on the first and the last rank;
otherwise it is the first ones of each and some of the later ones, on the last rank.
"""

import os
import re
import sys
import tempfile
from itertools import chain, count
from pathlib import Path

import pytest
from mpi_helpers import ranks_at_fault

sys.path.append(str(Path(__file__).with_name("campaigns")))

from cases import PARTS, TIMED, load_cases
from faulty import allocations
from world import World

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

ALL = os.environ.get("PENCILS_ALLOCATIONS") == "all"
# Large enough for allocations to fail.
SIZES = {"shape": (36, 24, 20), "points": 700, "rows": 500}


# Neither cases in which ranks do not agree before data move, nor those of mistakes, and of what
# others test here as well.
SKIPPED = re.compile(
    r".*unchecked|.*hybrid|time_series files|assertion|make_pencil|disagreement"
    r"|.*(outside|missing|damaged|mistake|differ|fails)"
)


def is_tried(name):
    return not (name in PARTS | TIMED or SKIPPED.match(name))


CASES = {name: make for name, make in load_cases().items() if is_tried(name)}


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


def attempt(call, fails):
    """Call, while one request of this rank fails, if any; return the error, and whether it did."""
    with allocations(fails) as memory:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - looked at by all ranks
            return type(error)(*error.args), memory.failed  # without frames and open files
    return None, memory.failed


def check_case(comm, name, folder, rank, fails):
    """Let one allocation fail on a rank; tells whether there was that one."""
    world = World(comm, folder, **SIZES)
    call = CASES[name](world)
    world.found.clear()
    error, failed = attempt(call, fails if comm.rank == rank else None)
    began = bool(world.found) or "under_way" in name  # with another call than the one that failed
    kept = error is None or began or all(map(world.keeps, world.fields))
    told = comm.allgather((type(error).__name__, str(error), failed))
    failed = told[rank][2]
    if len({kind for kind, _, _ in told}) > 1 or (error is not None and not failed):
        pytest.fail(f"allocation {fails} on rank {rank}: {told}")
    if error is not None:
        assert told[0][0] == "MemoryError", told
        assert comm.size == 1 or all(f"rank {rank}: " in text for _, text, _ in told), told
        error, _ = attempt(call, None)
    verdicts = comm.allgather((kept, error is None, str(error)))
    assert all(kept and right for kept, right, _ in verdicts), verdicts
    return failed


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("private", ["cold", "warm"], indirect=True)
def test_all_ranks_raise_together_or_none(comm, private, folder, name):
    for rank in ranks_at_fault(comm) if ALL else [comm.size - 1]:
        for fails in count() if ALL else chain([0], (4**n for n in count())):
            fresh = private or comm.Dup()  # that knows no plans of verbs
            failed = check_case(fresh, name, folder, rank, fails)
            if private is None:
                fresh.Free()
            if not failed:
                break
