"""Plugin of mypy: NumPy functions and ufuncs of fields give fields.

The stubs of NumPy know arrays only. With this line in the section ``[tool.mypy]`` of
``pyproject.toml``, mypy finds that ``a * 2 + np.sin(a)`` is a `PencilArray`::

    plugins = ["pencils.tools.mypy_plugin"]
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.plugin import FunctionContext, MethodContext, Plugin
from mypy.types import AnyType, Instance, ProperType, Type, UnionType, get_proper_type

_FIELD = "pencils.array.pencil_array.PencilArray"
_UFUNCS = ("numpy._typing._ufunc._UFunc_Nin1_Nout1.", "numpy._typing._ufunc._UFunc_Nin2_Nout1.")
_ARRAY = "numpy.ndarray.__"  # operators with an array on the left
# Functions that give a field where an argument is one.
_NAMES = """
where clip round around real imag angle nan_to_num sinc fix copy astype isclose
roll flip fliplr flipud sort argsort unwrap diff trapezoid cross einsum
pad tile repeat
cumsum cumprod cumulative_sum cumulative_prod nancumsum nancumprod
searchsorted digitize isin select piecewise polyval zeros_like ones_like empty_like full_like
"""
_FUNCTIONS = frozenset(_NAMES.split())


class FieldPlugin(Plugin):
    """Types of calls with fields."""

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        """Return what finds the type of a call of a ufunc, or of an operator of an array."""
        is_call = fullname.endswith(".__call__") and fullname.startswith(_UFUNCS)
        return _field_if_any if is_call or fullname.startswith(_ARRAY) else None

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """Return what finds the type of a call of a function of NumPy."""
        package, _, name = fullname.partition(".")
        is_known = package == "numpy" and name.rpartition(".")[2] in _FUNCTIONS
        return _field_if_any if is_known else None


def _field_if_any(context: FunctionContext | MethodContext) -> Type:
    """Return the type of the first argument that is a field; else what the stubs give."""
    for given in context.arg_types:
        for one in given:
            for kind in _members(one):
                if isinstance(kind, Instance) and kind.type.has_base(_FIELD):
                    return kind
    return context.default_return_type


def _members(kind: Type) -> list[ProperType]:
    """List the types of a union, or a type itself; those of the elements of a sequence."""
    proper = get_proper_type(kind)
    if isinstance(proper, UnionType):
        return [member for item in proper.items for member in _members(item)]
    if isinstance(proper, Instance) and proper.type.fullname in {"builtins.list", "builtins.tuple"}:
        return [member for item in proper.args for member in _members(item)]
    return [] if isinstance(proper, AnyType) else [proper]


def plugin(version: str) -> type[Plugin]:  # noqa: ARG001 - mypy passes it
    """Return the plugin, as mypy asks for it."""
    return FieldPlugin
