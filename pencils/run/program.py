"""Run a program as Python itself would: the same ``sys.argv``, ``sys.path`` and ``__main__``."""

from __future__ import annotations

import builtins
import importlib.util
import linecache
import pkgutil
import runpy
import sys
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Literal, cast

Kind = Literal["file", "module", "code"]

_STRING = "<string>"


class NoProgramError(Exception):
    """There is no such program."""


@dataclass(frozen=True, slots=True)
class UserProgram:
    """What a user wants to run.

    Parameters
    ----------
    kind : {'file', 'module', 'code'}
        What `name` is: a path, the name of a module as after ``python -m``, or the code itself.
    name : str
        The program.
    args : tuple of str
        Its arguments.
    """

    kind: Kind
    name: str
    args: tuple[str, ...]

    def execute(self) -> None:
        """Run the program.

        Raises
        ------
        NoProgramError
            If there is no such file or module.
        BaseException
            What the program raises.
        """
        if self.kind == "module":
            self._run_module()
        elif self.kind == "code":
            self._run_code()
        else:
            self._run_file()

    def _run_module(self) -> None:
        _check_module(self.name)
        sys.argv[:] = ["-m", *self.args]  # runpy replaces the first
        runpy.run_module(self.name, run_name="__main__", alter_sys=True)

    def _run_code(self) -> None:
        sys.argv[:] = ["-c", *self.args]
        _set_first_path("")
        lines = self.name.splitlines(keepends=True)
        linecache.cache[_STRING] = len(self.name), None, lines, _STRING  # shown in tracebacks
        code = compile(self.name, _STRING, "exec", dont_inherit=True)
        exec(code, _new_main().__dict__)  # noqa: S102 - what the user asks for

    def _run_file(self) -> None:
        sys.argv[:] = [self.name, *self.args]
        path = str(Path(self.name).absolute())
        finder = pkgutil.get_importer(path)
        code, names = _script(self.name, path) if finder is None else _archive(self.name, finder)
        _set_first_path(str(Path(path).resolve().parent) if finder is None else path)
        exec(code, _new_main(**names).__dict__)  # noqa: S102 - what the user asks for


def _script(name: str, path: str) -> tuple[CodeType, dict[str, object]]:
    """Compile a file, or read one that was compiled; return names of its module, too."""
    compiled = path.endswith(".pyc")
    loader = (SourcelessFileLoader if compiled else SourceFileLoader)("__main__", path)
    try:
        data = loader.get_data(path)
    except OSError as error:
        msg = f"cannot open {name}: {error.strerror}"
        raise NoProgramError(msg) from None
    code = (
        loader.get_code("__main__") if compiled else compile(data, path, "exec", dont_inherit=True)
    )
    return cast("CodeType", code), {"__file__": path, "__loader__": loader, "__cached__": None}


def _archive(name: str, finder: Any) -> tuple[CodeType, dict[str, object]]:
    """Find ``__main__.py`` in a folder or a zip file."""
    spec = finder.find_spec("__main__")
    if spec is None or spec.loader is None:
        msg = f"cannot run {name}: there is no __main__.py in it"
        raise NoProgramError(msg)
    names = {"__file__": spec.origin, "__loader__": spec.loader, "__spec__": spec}
    return spec.loader.get_code("__main__"), {**names, "__package__": ""}


def _new_main(**names: object) -> ModuleType:
    """Put an empty module in the place of ``__main__``."""
    main = ModuleType("__main__")
    main.__dict__.update(names, __builtins__=builtins)
    sys.modules["__main__"] = main
    return main


def _set_first_path(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _check_module(name: str) -> None:
    """Tell a missing program from a module that is missing inside it."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        spec = None
    if spec is None:
        msg = f"no module named {name} that can be run"
        raise NoProgramError(msg)
