"""N-dimensional grids distributed over MPI processes: global in meaning, local in storage."""

from importlib import import_module as _import_module
from sys import modules as _modules

import pencils.comm.mpi as _mpi  # noqa: F401 - starts MPI, or what stands in for it
from pencils.array import PROVIDERS as _PROVIDERS

__version__ = "0.1.0"


# The public names, by the module that defines them, which is imported when a name of it is used.
# `__init__.pyi` has the same ones, for type checkers.
_LAZY = {
    "pencils": "dap debug errors fft functions graph halo indexer interop io layout lines logs "
    "random solvers",
    "pencils.array.creation": (
        "empty empty_like from_function full full_like ones ones_like zeros zeros_like"
    ),
    "pencils.array.pencil_array": "PencilArray",
    "pencils.comm.pool": "memory",
    "pencils.comm.progress": "ProgressThread progress",
    "pencils.distribute.gather": "gather",
    "pencils.distribute.localgrid": "localgrid",
    "pencils.distribute.partition": "partition",
    "pencils.graph.fused": "fused",
    "pencils.halo": "HaloExchange exchange_halos",
    "pencils.indexer": "GlobalIndexer GlobalMultiIndexer",
    "pencils.io": "CheckpointSeries TimeSeries load open save verify",
    "pencils.lines.derivative": "derivative",
    "pencils.pencil": "Pencil",
    "pencils.tools": "planning plot recovery testing",
    "pencils.tools.planning.candidates": "plan",
    "pencils.tools.profiling": "profile",
    "pencils.transposition.transpose": "alias transpose",
    "pencils.transposition.plan": "Transposition",
    "pencils.tools.planning.tuning": "tune",
    "simmpi": "simulate",
}
_HOMES = {name: home for home, names in _LAZY.items() for name in names.split()}
# Where the functions are that fields use of layers above `array`.
_PROVIDERS |= {
    "exchange_halo": "pencils.halo.kept",
    "prepare_kept": "pencils.halo.kept",
    "fill_boundary": "pencils.halo.boundary",
    "assign": "pencils.transposition.transpose",
    "whole": "pencils.transposition.transpose",
    "take_once": "pencils.indexer.one_shot",
    "put_once": "pencils.indexer.one_shot",
    "export": "pencils.dap.exports",
    "import_onto": "pencils.dap.imports",
    "UnsupportedError": "pencils.dap.findings",
    "FUNCTIONS": "pencils.functions",
    "explain_attribute": "pencils.functions.refused",
    "explain_function": "pencils.functions.refused",
    "explain_method": "pencils.functions.refused",
}
_FOLDERS = {__name__, f"{__name__}.tools"}  # of modules that are public themselves
# What a star does not import: names that hide others, and most modules.
_MODULES = {name for name, home in _HOMES.items() if home in _FOLDERS}
_NOT_STARRED = _MODULES - {"dap", "debug", "random", "testing"} | {"open"}

__all__ = sorted({*_HOMES, "__version__"} - _NOT_STARRED)  # noqa: PLE0605 - made of the table


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        fields = _modules.get("pencils.array.pencil_array")  # if the program has any
        method = fields and callable(getattr(fields.PencilArray, name, None))
        instead = f"it is a method of fields: write u.{name}()" if method else _explain_word(name)
        text = f"module 'pencils' has no attribute {name!r}"
        raise AttributeError(f"{text}: {instead}" if instead else text)
    home = _HOMES[name]
    if home in _FOLDERS:
        return _load(f"{home}.{name}")
    value = globals()[name] = getattr(_load(home), name)
    return value


def _load(module: str) -> object:
    """Import a module; a profile records it, if one is on."""
    recording = _modules.get("pencils.comm.recording")
    if recording is None:
        return _import_module(module)
    return recording.timed("import", _import_module, module)


def _explain_word(name: str) -> str:
    """Return the text for a name of another library or of NumPy; empty if it is none."""
    import numpy as np

    from pencils.errors import missing

    of_numpy = f"write numpy.{name}" if name in np.__all__ else ""
    return missing.by_word(missing.MODULE).get(name, of_numpy)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
