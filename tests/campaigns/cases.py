"""All cases: for each, a function of a `World` that returns the collective call to test.

The call checks its results by NumPy, and may be repeated, also after a failure: what it changes, it
sets first. It needs no rank to be without a block.
"""

import importlib
from collections.abc import Callable
from functools import partial

CASES: dict[str, Callable] = {}
FILES: dict[str, Callable] = {}  # of them, those that write files: see `cases_files`
PARTS: set[str] = set()  # of them, those in which parts of the ranks make calls of their own
TIMED: set[str] = set()  # of them, those that make other calls in each run, as time tells


def case(function):
    """Add a case."""
    CASES[function.__name__] = function
    return function


def each(values):
    """Add a case for each of the values, by name."""

    def add(function):
        for name, value in values.items():
            CASES[f"{function.__name__} {name}"] = partial(function, value=value)
        return function

    return add


def methods(*names):
    return {name: {"method": name} for name in names}


def load_cases():
    """Import all files of cases, and return the table."""
    for name in ("fields", "transposes", "halos", "points", "lines", "more", "files"):
        importlib.import_module(f"cases_{name}")
    return CASES
