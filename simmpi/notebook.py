"""The magic ``%%simulate`` of notebooks, which runs a cell on simulated ranks."""

from __future__ import annotations

import argparse
import ast
import builtins
import shlex
import sys
from collections.abc import Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any, NamedTuple, NoReturn

from simmpi.communicators import COMM_SELF, COMM_WORLD
from simmpi.process import keep_apart
from simmpi.simulation import import_mpi, simulate

_SIMULATED = COMM_WORLD, COMM_SELF


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic ``%%simulate`` to IPython; ``%load_ext simmpi`` calls this.

    ``%%simulate -n 4`` runs the cell on 4 simulated ranks; ``--seed``, ``--nodes``, ``--max-steps``
    and ``--no-strict`` are as in `simmpi.simulate`. Each rank has its own copy of the variables of
    the notebook, but not of the objects. Afterwards variables that rank 0 has set are those of the
    notebook, and the value of the last line on rank 0 is displayed. Fields of the cell then hold
    the block of rank 0, and cannot communicate any more: `gather` in the cell what is needed.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
        The running IPython.
    """

    def run_cell(line: str, text: str) -> Any:
        options = vars(_parser().parse_args(shlex.split(line)))
        cell = _compiled(shell, text)
        mpi = import_mpi()
        real = mpi.COMM_WORLD, mpi.COMM_SELF
        _replace(shell.user_ns, real, _SIMULATED)  # also for functions of earlier cells
        try:
            names, value = simulate(options.pop("n"), _run, cell, shell.user_ns, **options)[0]
            shell.user_ns.update(names)
        finally:
            _replace(shell.user_ns, _SIMULATED, real)
        return value

    keep_apart(sys.modules, "__main__")
    shell.register_magic_function(run_cell, "cell", "simulate")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"%%simulate: {message}; {self.format_usage().strip()}")


def _parser() -> _Parser:
    parser = _Parser("%%simulate", add_help=False, allow_abbrev=False)
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--no-strict", dest="strict", action="store_false")
    return parser


class _Cell(NamedTuple):
    """A compiled cell; its last line apart, if that is an expression."""

    body: CodeType
    last: CodeType | None


def _compiled(shell: Any, text: str) -> _Cell:
    source = shell.transform_cell(text)
    name = shell.compile.cache(source)  # tracebacks show the lines of the cell
    tree: Any = ast.parse(source, name)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
        last = compile(ast.Expression(tree.body.pop().value), name, "eval")
    return _Cell(compile(tree, name, "exec"), last)


def _replace(variables: dict[str, Any], these: Sequence[Any], those: Sequence[Any]) -> None:
    """Set variables that are one of some objects to the corresponding one of others."""
    for name, value in list(variables.items()):
        for this, other in zip(these, those, strict=True):
            if value is this:
                variables[name] = other


def _run(cell: _Cell, given: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Run a cell on one rank; return the variables that it has set, and the value of its end."""
    main = sys.modules["__main__"] = ModuleType("__main__")  # pickle looks for classes here
    main.__dict__.update(given, __builtins__=builtins)
    exec(cell.body, main.__dict__)  # noqa: S102 - the purpose of this magic
    result = None if cell.last is None else eval(cell.last, main.__dict__)  # noqa: S307 - as above
    missing = object()
    new = {
        name: value
        for name, value in main.__dict__.items()
        if given.get(name, missing) is not value and name != "__builtins__"
    }
    return new, result
