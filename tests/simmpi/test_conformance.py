"""The same random programs on simulated ranks and on the MPI library of this environment.

All results must be equal, operation by operation, whatever the schedule of the simulated ranks.
"""

import json
import re
from pathlib import Path

import mpi_programs
import pytest
from mpi4py import MPI
from tiers import up_to

from simmpi import Simulation

PROGRAMS = up_to(20, 10)
OPERATIONS = 40  # of each program
SCHEDULES = up_to(4, 2)  # besides the one without a seed


def run_for_real(mpirun, ranks, seeds, folder):
    """Run programs with mpiexec; return for each seed the results of each rank."""
    folder.mkdir()
    arguments = ["-m", "mpi4py", "-m", "mpi_programs", folder, OPERATIONS, *seeds]
    job = mpirun(ranks, *arguments, cwd=Path(__file__).parent)
    files = [folder / f"{rank}.json" for rank in range(ranks)]
    assert job.returncode == 0, job.stderr
    results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return {seed: [mine[str(seed)] for mine in results] for seed in seeds}


def run_simulated(ranks, seed, schedule):
    """Run one program on simulated ranks; return the results of each rank, and an error."""
    operations = mpi_programs.program(seed, OPERATIONS)
    results = [[] for _ in range(ranks)]
    simulation = Simulation(ranks, seed=schedule)
    error = None
    with simulation.installed():
        try:
            simulation.run(lambda: mpi_programs.execute(operations, results[MPI.COMM_WORLD.rank]))
            simulation.close()
        except Exception as found:  # noqa: BLE001 - compared with the results before it
            error = found
    return results, error


def difference(expected, found):
    """Return the first operation on which two lists of results differ, and how, or None."""
    for rank, (there, here) in enumerate(zip(expected, found, strict=True)):
        for index, (one, other) in enumerate(zip(there, here, strict=False)):
            if one != other:
                return (
                    f"operation {index} on rank {rank}: {one[0]}\n  MPI:       {one[1]}\n"
                    f"  simulated: {other[1]}" + (f" ({other[0]})" if one[0] != other[0] else "")
                )
    return None


@pytest.mark.parametrize(
    "ranks", [3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2, 4))]
)
def test_same_results(ranks, mpirun, tmp_path):
    seeds = range(ranks * 1000, ranks * 1000 + PROGRAMS)
    expected = run_for_real(mpirun, ranks, seeds, tmp_path / "results")
    for number, seed in enumerate(seeds):
        for schedule in [None, *range(number, number + SCHEDULES)]:
            found, error = run_simulated(ranks, seed, schedule)
            where = f"program {seed} on {ranks} ranks, schedule {schedule}"
            differs = difference(expected[seed], found)
            assert differs is None, f"{where}: {differs}" + (f"\n{error}" if error else "")
            if error is not None:
                error.add_note(where)
                raise error


def test_differences_are_named_and_all_operations_drawn():
    operations = [["Bcast on communicator 0 of 1:", "3"], ["Barrier", "None"]]
    assert difference([operations], [operations]) is None
    other = [operations[0], ["Barrier", "1"]]
    assert re.search(
        "operation 1 on rank 0: Barrier\n.*None\n.*1$", difference([operations], [other])
    )
    # All kinds of operations are drawn.
    drawn = {each.name for seed in range(1, 60) for each in mpi_programs.program(seed, OPERATIONS)}
    assert drawn == set(mpi_programs.FUNCTIONS)


@pytest.mark.parametrize("seed", range(3))
def test_programs_do_not_depend_on_the_schedule(seed):
    first, error = run_simulated(3, seed, None)
    assert error is None
    assert run_simulated(3, seed, 7)[0] == first
