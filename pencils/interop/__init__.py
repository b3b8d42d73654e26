"""Fields and pencils of other libraries, on the same memory: one module for each library."""

from importlib import import_module
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if name not in {"mpi4py_fft", "petsc"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
