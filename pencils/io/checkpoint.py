"""What `load` returns: fields by name, and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pencils.array import PencilArray


class Checkpoint(Mapping[str, PencilArray]):
    """The fields that were loaded from a file, by name, and its attributes.

    Parameters
    ----------
    path : str
        The file.
    fields : mapping of str to PencilArray
        The fields.
    attrs : mapping of str to object
        The attributes of the file.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.ones(pencils.Pencil((4, 6)))
    >>> Checkpoint("run.h5", {"u": u}, {"step": 3})
    <Checkpoint of 1 field from run.h5
      u: (4, 6) float64
      attrs: step=3>
    """

    __slots__ = ("_attrs", "_fields", "_path")

    def __init__(
        self, path: str, fields: Mapping[str, PencilArray], attrs: Mapping[str, Any]
    ) -> None:
        self._path = path
        self._fields = dict(fields)
        self._attrs = dict(attrs)

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the file: scalars, strings and small arrays, the same on every rank."""
        return self._attrs

    @property
    def path(self) -> str:
        """The file that was read."""
        return self._path

    def __getitem__(self, name: str) -> PencilArray:
        if name not in self._fields:
            msg = f"{name!r} was not loaded; there is {', '.join(self._fields) or 'nothing'}"
            raise KeyError(msg)
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __repr__(self) -> str:
        plural = "" if len(self) == 1 else "s"
        lines = [f"<Checkpoint of {len(self)} field{plural} from {self._path}"]
        lines += [f"  {name}: {field.shape} {field.dtype}" for name, field in self.items()]
        if self._attrs:
            attrs = (f"{name}={value!s:.60}" for name, value in self._attrs.items())
            lines.append(f"  attrs: {', '.join(attrs)}")
        return "\n".join(lines) + ">"
