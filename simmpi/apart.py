"""What a program expects to have for itself, and the ranks of one process share in Python.

A process of MPI has its own modules, ``sys.argv``, ``sys.path`` and global random numbers. Here
each simulated rank gets its own ones: modules of the program are imported once for each rank;
those of Python, of `simmpi.process.libraries` and of installed packages are shared, as are the
working directory, the environment and the module ``random``.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
from numpy.random import mtrand

from simmpi.frames import is_installed, is_library
from simmpi.process import keep_apart

_LOCKS = vars(importlib._bootstrap)
_NAMES: list[tuple[Any, str]] = [
    (sys.modules, "__main__"),
    (vars(sys), "argv"),
    (vars(sys), "path"),
    (_LOCKS, "_module_locks"),
]


class _Modules:
    """The modules of the program, which ranks exchange in ``sys.modules``; its only entry."""

    def __init__(self) -> None:
        self._shared = set(sys.modules)
        self._own: dict[str, ModuleType] = {}
        self._count = len(sys.modules)

    def __getitem__(self, name: str) -> dict[str, ModuleType]:
        if len(sys.modules) != self._count:
            new = {each: sys.modules[each] for each in sys.modules.keys() - self._shared}
            self._own = {each: module for each, module in new.items() if _is_of_program(module)}
            self._shared |= new.keys() - self._own.keys()
            self._count = len(sys.modules)
        return self._own

    def __setitem__(self, name: str, own: dict[str, ModuleType]) -> None:
        for each in self._own:
            sys.modules.pop(each, None)
        sys.modules.update(own)
        self._own, self._count = dict(own), len(sys.modules)


class _Random:
    """The generator behind the functions of ``numpy.random``; its only entry."""

    def __getitem__(self, name: str) -> Any:
        return mtrand.get_bit_generator()

    def __setitem__(self, name: str, generator: Any) -> None:
        mtrand.set_bit_generator(generator)


def _is_of_program(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return hasattr(module, "__path__")  # a folder without __init__.py
    source = file.endswith((".py", ".pyc"))
    return source and not is_library(file) and not is_installed(file)


_apart: list[_Modules] = []


def keep_programs_apart() -> None:
    """Have all ranks from now on keep these things apart."""
    if not _apart:
        _apart.append(_Modules())
        for names, name in [*_NAMES, (_apart[0], "own"), (_Random(), "generator")]:
            keep_apart(names, name)


def begin(*entropy: int) -> None:
    """Begin a program on the rank that runs, whose random numbers depend on `entropy`."""
    sys.argv = list(sys.argv)
    sys.path = list(sys.path)
    # A rank may wait for others while it imports a module that these import, too.
    _LOCKS["_module_locks"] = {}
    mtrand.set_bit_generator(np.random.MT19937(entropy))
