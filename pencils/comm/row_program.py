"""Row programs: elementwise operations that read and write memory once, compiled or by NumPy.

A program computes values for all points of a block: leaves are views of arrays, instructions are
inner loops of NumPy's ufuncs, and stores write values to arrays. Compiled, the whole program is
executed for a tile of some rows before the next one, so that values between stay in the cache, and
are bit by bit those of NumPy. Without kernels, NumPy executes one instruction after the other.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from pencils.comm.pack import compiled
from pencils.comm.row_builder import Array, Leaf, RowBuilder, Spec
from pencils.comm.row_compiler import Box, Join, RowCompiler
from pencils.comm.row_reduction import end_of

_MOST_ARRAYS, _MOST_AXES = 120, 16  # of the compiled programs
_EXCEPTIONS = {  # by the flags of the compiled kernels, in the order of NumPy
    1: ("divide", "divide by zero"),
    2: ("over", "overflow"),
    4: ("under", "underflow"),
    8: ("invalid", "invalid value"),
}


Arrays = tuple[Array, ...]


class RowProgram:
    """A program for arrays that look like those it was made with, and share memory alike.

    `join` makes loops of instructions; if there is none, or it makes none, formulas are.
    """

    def __init__(self, builder: RowBuilder, join: Join | None = None) -> None:
        compiler = RowCompiler(builder, join)
        leaves = builder.leaves
        self._axes = compiler.axes
        self.slowest = compiler.axes.slowest
        self._detours = [(_reader(leaves[one]), number) for one, number in compiler.detours]
        self._in_place = [_reader(leaves[target]) for target in compiler.in_place]
        self._reduced = compiler.reduced
        self._names = [step.name for step in compiler.exact]
        self._count = len(builder.instructions)
        self.traffic = compiler.traffic()
        self._constants = tuple(builder.constants)
        count = len(builder.arrays) + len(builder.constants) + len(builder.temporaries)
        kernels = compiled()
        self._run = None
        fits = count <= _MOST_ARRAYS and len(self._axes.shape) <= _MOST_AXES
        if kernels is not None and fits and 0 not in builder.shape:
            self._run = kernels.RowProgram(*compiler.arguments()).run
        self._is_idle = 0 in builder.shape and not builder.reductions
        self.loops = compiler.loops  # that were compiled
        self._raises = False  # whether a call has raised floating-point exceptions
        self._temporaries = [Spec.like(array) for array in builder.temporaries]
        self._plain = _plain_program(builder)
        late = {target for target, _ in compiler.detours}
        stores = [leaves[target].array for _, target in builder.stores if target not in late]
        self.written = frozenset(stores)  # numbers of arrays, before all points are read

    def run(self, arrays: Arrays, parts: Iterable[Box] | None = None) -> list[Array]:
        """Execute for all points, or for those of a box of the block, part by part.

        Raises
        ------
        FloatingPointError
            If `numpy.errstate` asks for it; arrays that are read and written are unchanged then.
        """
        if self._run is None:
            box = None if parts is None else _joined(parts)  # exchanges run between parts
            return [] if self._is_idle else self._plain(arrays, box)
        saved = self._save(arrays) if self._in_place else ()
        every, box = arrays + self._constants, None
        temporaries: Arrays = ()
        if self._temporaries:
            temporaries = tuple([spec.new() for spec in self._temporaries])
            every += temporaries
        for _, number, start in self._reduced:
            if start is not None:
                temporaries[number][:] = start
        options = (_ignored(),) if self._raises else ()
        if parts is None:
            raised = self._run(every, None, *options)
        else:
            raised, box = self._run_parts(every, parts, options)
        if raised is NotImplemented:  # elements are not aligned
            return self._plain(arrays, box)
        found = []
        if raised is not None or self._reduced:
            self._raises |= raised is not None
            found = self._report(raised or (), saved, temporaries)
        for target, number in self._detours:
            key = _key_of(box)
            np.copyto(target(arrays)[key], temporaries[number][key])
        return found

    def _run_parts(
        self, every: Arrays, parts: Iterable[Box], options: tuple[int, ...]
    ) -> tuple[Any, Box]:
        """Return the exceptions of all parts, and the box that has these parts."""
        boxes: list[Box] = []
        raised: Counter[int] = Counter()
        for box in parts:
            boxes.append(box)
            found = self._run(every, self._axes.box(box), *options)  # type: ignore[misc]
            if found is NotImplemented:
                return found, _joined([*boxes, *parts])
            for number, bits in found or ():
                raised[number] |= bits
        return sorted(raised.items()) or None, _joined(boxes)

    def __repr__(self) -> str:
        read, written = self.traffic
        text = f"{self._count} instructions"
        if self.loops:
            text += f", {self.loops} compiled loop{'s' * (self.loops > 1)}"
        return f"{text}, {read} bytes read and {written} written for each point"

    def _save(self, arrays: Arrays) -> list[tuple[Array, Array]]:
        """Copy the points that an exception has to leave as they were."""
        if not {"raise", "call", "log"} & set(np.geterr().values()):
            return []
        views = [target(arrays) for target in self._in_place]
        return [(view, view.copy()) for view in views]

    def _report(
        self,
        raised: Sequence[tuple[int, int]],
        saved: Sequence[tuple[Array, Array]],
        temporaries: Arrays,
    ) -> list[Array]:
        """Do what `numpy.errstate` asks for, in the order of instructions; return reductions."""
        found = []
        try:
            for number, bits in raised:
                _handle(self._names[number], bits)
            for reduction, number, start in self._reduced:
                block = temporaries[number]
                value, bits = (reduction.of(block), 0) if start is None else end_of(block)
                found.append(value)
                if bits:
                    _handle("reduce", bits)
        except BaseException:
            for view, values in saved:
                view[...] = values
            raise
        return found


def _plain_program(builder: RowBuilder) -> Callable[[Arrays, Box | None], list[Array]]:
    """Return the same by NumPy, which executes one instruction after the other."""
    shape, dtypes, constants = builder.shape, builder.dtypes, builder.constants
    instructions, stores, reductions = builder.instructions, builder.stores, builder.reductions
    given = {
        value: _reader(leaf._replace(array=builder.number_of(leaf)))
        for value, leaf in builder.leaves.items()
        if not builder.is_temporary(leaf)
    }

    def run(arrays: Arrays, box: Box | None) -> list[Array]:
        """Execute for all points, or for those of a box; return the reductions."""
        key, every = _key_of(box), (*arrays, *constants)
        values: dict[int, Array] = {
            value: np.broadcast_to(read(every), shape)[key] for value, read in given.items()
        }
        for step in instructions:
            operands = [values[value] for value in step.operands]
            if step.function is np.ndarray.astype:
                values[step.result] = operands[0].astype(dtypes[step.result])
            else:
                values[step.result] = step.function(*operands)
        found = [reduction.of(values[value]) for value, reduction in reductions]
        results = [values[value] for value, _ in stores]
        if len(results) > 1:
            results = [result.copy() if result.base is not None else result for result in results]
        for result, (_, target) in zip(results, stores, strict=True):
            np.copyto(given[target](arrays)[key], result)
        return found

    return run


def _reader(leaf: Leaf) -> Callable[[Arrays], Array]:
    """Return a function that finds the view of a leaf among the arrays of a call."""
    number, derive = leaf.array, leaf.derive
    return lambda arrays: derive(arrays[number])


def _joined(parts: Iterable[Box]) -> Box:
    """Return the box that has these parts."""
    pairs = [zip(*axis, strict=True) for axis in zip(*parts, strict=True)]
    return [(min(firsts), max(pasts)) for firsts, pasts in pairs]


def _key_of(box: Box | None) -> tuple[Any, ...]:
    """Return the key of the points of a box."""
    return (...,) if box is None else tuple(slice(*pair) for pair in box)


def _ignored() -> int:
    """Return the flags of what `numpy.errstate` ignores; tiles that raise others take longer."""
    modes: dict[str, Any] = {**np.geterr()}
    return sum(bit for bit, (kind, _) in _EXCEPTIONS.items() if modes[kind] == "ignore")


def _handle(name: str, bits: int) -> None:
    """Do what `numpy.errstate` asks for if a ufunc raised floating-point exceptions."""
    modes = np.geterr()
    for bit, (kind, text) in _EXCEPTIONS.items():
        if not bits & bit:
            continue
        message = f"{text} encountered in {name}"
        match modes[kind]:  # type: ignore[literal-required]
            case "warn":
                warnings.warn(message, RuntimeWarning, stacklevel=_depth_of_caller())
            case "raise":
                raise FloatingPointError(message)
            case "call":
                np.geterrcall()(text, bits)  # type: ignore[misc,operator]
            case "log":
                np.geterrcall().write(f"Warning: {message}\n")  # type: ignore[union-attr]
            case "print":
                sys.stderr.write(f"Warning: {message}\n")


def _depth_of_caller() -> int:
    """Count the frames from the caller of this function to the first one outside the library."""
    frame = sys._getframe(1)  # noqa: SLF001 - where NumPy's own warnings would point
    depth = 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("pencils."):
        depth, frame = depth + 1, frame.f_back
    return depth
