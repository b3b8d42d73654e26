"""Simulated ranks: an MPI in one Python process, in pure Python and NumPy.

Every simulated rank is a thread, and exactly one of them runs at a time. This package needs no MPI
library. Begin reading with `simulation`, then `scheduler`; `communicators` has the methods that
programs call. In folders: `types` (which bytes a message has), `messages`, `collectives`,
`windows`, and `pytest_plugin`.
"""

from importlib import import_module as _import_module

# Imported when it is first used: pytest imports this package at each start.
_HOMES = {
    **dict.fromkeys(("Simulation", "point", "simulate"), "simulation"),
    **dict.fromkeys(("DeadlockError", "MismatchError", "RankKilledError"), "errors"),
    **dict.fromkeys(("SimulationError", "StepLimitError", "UsageError"), "errors"),
    "Fault": "ranks",
    "load_ipython_extension": "notebook",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'simmpi' has no attribute {name!r}")
    value = globals()[name] = getattr(_import_module(f"simmpi.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
