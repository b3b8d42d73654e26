"""Print the size of the house: files, classes and lines, and the files that a call enters.

    python tests/house.py

The goals are those of the last review. Nothing depends on the numbers; they are printed by a test,
too, so that a change which makes the house larger is seen.
"""

import ast
import sys
import tempfile
from collections import Counter
from pathlib import Path

import test_layers
from tracing import PENCILS, trace

import pencils
from pencils.comm.mpi import MPI

ROOT = PENCILS.parent
RANKS = 2
CORE = [path for path in sorted(PENCILS.rglob("*.py")) if "tools" not in path.parts]


def lines_of(paths):
    """Count the lines of files."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def counted():
    """Yield (name, number, goal) of what is counted in the sources."""
    trees = [ast.parse(path.read_text()) for path in CORE]
    classes = [
        node.name.strip("_")
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    graph = test_layers.file_graph(PENCILS)
    importers = Counter(name for targets in graph.values() for name in targets)
    kernels = [*PENCILS.rglob("*.c"), *PENCILS.rglob("*.h")]
    yield "files of the core", len(CORE), 165
    yield "classes of the core", len(classes), 250
    yield "lines of the core", lines_of(CORE), 34_000
    yield "lines of C", lines_of(kernels), 3_200
    yield "lines of the tools", lines_of((PENCILS / "tools").rglob("*.py")), 4_500
    yield "lines of simmpi", lines_of((ROOT / "simmpi").rglob("*.py")), 10_200
    yield "lines of the tests", lines_of((ROOT / "tests").rglob("*.py")), 45_000
    yield "files in circles", sum(map(len, test_layers.circles(PENCILS))), 0
    yield "modules with one importer", sum(n == 1 for n in importers.values()), 25
    yield "class names that occur twice", sum(n > 1 for n in Counter(classes).values()), 8
    yield "names at the top", len(pencils.__all__), 40


def traced(folder):
    """Return [(name, number, goal)] of what calls enter on this rank. *Collective*."""
    size = MPI.COMM_WORLD.size
    source, target = (pencils.Pencil((8 * size, 9), decomp=dim) for dim in (0, 1))
    u = pencils.ones(source)
    v = pencils.transpose(u, target)
    source, target = (pencils.Pencil((8 * size, 8), decomp=dim) for dim in (0, 1))
    u = pencils.ones(source)
    first, types = trace(lambda: pencils.transpose(u, target))
    v = pencils.empty(target)
    pencils.transpose(u, target, v)
    _, steady = trace(lambda: pencils.transpose(u, target, v))
    saves = [trace(lambda: pencils.save(folder / "u.h5", {"u": u}))[0] for _ in range(2)]
    return [
        ("files of a first transpose", len(first), 14),
        ("types of a first transpose", len(types), 12),
        ("types of the next transpose", len(steady), 8),
        ("files of a first save", len(saves[0]), 14),
        ("files of the next save", len(saves[1]), 14),
    ]


def table():
    """Return the numbers as text."""
    with tempfile.TemporaryDirectory() as folder:
        of_root = pencils.simulate(RANKS, traced, Path(folder))[0]
    rows = [
        f"{name:30} {number:7,} (goal {goal:,})" for name, number, goal in [*counted(), *of_root]
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(f"{table()}\n")
