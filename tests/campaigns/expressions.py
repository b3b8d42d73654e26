"""Random expressions of NumPy with fields, which mean the same on any number of ranks.

    python tests/campaigns/expressions.py --runs 1000
    python tests/campaigns/expressions.py --seed 17

The expressions of one seed are computed with fields on 1 to 6 simulated ranks, and with NumPy on
the global arrays, where dimensions of space never vanish. Each gives what NumPy gives on every
number of ranks, or raises the same error on every number of ranks, one included.
"""

# ruff: noqa: ARG004, ARG005 - all kinds of operations have methods with the same parameters

import operator
import re
import warnings
from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from running import dice, main, numbered, simulated

import pencils

EXPRESSIONS = 40  # of a seed
DEPTH = 5
RANKS = (1, 2, 3, 4, 6)


class Whole(NamedTuple):
    """What NumPy gives: a global array, of which the first axes are components."""

    array: np.ndarray
    lead: int

    @property
    def space(self):
        return self.array.ndim - self.lead


# Operations: what they do with fields, and with whole arrays.

UNARY = {
    "neg": operator.neg,
    "abs": abs,
    "sign": np.sign,
    "square": lambda u: np.minimum(u, 9) ** 2,
    "rint": np.rint,
    "copy": np.copy,
}
BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": lambda u, v: np.clip(u, -50, 50) * np.minimum(v, 50),
    "max": np.maximum,
    "lt": operator.lt,
    "eq": operator.eq,
    "hypot": np.hypot,
}
REDUCTIONS = ("sum", "max", "min", "mean", "any", "all", "count_nonzero", "ptp", "argmax")
FUNCTIONS = {
    "cumsum": lambda u, axis, lead: np.cumsum(u, axis=axis),
    "flip": lambda u, axis, lead: np.flip(u, axis),
    "roll": lambda u, axis, lead: np.roll(u, 2, axis),
    "diff": lambda u, axis, lead: np.diff(u, axis=axis),
    "nanmax": lambda u, axis, lead: np.nanmax(u, axis=axis, keepdims=axis >= lead),
    "nansum": lambda u, axis, lead: np.nansum(u, axis=axis, keepdims=axis >= lead),
    "var": lambda u, axis, lead: np.var(u, axis=axis, keepdims=axis >= lead, correction=1),
    "nanstd": lambda u, axis, lead: np.nanstd(u, axis=axis, keepdims=axis >= lead),
    "average": lambda u, axis, lead: np.average(
        u, axis, weights=np.arange(1, u.shape[axis] + 1), keepdims=axis >= lead
    ),
    "nancumsum": lambda u, axis, lead: np.nancumsum(u, axis=axis),
    "gradient": lambda u, axis, lead: np.gradient(u, axis=axis),
    "sort": lambda u, axis, lead: np.sort(u, axis=axis),
    "clip": lambda u, axis, lead: np.clip(u, -2, axis),
    "isin": lambda u, axis, lead: np.isin(u, [1, axis]),
    "astype": lambda u, axis, lead: u.astype("f4"),
}
# Functions that give a number, or a NumPy array on all ranks.
FINAL = {
    "item": lambda u, index: u.item(*index),
    "sum": lambda u, index: u.sum(),
    "std": lambda u, index: u.std(),
    "median": lambda u, index: np.median(u),
    "nanmedian": lambda u, index: np.nanmedian(u),
    "nanquantile": lambda u, index: np.nanquantile(u, 0.3),
    "count_nonzero": lambda u, index: np.count_nonzero(u),
    "quantile": lambda u, index: np.quantile(u, [0.1, 0.5], method="higher"),
    "unique": lambda u, index: np.unique(u),
    "histogram": lambda u, index: np.histogram(u, bins=4)[0],
    "bincount": lambda u, index: np.bincount(np.abs(u).astype(int).ravel()),
    "argmin": lambda u, index: u.argmin(),
    "array_equal": lambda u, index: np.array_equal(u, u),
    "size": lambda u, index: np.size(u),
}


def grow(rng, leaves, depth):
    """Draw an expression; return it, and its value, which is an exception if NumPy raises one."""
    if depth == 0 or rng.random() < 0.1:
        name = rng.choice(list(leaves))
        return ("leaf", name), leaves[name]
    node, value = grow(rng, leaves, depth - 1)
    if isinstance(value, Exception) or not isinstance(value, Whole):
        return node, value
    kind = rng.choice(KINDS)
    args = kind.draw(rng, node, value, leaves)
    return (kind, node, args), attempted(kind.whole, value, args)


def finished(rng, node, value):
    """Let a function follow, in every third case, that gives no field."""
    if rng.random() < 2 / 3 or not isinstance(value, Whole):
        return node, value
    args = Final.draw(rng, node, value, {})
    return (Final, node, args), attempted(Final.whole, value, args)


def alike(rng, node, leaves):
    """Draw an expression of the same form for other fields, and now and then of other points."""
    if node[0] == "leaf":
        lead, ndim = leaves[node[1]].lead, leaves[node[1]].array.ndim
        others = [n for n, one in leaves.items() if (one.lead, one.array.ndim) == (lead, ndim)]
        name = rng.choice(others)
        return ("leaf", name), leaves[name]
    kind, inner, args = node
    other, value = alike(rng, inner, leaves)
    if kind is Section and rng.random() < 0.3:
        args = tuple(moved(rng, one) for one in args)
    if isinstance(value, Exception):
        return (kind, other, args), value
    return (kind, other, args), attempted(kind.whole, value, args)


def moved(rng, entry):
    """Move an index, or the points of a slice, by one."""
    step = rng.choice((-1, 0, 1))
    if isinstance(entry, int):
        return entry + step
    if isinstance(entry, slice):
        start, stop = (None if n is None else n + step for n in (entry.start, entry.stop))
        if entry.start is None and entry.stop is None and rng.random() < 0.5:
            start, stop = rng.choice(((1, None), (None, -1), (0, None)))
        return slice(start, stop, entry.step)
    return entry


def attempted(function, *args):
    """Return what a function returns or raises."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*args)
        except Exception as error:  # noqa: BLE001 - it is the result
            return error


def computed(node, fields):
    """Compute an expression with fields."""
    if node[0] == "leaf":
        return fields[node[1]]
    kind, inner, args = node
    return kind.field(computed(inner, fields), args, fields)


class Unary:
    @staticmethod
    def draw(rng, node, value, leaves):
        return rng.choice(list(UNARY))

    @staticmethod
    def whole(value, name):
        return Whole(UNARY[name](value.array), value.lead)

    @staticmethod
    def field(u, name, fields):
        return UNARY[name](u)


class Binary:
    """With another expression, a number, or a replicated array."""

    @staticmethod
    def draw(rng, node, value, leaves):
        name = rng.choice(list(BINARY))
        match rng.randrange(4):
            case 0:
                return name, rng.randrange(-3, 4), None
            case 1:
                shape = [n if rng.random() < 0.7 else 1 for n in value.array.shape[value.lead :]]
                return name, np.arange(np.prod(shape) * 1.0).reshape(shape) % 7, None
        if rng.random() < 0.2:
            return (name, *grow(rng, leaves, 2))
        return (name, *alike(rng, node, leaves))

    @staticmethod
    def whole(value, args):
        name, node, other = args
        if isinstance(other, Exception):
            raise other
        if not isinstance(other, Whole):
            return Whole(BINARY[name](value.array, node if other is None else other), value.lead)
        if value.space != other.space:
            raise ValueError("numbers of dimensions")
        both = BINARY[name](value.array, other.array)
        return Whole(both, both.ndim - value.space)

    @staticmethod
    def field(u, args, fields):
        name, node, other = args
        return BINARY[name](u, node if other is None else computed(node, fields))


class Section:
    """``u[key]``; integers keep dimensions of space."""

    @staticmethod
    def draw(rng, node, value, leaves):
        key = []
        for n in value.array.shape[: rng.randint(0, value.array.ndim)]:
            if rng.random() < 0.3:
                key.append(rng.randint(-n - (rng.random() < 0.05), max(0, n - 1)))
            else:
                start, stop = (rng.choice((None, rng.randint(-n - 1, n + 1))) for _ in range(2))
                key.append(slice(start, stop, rng.choice((None, None, 1, 2, 3, -1, -2))))
        if rng.random() < 0.2:
            key.insert(0, ...)
        return tuple(key)

    @staticmethod
    def whole(value, key):
        array, lead = value
        array[key]  # raises what NumPy raises
        full = list(key)
        at = full.index(...) if ... in full else len(full)
        full[at : at + 1] = [slice(None)] * (array.ndim - len(full) + (... in key))
        kept = [
            slice(one, one + 1 or None) if isinstance(one, int) and axis >= lead else one
            for axis, one in enumerate(full)
        ]
        dropped = sum(isinstance(one, int) for one in kept[:lead])
        return Whole(array[tuple(kept)], lead - dropped)

    @staticmethod
    def field(u, key, fields):
        return u[key]


class Assign:
    """A copy of the field, of which a section gets a number, its own values, or those of NumPy."""

    @staticmethod
    def draw(rng, node, value, leaves):
        key = Section.draw(rng, node, value, leaves)
        new = rng.choice((7, "twice", "plus", "array", "field", "field"))
        if new == "field":
            new = alike(rng, (Section, node, key), leaves)
        elif new == "array":
            found = attempted(lambda: value.array[key])
            new = (
                7
                if isinstance(found, Exception)
                else np.arange(found.size).reshape(found.shape) % 5
            )
        return key, new

    @staticmethod
    def whole(value, args):
        key, new = args
        array = value.array.copy()
        if isinstance(new, tuple):
            if isinstance(new[1], Exception):
                raise new[1]
            section = Section.whole(Whole(array, value.lead), key).array
            section[...] = new[1].array
        else:
            assign(array, key, new)
        return Whole(array, value.lead)

    @staticmethod
    def field(u, args, fields):
        key, new = args
        target = u.copy()
        assign(target, key, computed(new[0], fields) if isinstance(new, tuple) else new)
        return target


def assign(target, key, new):
    if isinstance(new, str) and new == "twice":
        target[key] = np.minimum(target[key], 50) * 2
    elif isinstance(new, str):
        target[key] += 1
    else:
        target[key] = new


class Masked:
    """A copy of the field, in which points with small values get a number or others' values."""

    @staticmethod
    def draw(rng, node, value, leaves):
        return rng.randrange(-2, 4), rng.choice((0, "field")), alike(rng, node, leaves)

    @staticmethod
    def whole(value, args):
        least, new, (_, other) = args
        if isinstance(other, Exception):
            raise other
        array = value.array.astype(float)
        values = other.array if new == "field" else new
        np.copyto(array, values, where=other.array < least)
        return Whole(array, value.lead)

    @staticmethod
    def field(u, args, fields):
        least, new, (node, _) = args
        other = computed(node, fields)
        target = u.astype(float)
        target[other < least] = other if new == "field" else new
        return target


class Reduce:
    """Over one axis, or all; over space the axis stays, and over components it vanishes."""

    @staticmethod
    def draw(rng, node, value, leaves):
        name = rng.choice(REDUCTIONS)
        axis = None if rng.random() < 0.4 else rng.randrange(-value.array.ndim, value.array.ndim)
        return name, axis

    @staticmethod
    def whole(value, args):
        name, axis = args
        array = value.array
        if axis is None:
            return getattr(np, name)(array)
        at = axis % array.ndim
        found = getattr(np, name)(array, axis=at, keepdims=True)
        if at < value.lead:
            return Whole(found.squeeze(at), value.lead - 1)
        return Whole(found, value.lead)

    @staticmethod
    def field(u, args, fields):
        name, axis = args
        return getattr(np, name)(u, axis=axis)


class Function:
    """A function of NumPy along one axis."""

    @staticmethod
    def draw(rng, node, value, leaves):
        return rng.choice(list(FUNCTIONS)), rng.randrange(value.array.ndim)

    @staticmethod
    def whole(value, args):
        name, axis = args
        found = FUNCTIONS[name](value.array, axis, value.lead)
        return Whole(found, value.lead - (value.array.ndim - found.ndim))

    @staticmethod
    def field(u, args, fields):
        name, axis = args
        return FUNCTIONS[name](u, axis, len(u.components))


class Replicate:
    @staticmethod
    def draw(rng, node, value, leaves):
        return None

    @staticmethod
    def whole(value, _):
        return value

    @staticmethod
    def field(u, _, fields):
        return u.replicate()


class Final:
    """A function that gives no field."""

    @staticmethod
    def draw(rng, node, value, leaves):
        index = tuple(rng.randint(-n, max(0, n - 1)) for n in value.array.shape)
        return rng.choice(list(FINAL)), index

    @staticmethod
    def whole(value, args):
        name, index = args
        return value.array[index].item() if name == "item" else FINAL[name](value.array, index)

    @staticmethod
    def field(u, args, fields):
        name, index = args
        if name == "bincount":
            return np.bincount(np.abs(u).astype(int))
        return FINAL[name](u, index)


KINDS = [
    Unary,
    *[Binary] * 3,
    *[Section] * 5,
    Assign,
    Assign,
    Masked,
    Reduce,
    Reduce,
    Function,
    Replicate,
]


def draw_layout(rng):
    ndim = rng.choice((1, 2, 2, 3, 3))
    shape = [
        rng.choice((0, 1, 1, 2, 3, 4, 5, 6, 7)) if rng.random() < 0.5 else rng.randint(2, 7)
        for _ in range(ndim)
    ]
    dims = list(range(ndim))
    decomp = rng.sample(dims, rng.randint(1, ndim))
    return {
        "shape": shape,
        "decomp": decomp,
        "order": rng.sample(dims, ndim),
        "splits": rng.choice(("first", "last", "floor", "ceil")),
        "periodic": rng.random() < 0.3,
    }


def draw_leaves(rng, shape):
    """Draw global arrays: whole, with components, and with one point along some dimensions."""
    values = np.random.default_rng(rng.randrange(2**32))
    thin = [n if rng.random() < 0.5 else 1 for n in shape]

    def draw(*extents):
        return values.integers(-4, 5, extents).astype(rng.choice((float, float, int)))

    return {
        "u": Whole(draw(*shape), 0),
        "v": Whole(draw(*shape), 0),
        "w": Whole(draw(2, *shape), 1),
        "x": Whole(draw(*thin), 0),
    }


def spread(pencil, whole):
    dims = [
        dim for dim, n in enumerate(whole.array.shape[whole.lead :]) if n == pencil.shape[dim] != 1
    ]
    components = whole.array.shape[: whole.lead]
    u = pencils.zeros(pencil, dtype=whole.array.dtype, components=components, dims=dims)
    u.local = whole.array[u.local_slices]
    return u


def run_expressions(arguments, leaves, nodes):
    """Compute all expressions on this rank; return what each has given."""
    pencil = pencils.Pencil(comm=MPI.COMM_WORLD, **arguments)
    fields = {name: spread(pencil, whole) for name, whole in leaves.items()}
    return [judged(attempted(computed, node, fields), value) for node, value in nodes]


def judged(found, expected):
    """Return ``("error", type, beginning of its text)``, or whether a value is that of NumPy."""
    if isinstance(found, Exception):
        text = re.sub(r"^rank \d+: ", "", str(found))  # on several ranks, which one has it
        return "error", type(found).__name__, text[:25]
    if isinstance(expected, Exception):
        return "value", False, f"NumPy raises {expected!r}, and this is {found!r}"
    if not isinstance(expected, Whole):
        good = not isinstance(found, pencils.PencilArray) and np.allclose(
            found, expected, equal_nan=True
        )
        return "value", good and type(found) is type(expected), f"{found!r} is not {expected!r}"
    array = expected.array
    if found.shape != array.shape or found.dtype != array.dtype:
        return "value", False, f"{found.shape} {found.dtype} is not {array.shape} {array.dtype}"
    part = array[found.local_slices]
    same = part.shape == found.local.shape and np.allclose(found.local, part, equal_nan=True)
    return "value", same, f"{found.local!r} is not {part!r}"


def run_seed(seed):
    """Return the number of expressions of this seed that gave values."""
    rng = dice("expressions", seed)
    arguments = draw_layout(rng)
    leaves = draw_leaves(rng, arguments["shape"])
    nodes = [finished(rng, *grow(rng, leaves, rng.randint(1, DEPTH))) for _ in range(EXPRESSIONS)]
    results = []
    for ranks in RANKS:
        with simulated(ranks, seed=seed) as simulation:
            for rank, found in enumerate(simulation.run(run_expressions, arguments, leaves, nodes)):
                results.append((f"rank {rank} of {ranks}", found))
    values = 0
    for number, (node, expected) in enumerate(nodes):
        first = results[0][1][number]
        for place, found in results:
            here = found[number]
            if not (here == first if first[0] == "error" else here[0] == "value" and here[1]):
                raise AssertionError(
                    f"{shown(node)} on {arguments}\n{place}: {here}\n1 rank: {first}\n"
                    f"NumPy: {expected!r}"
                )
        values += first[0] == "value"
    return values


def shown(node):
    if node[0] == "leaf":
        return node[1]
    kind, inner, args = node
    return f"{kind.__name__}({shown(inner)}, {args!r})"


def run_campaign(numbers, report):
    for seed in report.each(numbers):
        with report.attempt(f"expressions.py --seed {seed}"):
            report.count(expressions=EXPRESSIONS, values=run_seed(seed))
    return report


if __name__ == "__main__":
    main(
        __doc__,
        100,
        lambda args, report: run_campaign(numbered(args), report),
        seed={"type": int, "help": "only this one"},
    )
