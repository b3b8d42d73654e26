"""N-dimensional grids distributed over MPI processes: global in meaning, local in storage."""

import re as _re
from importlib import import_module as _import_module

import pencils.comm.mpi as _mpi  # noqa: F401 - starts MPI, or what stands in for it

__version__ = "0.1.0"


def _find_homes() -> dict[str, str]:
    """Read from ``__init__.pyi`` which module defines each public name."""
    path = __file__.rpartition(".")[0] + ".pyi"
    stub = __spec__.loader.get_data(path).decode()  # from an archive, too
    found = _re.findall(r"^from (\S+) import (\w+) as \2\b", stub, _re.MULTILINE)
    return {name: home for home, name in found}


_HOMES = _find_homes()
_FOLDERS = {__name__, f"{__name__}.tools"}  # of modules that are public themselves
# What a star does not import: names that hide others, and modules.
_NOT_STARRED = {"fft", "graph", "io", "open", "plot"}

__all__ = sorted({*_HOMES, "__version__"} - _NOT_STARRED)  # noqa: PLE0605 - read from the stub


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pencils' has no attribute {name!r}")
    home = _HOMES[name]
    if home in _FOLDERS:
        return _import_module(f"{home}.{name}")
    value = globals()[name] = getattr(_import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
