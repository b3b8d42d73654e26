"""Fields: `PencilArray`, its base class, and what works on fields of the same pencil.

May import errors, layout, comm, pencil and plans. `base.Field` is a pencil with the block of this
rank; indexing, reductions, stencils and NumPy functions work on it; `pencil_array` composes them.
Begin with `base`, then `pencil_array`.

Some methods of fields move data by means of higher layers: halos, transposes, points. No file here
imports these layers: `pencils/__init__.py`, which is above all, states in `PROVIDERS` where the
functions are, and `provided` imports them when a method is called.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

# By the name of a function of a higher layer that fields use: the module that defines it.
PROVIDERS: dict[str, str] = {}


@cache
def provided(name: str) -> Any:
    """Return a function, or a table, that a higher layer provides for fields."""
    from pencils.comm.recording import timed

    return getattr(timed("import", import_module, PROVIDERS[name]), name)
