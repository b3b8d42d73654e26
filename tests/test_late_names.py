"""Names of MPI are looked up when they are used: a simulation replaces them after the import."""

import ast
from pathlib import Path

import pytest

PENCILS = Path(__file__).parents[1] / "pencils"

# These bodies run later, or never.
LATER = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def evaluated(node):
    """Yield all nodes below one that Python evaluates when it imports a file.

    Annotations are none of them: every file begins with ``from __future__ import annotations``.
    """
    if isinstance(node, LATER):
        below = [*node.args.defaults, *node.args.kw_defaults, *getattr(node, "decorator_list", [])]
    elif isinstance(node, ast.AnnAssign):
        below = [node.target, node.value]
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        below = node.orelse
    else:
        below = ast.iter_child_nodes(node)
    for each in below:
        if each is not None:
            yield each
            yield from evaluated(each)


def captured(text):
    """List the lines that take a name of MPI, and keep it, when the file is imported."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in evaluated(ast.parse(text))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"MPI", "mpi4py.MPI"}
    ]


def test_no_file_keeps_a_name_of_mpi():
    files = sorted(PENCILS.rglob("*.py"))
    assert files
    found = {path.relative_to(PENCILS).as_posix(): captured(path.read_text()) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}
    # Annotations are not evaluated.
    late = [path for path in PENCILS.rglob("*.py") if "MPI." in path.read_text()]
    assert late
    assert [p for p in late if "from __future__ import annotations" not in p.read_text()] == []


@pytest.mark.parametrize(
    "text",
    [
        "kind = MPI.Intracomm",
        "class Topology:\n    kind: type = MPI.Intracomm",
        "def reduce(op=MPI.SUM): ...",
        "def reduce(*, op=MPI.SUM): ...",
        "reduce = lambda op=MPI.SUM: op",
        "Requests = list[MPI.Request]",
        "class Comm(mpi4py.MPI.Comm): ...",
        "@MPI.decorate\ndef f(): ...",
        "if x:\n    table = {add: (MPI.SUM, 'd')}",
        "if TYPE_CHECKING:\n    pass\nelse:\n    x = MPI.SUM",
    ],
)
def test_a_name_that_is_kept_is_found(text):
    assert len(captured(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "def reduce(op: MPI.Op) -> MPI.Op:\n    return MPI.SUM",
        "reduce = lambda: MPI.SUM",
        "x: MPI.Comm = None",
        "if TYPE_CHECKING:\n    Requests = list[MPI.Request]",
    ],
)
def test_a_name_that_is_looked_up_later_is_not(text):
    assert captured(text) == []
