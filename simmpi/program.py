"""Run a program as Python itself would: the same ``sys.argv``, ``sys.path`` and ``__main__``.

`add_program` is the part of the command line that names the program.
"""

from __future__ import annotations

import argparse
import builtins
import importlib.util
import linecache
import pkgutil
import runpy
import sys
from functools import partial
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Literal, cast

Kind = Literal["file", "module", "code"]

_STRING = "<string>"
_NO_PROGRAM = "no program is given; allowed are a file, -m module or -c code; add one at the end"


def add_program(parser: argparse.ArgumentParser) -> None:
    """Add ``[--all-frames] (app.py | -m module | -c code) [args ...]``: `kind` and `program`."""
    parser.add_argument(
        "--all-frames",
        action="store_true",
        help="show the frames of the library in tracebacks, too",
    )
    rest = argparse.REMAINDER
    parser.set_defaults(kind="file", program=[])
    add = partial(parser.add_argument, dest="program", nargs=rest, action=_Program)
    add("-m", metavar="module", help="run a module")
    add("-c", metavar="code", help="run Python code")
    parser.add_argument(
        "program", nargs=rest, action=_Program, metavar="app.py", help="file, and its arguments"
    )


class _Program(argparse.Action):
    """Add to the words of the program; the positional argument is parsed last, even if empty."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        namespace.program = [*namespace.program, *values]
        if option is not None:
            namespace.kind = {"-m": "module", "-c": "code"}[option]
        elif not namespace.program:
            parser.error(_NO_PROGRAM)


class NoProgramError(Exception):
    """There is no such program."""


def execute(kind: Kind, name: str, *args: str) -> None:
    """Run the program `name`: a path, the name of a module as after ``python -m``, or code."""
    if kind == "module":
        _check_module(name)
        sys.argv[:] = ["-m", *args]  # runpy replaces the first
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    if kind == "code":
        sys.argv[:] = ["-c", *args]
        folder, names = "", dict[str, object]()
        lines = name.splitlines(keepends=True)
        linecache.cache[_STRING] = len(name), None, lines, _STRING  # shown in tracebacks
        code = compile(name, _STRING, "exec", dont_inherit=True)
    else:
        sys.argv[:] = [name, *args]
        path = str(Path(name).absolute())
        finder = pkgutil.get_importer(path)
        code, names = _script(name, path) if finder is None else _archive(name, finder)
        folder = str(Path(path).resolve().parent) if finder is None else path
    if not sys.flags.safe_path:
        sys.path[0] = folder
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__.update(names, __builtins__=builtins)
    exec(code, main.__dict__)  # noqa: S102 - the purpose of this command


def _script(name: str, path: str) -> tuple[CodeType, dict[str, object]]:
    """Compile a file, or read one that was compiled; return names of its module, too."""
    compiled = path.endswith(".pyc")
    loader = (SourcelessFileLoader if compiled else SourceFileLoader)("__main__", path)
    try:
        data = loader.get_data(path)
    except OSError as error:
        raise NoProgramError(f"cannot open {name}: {error.strerror}") from None
    code = (
        loader.get_code("__main__") if compiled else compile(data, path, "exec", dont_inherit=True)
    )
    return cast("CodeType", code), {"__file__": path, "__loader__": loader, "__cached__": None}


def _archive(name: str, finder: Any) -> tuple[CodeType, dict[str, object]]:
    """Find ``__main__.py`` in a folder or a zip file."""
    spec = finder.find_spec("__main__")
    if spec is None or spec.loader is None:
        raise NoProgramError(f"cannot run {name}: there is no __main__.py in it")
    names = {"__file__": spec.origin, "__loader__": spec.loader, "__spec__": spec}
    return spec.loader.get_code("__main__"), {**names, "__package__": ""}


def _check_module(name: str) -> None:
    """Check that a module can be run; an import that fails inside it raises as it is."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        spec = None
    if spec is None:
        raise NoProgramError(f"no module named {name} that can be run")
