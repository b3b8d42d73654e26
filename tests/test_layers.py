"""Imports only point down: the order of the modules is the architecture."""

import ast
from pathlib import Path

import pytest

PENCILS = Path(__file__).parents[1] / "pencils"
SIMMPI = PENCILS.with_name("simmpi")

# A module may import those with a smaller number. A new module has to find its place here;
# inside one folder imports are free, but no files may import each other in a circle.
HEIGHT = {
    "errors": 0,
    "bars": 2,
    "tables": 2,
    "layout": 10,
    "comm": 20,
    "logs": 25,
    "pencil": 30,
    "plans": 35,
    "array": 40,
    "debug": 45,
    "random": 45,
    "halo": 50,
    "distribute": 51,
    "transposition": 52,
    "indexer": 53,
    "dap": 54,
    "functions": 55,
    "graph": 60,
    "io": 60,
    "lines": 60,
    "fft": 60,
    "solvers": 65,
    "interop": 65,
    "__init__": 70,  # `from pencils import Pencil`: the public names
    "tools": 80,
    "__main__": 90,
}

# MPI has one door, for types, too: what replaces it there replaces it everywhere. Only `tools.run`,
# which starts the processes, goes past it.
MPI_DOOR = "comm/mpi.py"

# Files that may import simmpi: the door, which takes it where no MPI library is, the short way to
# `simmpi.simulate`, and the command lines.
SIMMPI_USERS = {"comm/mpi.py", "__init__.py", "tools"}

# External packages and the folders that may import them. Under TYPE_CHECKING every folder may, but
# for mpi4py.
OWNERS = {
    "mpi4py": {"tools"},
    "h5py": {"io"},
    "zarr": {"io"},
    "scipy": {"fft"},
    "mpi4py_fft": {"fft", "interop"},
    "petsc4py": {"interop"},
    "matplotlib": {"tools"},
    "mypy": {"tools"},
}
LAZY_OWNER = "tools"  # `python -m pencils info` looks at all of them, inside functions


def module_of(path, root):
    """Name the module, or the folder of modules, that a file belongs to: layout/box.py, layout."""
    name = path.relative_to(root).parts[0].removesuffix(".py")
    return "fft" if name.startswith("fft_") else name


def imports(path, root, name="pencils"):
    """Yield (line, dotted name, lazy, typing) for every import in a file, relative ones resolved.

    `lazy` is inside a function, `typing` under ``if TYPE_CHECKING:``.
    """
    package = (name, *path.relative_to(root).parts[:-1])

    def visit(node, lazy, typing):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, lazy, typing
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            base = ".".join(filter(None, (base, node.module)))
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}", lazy, typing
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from visit(child, lazy, typing=True)
            for child in node.orelse:
                yield from visit(child, lazy, typing)
        else:
            lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, lazy, typing)

    yield from visit(ast.parse(path.read_text()), lazy=False, typing=False)


def complaint(source, name, *, lazy, typing, modules):
    """Describe what is wrong with `source` importing `name`, or return None."""
    top, *rest = name.split(".")
    if top != "pencils":
        typing = typing and top != "mpi4py"
        free = top not in OWNERS or source in OWNERS[top] or typing
        return None if free or (lazy and source == LAZY_OWNER) else f"{top} belongs elsewhere"
    target = rest[0] if rest and rest[0] in modules else "__init__"
    target = "fft" if target.startswith("fft_") else target
    if target == source:
        return None
    if target not in HEIGHT:
        return f"{target} has no place in HEIGHT"
    return None if HEIGHT[target] < HEIGHT[source] else f"{target} is not below {source}"


def violations(root):
    """List every import under root that points up, or belongs to another module."""
    found = []
    modules = {entry.name.removesuffix(".py") for entry in root.iterdir()}
    for path in sorted(root.rglob("*.py")):
        source, where = module_of(path, root), path.relative_to(root).as_posix()
        if source not in HEIGHT:
            found.append(f"{where}: {source} has no place in HEIGHT")
            continue
        if where == MPI_DOOR:
            continue
        for line, name, lazy, typing in imports(path, root):
            if what := complaint(source, name, lazy=lazy, typing=typing, modules=modules):
                found.append(f"{where}:{line}: imports {name}: {what}")
    return found


def file_graph(root):
    """Map the dotted name of every file to the files it imports, at any time and for typing.

    What a file imports from a package counts as a file of the package if it is one, else as the
    package's ``__init__.py``.
    """
    paths = {
        ".".join(("pencils", *path.relative_to(root).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in sorted(root.rglob("*.py"))
    }
    graph = {}
    for name, path in paths.items():
        targets = set()
        for _, imported, _, _ in imports(path, root):
            target = imported if imported in paths else imported.rpartition(".")[0]
            targets |= {target} & paths.keys()
        graph[name] = targets - {name}
    return graph


def circles(root):
    """List groups of files that import each other in a circle."""
    graph = file_graph(root)
    reached = {name: reachable(graph, name) for name in graph}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }
    return sorted(sorted(group) for group in groups)


def reachable(graph, start):
    """Collect the files that a file imports, directly or through others."""
    found, waiting = set(), list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


def test_imports_of_pencils_point_down():
    assert any(PENCILS.rglob("*.py"))
    assert violations(PENCILS) == []
    # No files of pencils import each other in a circle.
    assert circles(PENCILS) == []


def test_simmpi_imports_nothing_of_pencils():
    assert any(SIMMPI.rglob("*.py"))
    found = [
        (path.name, name)
        for path in SIMMPI.rglob("*.py")
        for _, name, _, _ in imports(path, SIMMPI, "simmpi")
        if name.partition(".")[0] == "pencils"
    ]
    assert found == []
    assert [path for path in SIMMPI.rglob("*.py") if "import pencils" in path.read_text()] == []
    # Pencils names simmpi at its door only.
    users = {
        path.relative_to(PENCILS)
        for path in PENCILS.rglob("*.py")
        for _, name, _, _ in imports(path, PENCILS)
        if name.partition(".")[0] == "simmpi"
    }
    assert users
    assert {str(path) for path in users if path.parts[0] not in SIMMPI_USERS} <= SIMMPI_USERS


TYPING = "if TYPE_CHECKING:\n    "

GOOD = {
    "__init__.py": "from pencils.pencil import Pencil",
    "errors.py": "import numpy",
    "layout/__init__.py": "from . import box",
    "layout/box.py": "from ..errors import PencilsError\nfrom .grid import Grid",
    "layout/grid.py": "import math",
    "comm/mpi.py": "from mpi4py import MPI",
    "comm/agree.py": "from pencils.comm.mpi import MPI\nfrom pencils import errors",
    "pencil.py": "if TYPE_CHECKING:\n    import h5py\nfrom pencils.comm.agree import x",
    "array/base.py": "from pencils.array import numpy_api\nfrom pencils.pencil import Pencil",
    "fft.py": "import scipy.fft, mpi4py_fft\nfrom pencils.array import base",
    "fft_plan.py": "import scipy.fft",
    "tools/run.py": "import pencils\ndef info():\n    import h5py, mpi4py.MPI",
}


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_sound_tree_passes(tmp_path):
    sound = tree(tmp_path, GOOD)
    assert violations(sound) == []
    assert circles(sound) == []


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("layout/box.py", "import pencils.comm.agree", "comm is not below layout"),
        ("layout/box.py", "from ..array import PencilArray", "array is not below layout"),
        ("layout/box.py", "from .. import array", "array is not below layout"),
        ("layout/box.py", "from pencils import Pencil", "__init__ is not below layout"),
        ("layout/box.py", "import pencils", "__init__ is not below layout"),
        ("layout/box.py", "from mpi4py.MPI import COMM_WORLD", "mpi4py belongs elsewhere"),
        ("comm/agree.py", "from mpi4py import MPI", "mpi4py belongs elsewhere"),
        ("pencil.py", "if TYPE_CHECKING:\n    from mpi4py import MPI", "mpi4py belongs elsewhere"),
        ("pencil.py", "def f():\n    from .array import x", "array is not below pencil"),
        ("pencil.py", "if TYPE_CHECKING:\n    from .array import x", "array is not below pencil"),
        ("pencil.py", "if TYPE_CHECKING:\n    x = 1\nelse:\n    import mpi4py", "mpi4py belongs"),
        ("pencil.py", "def f():\n    import h5py", "h5py belongs elsewhere"),
        ("pencil.py", "try:\n    import matplotlib.pyplot\nexcept ImportError: ...", "belongs"),
        ("array/base.py", "import pencils.indexer", "indexer is not below array"),
        ("array/base.py", "def f():\n    import pencils.indexer", "indexer is not below array"),
        ("halo.py", "from pencils import indexer", "indexer is not below halo"),
        ("indexer.py", "from scipy import fft", "scipy belongs elsewhere"),
        ("tools/run.py", "import h5py", "h5py belongs elsewhere"),
        ("novelty.py", "", "novelty has no place in HEIGHT"),
    ],
)
def test_an_arrow_that_points_up_fails(tmp_path, name, text, complaint):
    extra = {"halo.py": "", "indexer.py": ""}
    found = violations(tree(tmp_path, GOOD | extra | {name: text}))
    assert len(found) == 1
    assert found[0].startswith(name)
    assert complaint in found[0]


@pytest.mark.parametrize(
    "text",
    ["import pencils.layout.box", "def f():\n    from .box import x", TYPING + "from . import box"],
)
def test_files_that_import_each_other_fail(tmp_path, text):
    found = circles(tree(tmp_path, GOOD | {"layout/grid.py": text}))
    assert found == [["pencils.layout.box", "pencils.layout.grid"]]
