"""The magic ``%%simulate`` of notebooks, which runs a cell on simulated ranks."""

from __future__ import annotations

import argparse
import ast
import builtins
import shlex
import sys
from collections.abc import Mapping
from types import CodeType, ModuleType
from typing import Any, NoReturn

from pencils.errors import ArgumentError
from pencils.process import keep_apart
from pencils.simulation import simulate


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic ``%%simulate`` to IPython; ``%load_ext pencils`` calls this.

    ``%%simulate -n 4`` runs the cell on 4 simulated ranks, ``--seed``, ``--nodes`` and so on as in
    `pencils.simulate`. Each rank has a copy of the variables of the notebook: it may assign names
    without effect on other ranks, but objects are not copied. After the cell, names that rank 0 has
    assigned are those of the notebook, and the value of the last line on rank 0 is displayed.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
        The running IPython.
    """

    def run_cell(line: str, cell: str) -> Any:
        options = vars(_parser().parse_args(shlex.split(line)))
        name = shell.compile.cache(shell.transform_cell(cell))
        parts = _compile(shell.transform_cell(cell), name)
        names, value = simulate(options.pop("n"), _run, shell.user_ns, parts, **options)[0]
        shell.user_ns.update(names)
        return value

    shell.register_magic_function(run_cell, "cell", "simulate")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ArgumentError(f"%%simulate: {message}; {self.format_usage()}")


def _parser() -> _Parser:
    parser = _Parser("%%simulate", add_help=False, allow_abbrev=False)
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--no-strict", dest="strict", action="store_false")
    return parser


def _compile(text: str, name: str) -> tuple[CodeType, CodeType | None]:
    """Compile a cell, and its last line apart if that is an expression."""
    tree: Any = ast.parse(text, name)
    value = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        value = compile(ast.Expression(tree.body.pop().value), name, "eval")
    return compile(tree, name, "exec"), value


def _run(
    given: Mapping[str, Any], parts: tuple[CodeType, CodeType | None]
) -> tuple[dict[str, Any], Any]:
    """Run a cell on one rank; return the names that it has assigned, and the value of it."""
    keep_apart(vars(sys)["modules"], "__main__")
    main = sys.modules["__main__"] = ModuleType("__main__")  # pickle finds classes of the cell
    main.__dict__.update(given, __builtins__=builtins)
    body, last = parts
    exec(body, main.__dict__)  # noqa: S102 - the purpose of this magic
    value = None if last is None else eval(last, main.__dict__)  # noqa: S307 - as above
    new = {
        name: value
        for name, value in main.__dict__.items()
        if name not in given or given[name] is not value
    }
    return new, value
