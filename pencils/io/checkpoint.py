"""The result of `load`: fields and values by name, step, time and attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pencils.array.pencil_array import PencilArray


class Checkpoint(Mapping[str, Any]):
    """Fields and values of a file by name, its step, time and attributes.

    Parameters
    ----------
    path : str
        The file.
    contents : mapping of str to object
        Fields, and values, which are the same on all ranks.
    attrs : mapping of str to object
        The attributes of the file.
    step : int, optional
        Number of the time step.
    time : float, optional
        Time of the run.

    Examples
    --------
    >>> import pencils
    >>> u = pencils.ones(pencils.Pencil((4, 6)))
    >>> Checkpoint("run.h5", {"u": u, "dt": 0.1}, {"flow": "box"}, step=3)
    <Checkpoint of 1 field from run.h5, step 3
      u: (4, 6) float64
      dt: 0.1
      attrs: flow='box'>
    """

    __slots__ = ("_attrs", "_contents", "_path", "_step", "_time")

    def __init__(
        self,
        path: str,
        contents: Mapping[str, Any],
        attrs: Mapping[str, Any],
        *,
        step: int | None = None,
        time: float | None = None,
    ) -> None:
        self._path = path
        self._contents = dict(contents)
        self._attrs = dict(attrs)
        self._step = step
        self._time = time

    @property
    def step(self) -> int | None:
        """Number of the time step; None if the file has none."""
        return self._step

    @property
    def time(self) -> float | None:
        """Time of the run; None if the file has none."""
        return self._time

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the file: scalars, strings and small arrays, the same on every rank."""
        return self._attrs

    @property
    def path(self) -> str:
        """The file that was read."""
        return self._path

    def __getitem__(self, name: str) -> Any:
        if name not in self._contents:
            msg = f"{name!r} was not loaded; there is {', '.join(self._contents) or 'nothing'}"
            raise KeyError(msg)
        return self._contents[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents)

    def __len__(self) -> int:
        return len(self._contents)

    def __contains__(self, name: object) -> bool:
        return name in self._contents

    def __repr__(self) -> str:
        fields = sum(isinstance(thing, PencilArray) for thing in self.values())
        plural = "" if fields == 1 else "s"
        when = "" if self._step is None else f", step {self._step}"
        when += "" if self._time is None else f", time {self._time}"
        lines = [f"<Checkpoint of {fields} field{plural} from {self._path}{when}"]
        lines += [f"  {name}: {_describe(thing)}" for name, thing in self.items()]
        if self._attrs:
            attrs = (f"{name}={_describe(value)}" for name, value in self._attrs.items())
            lines.append(f"  attrs: {', '.join(attrs)}")
        return "\n".join(lines) + ">"


def _describe(thing: object) -> str:
    if isinstance(thing, PencilArray) or (isinstance(thing, np.ndarray) and thing.ndim):
        return f"{thing.shape} {thing.dtype}"
    if isinstance(thing, str):
        return f"{thing!r:.60}"
    return f"{thing!s:.60}"
