"""Time verbs on many simulated ranks of one process: ``python benchmarks/simulated_ranks.py 1000``.

For each number of ranks and each verb: seconds, processor time of the process, both also per rank
(that of starting its thread included), and the calls of MPI per rank. The last lines compare plans
of transposes and of halos: messages of a rank, function calls of Python per rank that make the
plan, and their ratio. It must not grow with the number of ranks.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from mpi4py import MPI

import pencils
from pencils.layout import redistribution
from simmpi import Simulation

# Decomposed dimensions by number of axes of the process grid: of the pencil, and of its transpose.
DIMENSIONS = {1: ((0,), (1,)), 2: ((0, 1), (0, 2)), 3: ((0, 1, 2), (1, 2, 0))}


class Program:
    """The verbs, as methods that each rank calls; `here` is what a rank has."""

    def __init__(self, points: int, grid: tuple[int, ...], folder: Path) -> None:
        self.grid = grid
        self.shape = (points,) * 3
        self.values = np.arange(float(points**3)).reshape(self.shape)
        self.file = folder / "field"
        size = int(np.prod(grid))
        self._ranks: list[dict[str, Any]] = [{} for _ in range(size)]

    @property
    def here(self) -> dict[str, Any]:
        return self._ranks[MPI.COMM_WORLD.rank]

    def nothing(self) -> None:
        """Start and end a thread."""

    def pencil(self) -> None:
        decomp, other = DIMENSIONS[len(self.grid)]
        self.here["source"] = pencils.Pencil(self.shape, decomp=decomp, grid=self.grid)
        self.here["target"] = self.here["source"].with_(decomp=other)

    def partition(self) -> None:
        values = self.values if MPI.COMM_WORLD.rank == 0 else None
        self.here["u"] = pencils.partition(self.here["source"], values, root=0, halo=1)

    def reduce(self) -> None:
        assert self.here["u"].sum() == self.values.sum()

    def plan_transpose(self) -> None:
        self.here["plan"] = pencils.Transposition(self.here["source"], self.here["target"])

    def transpose(self) -> None:
        self.here["v"] = self.here["plan"](self.here["u"])

    def plan_halo(self) -> None:
        self.here["halo"] = pencils.HaloExchange(self.here["u"])

    def exchange_halo(self) -> None:
        self.here["halo"](self.here["u"])

    def gather(self) -> None:
        found = pencils.gather(self.here["v"])
        assert found is None or np.array_equal(found, self.values)

    def take(self) -> None:
        rank = MPI.COMM_WORLD.rank
        numbers = np.array([rank, 7919 * rank]) % self.values.size
        found = self.here["u"].take_points(np.unravel_index(numbers, self.shape))
        assert found.tolist() == numbers.tolist()

    def save(self) -> None:
        pencils.save(self.file, {"u": self.here["u"]})

    def load(self) -> None:
        found = pencils.load(self.file, self.here["source"])["u"]
        assert np.array_equal(found.local, self.here["u"].local)

    def messages(self) -> int:
        """Count the messages that a rank sends to transpose."""
        source, target = self.here["source"], self.here["target"]
        sends, _ = redistribution(source.layout, target.layout, source.rank, target.rank)
        return len(sends)

    def free(self) -> None:
        self.here.clear()


VERBS = (
    *("nothing", "pencil", "partition", "reduce", "plan_transpose", "transpose", "plan_halo"),
    *("exchange_halo", "gather", "take", "save", "load"),
)


def counted(function: Callable[[], object]) -> Callable[[], int]:
    """Return a function that calls another one, and returns how many functions that has called."""

    def call() -> int:
        calls = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event in {"call", "c_call"}

        sys.setprofile(count)
        try:
            function()
        finally:
            sys.setprofile(None)
        return calls

    return call


def time_verbs(simulation: Simulation, program: Program) -> Any:
    """Print a line for each verb; return the seconds, and the processor time, of all."""
    ranks = len(simulation.calls)
    total = np.zeros(2)
    for verb in VERBS:
        before = sum(map(len, simulation.calls))
        start = np.array([perf_counter(), process_time()])
        simulation.run(getattr(program, verb))
        took = np.array([perf_counter(), process_time()]) - start
        total += took
        calls = (sum(map(len, simulation.calls)) - before) / ranks
        figures = (*took, *(1e3 * took / ranks), calls)
        print(f"{verb:<16}", *(f"{figure:10.2f}" for figure in figures), flush=True)
    return total


def plan_costs(simulation: Simulation, program: Program) -> None:
    """Print function calls per rank that make plans, and per message."""
    messages = float(np.mean(simulation.run(program.messages)))
    neighbours = 3 ** len(program.grid) - 1
    for name, number in (("plan_transpose", messages), ("plan_halo", neighbours)):
        calls = float(np.mean(simulation.run(counted(getattr(program, name)))))
        print(f"{name:<16} {number:10.1f} messages {calls:10.0f} calls {calls / number:10.1f} each")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ranks", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--axes", type=int, choices=DIMENSIONS, default=2, help="of the grid")
    parser.add_argument("--points", type=int, default=64, help="along each dimension")
    parser.add_argument("--nodes", type=int, help="simulated nodes (default: one)")
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    for ranks in options.ranks:
        grid = tuple(MPI.Compute_dims(ranks, options.axes))
        simulation = Simulation(ranks, nodes=options.nodes, seed=options.seed, strict=False)
        print(f"\n{ranks} ranks, grid {'×'.join(map(str, grid))}")
        print(f"{'':<16}", *(f"{name:>10}" for name in ("s", "CPU s", "ms/rank", "CPU", "calls")))
        with tempfile.TemporaryDirectory() as folder, simulation.installed():
            program = Program(options.points, grid, Path(folder))
            total = time_verbs(simulation, program)
            print(f"{'all':<16}", *(f"{figure:10.2f}" for figure in total))
            plan_costs(simulation, program)
            simulation.run(program.free)
            simulation.close()


if __name__ == "__main__":
    main()
