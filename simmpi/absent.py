"""What mpi4py has and simulated ranks do not: each name raises an error that says so."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

_HANDLES = "fromhandle fromint toint f2py py2f"
_METHODS = {
    "Comm": f"""
        {_HANDLES} handle Spawn Spawn_multiple Accept Connect Join Create_intercomm
        Create_from_group Create_from_groups Psend_init Precv_init Revoke Is_revoked Shrink Ishrink
        Agree Iagree Get_failed Ack_failed Attach_buffer Detach_buffer Flush_buffer Iflush_buffer
        Create_errhandler Call_errhandler
    """,
    "Intracomm": "Cart_map Graph_map",
    "Intercomm": "Get_remote_group Get_remote_size Merge remote_group remote_size",
    "Datatype": f"""
        {_HANDLES} Create_darray Create_f90_complex Create_f90_integer Create_f90_real Match_size
        Create_keyval Free_keyval Get_attr Set_attr Delete_attr Get_contents Get_envelope contents
        envelope Get_value_index Pack_external Pack_external_size Unpack_external
    """,
    "Group": f"{_HANDLES} handle Create_from_session_pset",
    "Info": f"{_HANDLES} handle Create_env",
    "Errhandler": f"{_HANDLES} handle",
    "Message": f"{_HANDLES} handle free",
    "Op": f"{_HANDLES} handle",
    "Request": f"""
        {_HANDLES} handle Parrived Pready Pready_list Pready_range
        Get_status_all Get_status_any Get_status_some
        get_status_all get_status_any get_status_some
    """,
    "Status": "f2py py2f tomemory",
    "Win": f"{_HANDLES} handle Create_errhandler Call_errhandler",
    "Pickle": "dumps_oob loads_oob",
}


def refuse(name: str) -> NoReturn:
    """Raise for a name that is not simulated."""
    raise NotImplementedError(f"{name} is not simulated; run this program with mpiexec")


class AbsentMethod:
    """A method or property of a class; taking it from an object of the class raises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Callable[..., Any]:
        return Absent(self._name) if instance is None else refuse(self._name)


class Absent:
    """A function or class of the module; using it raises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raise."""
        refuse(self._name)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # which Python looks up by itself
            raise AttributeError(attribute)
        return refuse(self._name)

    def __instancecheck__(self, instance: object) -> bool:
        return False  # there are no objects of it

    def __bool__(self) -> bool:
        return False  # as null handles


def add_absent_methods(classes: dict[str, type]) -> None:
    """Give classes what they lack."""
    for name, methods in _METHODS.items():
        for method in methods.split():
            setattr(classes[name], method, AbsentMethod(f"MPI.{name}.{method}"))


def absent_names(real: ModuleType, names: dict[str, Any]) -> dict[str, Absent]:
    """Stand-ins for what a module like ``mpi4py.MPI`` has besides some names, but for numbers."""
    return {
        name: Absent(f"MPI.{name}")
        for name, value in vars(real).items()
        if not name.startswith("__") and name not in names and not isinstance(value, int)
    }
