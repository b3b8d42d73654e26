"""Row programs in C: instructions that C computes bit by bit like NumPy are joined to few loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pencils.comm.c_library import addresses_of
from pencils.comm.formulas import MOST_OPERANDS, DType, Instruction
from pencils.comm.row_builder import RowBuilder

# Types by their letters in NumPy, which computes with others.
_TYPES = {"f": "float", "d": "double", "F": "float _Complex", "D": "double _Complex"}
# Expressions of ufuncs, by kinds of operands. Not among them are complex products, which NumPy
# rounds as processors do, and what depends on the sign of NaN, which C does not know.
# Comparisons of NaN raise no exceptions, as in NumPy.
_TABLE: list[tuple[str, dict[Any, str]]] = [
    ("iufc", {np.add: "{0} + {1}", np.subtract: "{0} - {1}"}),
    ("iufc", {np.negative: "-{0}", np.positive: "{0}"}),
    ("iuf", {np.multiply: "{0} * {1}", np.square: "{0} * {0}", np.conjugate: "{0}"}),
    ("c", {np.conjugate: "~{0}"}),
    ("f", {np.divide: "{0} / {1}", np.reciprocal: "1 / {0}"}),
    ("f", {np.absolute: "__builtin_fabs{f}({0})", np.fabs: "__builtin_fabs{f}({0})"}),
    ("f", {np.sqrt: "__builtin_sqrt{f}({0})", np.floor: "__builtin_floor{f}({0})"}),
    ("f", {np.ceil: "__builtin_ceil{f}({0})", np.trunc: "__builtin_trunc{f}({0})"}),
    ("f", {np.rint: "__builtin_rint{f}({0})", np.isnan: "{0} != {0}"}),
    ("f", {np.isfinite: "__builtin_isfinite({0})", np.isinf: "__builtin_isinf({0}) != 0"}),
    ("f", {np.less: "__builtin_isless({0}, {1})"}),
    ("f", {np.less_equal: "__builtin_islessequal({0}, {1})"}),
    ("f", {np.greater: "__builtin_isgreater({0}, {1})"}),
    ("f", {np.greater_equal: "__builtin_isgreaterequal({0}, {1})"}),
    ("biu", {np.less: "{0} < {1}", np.less_equal: "{0} <= {1}"}),
    ("biu", {np.greater: "{0} > {1}", np.greater_equal: "{0} >= {1}"}),
    ("biu", {np.bitwise_and: "{0} & {1}", np.bitwise_or: "{0} | {1}"}),
    ("biu", {np.bitwise_xor: "{0} ^ {1}"}),
    ("iu", {np.invert: "~{0}", np.absolute: "{0} < 0 ? -{0} : {0}"}),
    ("biu", {np.maximum: "{0} >= {1} ? {0} : {1}", np.minimum: "{0} <= {1} ? {0} : {1}"}),
    ("b", {np.invert: "!{0}", np.add: "{0} | {1}", np.multiply: "{0} & {1}"}),
    ("biufc", {np.equal: "{0} == {1}", np.not_equal: "{0} != {1}"}),
    ("biufc", {np.logical_and: "({0} != 0) & ({1} != 0)", np.logical_not: "{0} == 0"}),
    ("biufc", {np.logical_or: "({0} != 0) | ({1} != 0)"}),
    ("biufc", {np.logical_xor: "({0} != 0) ^ ({1} != 0)"}),
]
FUNCTIONS = {
    (function, kind): text
    for kinds, texts in _TABLE
    for kind in kinds
    for function, text in texts.items()
}
# With results of floats, they may raise exceptions.
_RAISING = {
    *(np.add, np.subtract, np.multiply, np.divide, np.square, np.reciprocal, np.sqrt),
    np.ndarray.astype,
}
_START = "#include <stddef.h>\n#include <stdint.h>\n"
_LOOP = """
static inline void row{number}(ptrdiff_t n, {parameters})
{{
    for (ptrdiff_t i = 0; i < n; i++) {{
        {lines}
    }}
}}
void loop{number}(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps, void *data)
{{
    const ptrdiff_t *ups = steps + {count};
    for (ptrdiff_t k = 0; k < dimensions[1]; k++)
        row{number}(dimensions[0], {arguments});
    (void)data;
}}
"""


class _Loop(NamedTuple):
    """Instructions of one loop, the values that it reads, and those that others need."""

    steps: Sequence[Instruction]
    operands: tuple[int, ...]
    results: tuple[int, ...]

    def fits(self) -> bool:
        """Whether the compiled kernels take this number of operands."""
        return len(self.operands) + len(self.results) <= MOST_OPERANDS

    def instruction(self, address: int) -> Instruction:
        """Return the call of the loop at an address."""
        *others, result = self.results
        return Instruction("loop", address, len(self.results), self.operands, result, tuple(others))


def with_loops(
    steps: Sequence[Instruction],
    last: int,
    builder: RowBuilder,
    stride_of: Callable[[int], int],
    *,
    compiler: str,
) -> list[Instruction] | None:
    """Join instructions to loops, but the `last` ones; None if they are not compiled.

    `stride_of` returns the bytes from one element of a value to the next one in a row.
    """
    parts = _parts(steps[: len(steps) - last], steps, builder)
    loops = [part for part in parts if isinstance(part, _Loop)]
    sources = [_source(number, loop, builder, stride_of) for number, loop in enumerate(loops)]
    names = [f"loop{number}" for number in range(len(loops))]
    found = addresses_of(_START + "".join(sources), names, compiler) if loops else None
    if found is None:
        return None
    left = iter(found)
    joined = [part.instruction(next(left)) if isinstance(part, _Loop) else part for part in parts]
    return [*joined, *steps[len(steps) - last :]]


def _parts(
    steps: Sequence[Instruction], every: Sequence[Instruction], builder: RowBuilder
) -> list[_Loop | Instruction]:
    """Order instructions so that those of C follow each other, and join these to loops."""
    uses = Counter(value for step in every for value in step.operands)
    known: dict[int, _Level] = {}
    ordered: dict[tuple[int, bool], list[Instruction]] = {}
    for step in steps:
        found = known[step.result] = _level_of(step, known, builder)
        ordered.setdefault(found[:2], []).append(step)
    parts: list[_Loop | Instruction] = []
    for (_, by_numpy), same in sorted(ordered.items()):
        parts += same if by_numpy else _loops(same, uses, builder)
    return parts


class _Level(NamedTuple):
    """When a value is computed: loops of NumPy follow those in C of the same level."""

    level: int
    by_numpy: bool
    may_raise: bool  # whether computing it in this loop may raise floating-point exceptions


def _level_of(step: Instruction, known: Mapping[int, _Level], builder: RowBuilder) -> _Level:
    """Find the first level of an instruction.

    Values to choose from that may raise exceptions are computed in a loop before: otherwise
    compilers compute those that are chosen only.
    """
    by_numpy = _expression(step, builder) is None
    before = {value: known[value] for value in step.operands if value in known}
    level = 0
    for value, (at, other, may_raise) in before.items():
        chosen = step.function is np.where and value in step.operands[1:] and may_raise
        level = max(level, at + (not by_numpy and (other or chosen)))
    may_raise = step.function in _RAISING and builder.dtypes[step.result].kind in "fc"
    may_raise |= any(one.may_raise and one.level == level for one in before.values())
    return _Level(level, by_numpy, may_raise and not by_numpy)


def _loops(
    steps: Sequence[Instruction], uses: Counter[int], builder: RowBuilder
) -> Iterator[_Loop | Instruction]:
    """Join instructions to loops that have few enough operands; a ufunc alone is none."""
    left = list(steps)
    while left:
        count = 1
        while count < len(left) and _loop(left[: count + 1], uses, builder).fits():
            count += 1
        alone = count == 1 and isinstance(left[0].function, np.ufunc)
        yield left[0] if alone else _loop(left[:count], uses, builder)
        del left[:count]


def _loop(steps: Sequence[Instruction], uses: Counter[int], builder: RowBuilder) -> _Loop:
    made = {step.result for step in steps}
    here = Counter(value for step in steps for value in step.operands)
    results = [value for value in made if value in builder.leaves or uses[value] > here[value]]
    return _Loop(steps, tuple(value for value in here if value not in made), tuple(sorted(results)))


def _type(dtype: DType) -> str | None:
    """Name a type in C; None for float16 and long double."""
    if dtype.kind in "iu":
        return f"{'u' * (dtype.kind == 'u')}int{8 * dtype.itemsize}_t"
    return "uint8_t" if dtype.kind == "b" else _TYPES.get(dtype.char)


def _expression(step: Instruction, builder: RowBuilder) -> str | None:
    """Return an instruction in C, with places for its operands; None if only NumPy has it."""
    dtypes = [builder.dtypes[value] for value in (*step.operands, step.result)]
    *given, dtype = dtypes
    if not all(map(_type, dtypes)):
        return None
    if step.function in (np.copyto, np.ndarray.astype):
        return "{0} != 0" if dtype.kind == "b" else "{0}"
    if step.function is np.where:
        return "{0} ? {1} : {2}"
    return FUNCTIONS.get((step.function, given[0].kind)) if len(set(given)) == 1 else None


def _source(number: int, loop: _Loop, builder: RowBuilder, stride_of: Callable[[int], int]) -> str:
    """Write a loop in C; its results share no memory with what it reads."""
    names: dict[int, str] = {}
    parameters, arguments, lines, stores = [], [], [], []
    for place, value in enumerate((*loop.operands, *loop.results)):
        dtype, name = builder.dtypes[value], names.setdefault(value, f"v{place}")
        written = place >= len(loop.operands)
        parameter, argument, element = _operand(place, dtype, stride_of(value), written=written)
        parameters.append(parameter)
        arguments.append(argument)
        if written:
            stores.append(f"{element} = {name};")
        else:
            lines.append(f"const {_type(dtype)} {name} = {element};")
    for step in loop.steps:
        dtype, text = builder.dtypes[step.result], _expression(step, builder) or ""
        operands = [names[value] for value in step.operands]
        expression = text.format(*operands, f="f" * (dtype.char == "f"))
        name = names.setdefault(step.result, f"t{len(lines)}")
        lines.append(f"const {_type(dtype)} {name} = ({_type(dtype)})({expression});")
    return _LOOP.format(
        number=number,
        parameters=", ".join(parameters),
        arguments=", ".join(arguments),
        count=len(arguments),
        lines="\n        ".join([*lines, *stores]),
    )


def _operand(place: int, dtype: DType, stride: int, *, written: bool) -> tuple[str, str, str]:
    """Return the parameter for an operand, what is passed for a row, and its element."""
    kind, star = _type(dtype), "*restrict " if written else "*"
    first = f"places[{place}] + k * ups[{place}]"
    if stride == dtype.itemsize:
        return f"{kind} {star}p{place}", f"({kind} *)({first})", f"p{place}[i]"
    if stride == 0 and not written:
        return f"{kind} p{place}", f"*({kind} *)({first})", f"p{place}"
    parameter = f"char {star}p{place}, ptrdiff_t s{place}"
    return parameter, f"{first}, steps[{place}]", f"*({kind} *)(p{place} + i * s{place})"
