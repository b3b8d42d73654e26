"""Fused functions: random programs against the same plain lines, bit by bit, on any ranks."""

import gc
import math
import random
import re
import shutil
import warnings
import weakref
from typing import NamedTuple

import numpy as np
import pytest
from mpi_helpers import all_raise, everywhere, one_is_wrong, ranks_at_fault
from tiers import up_to

import pencils
from pencils.comm import pack
from pencils.errors import ArgumentError
from pencils.graph import replay

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])
several = pytest.mark.parallel([2, 3, 4, 6])


class Program:
    """A random function of fields, and the arguments of its calls."""

    def __init__(self, comm, seed):
        self.seed, self.rank = seed, comm.rank
        self.chosen = random.Random(seed)
        choose = self.chosen.choice
        ndim = choose([1, 2, 3])
        shape = tuple(choose([2, 4, 5, 7, 9]) for _ in range(ndim))
        periodic = tuple(choose([True, False]) for _ in range(ndim))
        order = tuple(self.chosen.sample(range(ndim), ndim))
        self.pencil = pencils.Pencil(shape, periodic=periodic, order=order, comm=comm)
        self.names = ["u", "v", "w"][: choose([1, 2, 3])]
        self.dtypes = {name: choose(["d", "d", "f", "D", "i8", "?"]) for name in self.names}
        self.components = {name: choose([(), (), (2,)]) for name in self.names}
        self.halos = {name: [min(choose([0, 1, 2]), n) for n in shape] for name in self.names}
        self.values = []
        lines = [self.line() for _ in range(self.chosen.randint(2, 9))]
        results = self.chosen.sample(self.values, min(len(self.values), choose([0, 1, 2])))
        results += [choose(self.names)] if choose([0, 0, 0, 0, 1]) else []
        results += [self.reduction() for _ in range(choose([0, 0, 1, 2, 3]))]
        lines.append(f"return {', '.join(results) or None}")
        self.source = f"def function({', '.join(self.names)}, dt, k):\n    " + "\n    ".join(lines)
        made = {"np": np}
        exec(self.source, made)
        self.function = made["function"]

    def offsets(self, name):
        """Return a shift that the halo of a field allows."""
        dim = self.chosen.randrange(self.pencil.ndim)
        width = self.halos[name][dim]
        found = [0] * self.pencil.ndim
        found[dim] = self.chosen.randint(-width, width)
        return tuple(found)

    def atom(self):
        """Write a value."""
        choose, name = self.chosen.choice, self.chosen.choice(self.names)
        fields = [f"{name}.shift({self.offsets(name)})", name]
        numbers = ["dt", "2", "0.5", "k", "dt * 2", "1.5", "(dt + k)"]
        return choose([choose(self.values or fields), *fields, choose(numbers)])

    def expression(self):
        """Write an operation."""
        choose, one, other = self.chosen.choice, self.atom(), self.atom()
        name = choose(self.names)
        function = choose(["sin", "exp", "abs", "tanh", "conj", "negative", "square"])
        rare = [
            f"np.{function}({one})",
            f"np.where(abs({name}) > {choose(['0.3', 'dt'])}, {one}, {other})",
            f"{name} ** {choose(['2', '0.5', '3'])}",
            f"np.maximum({one}, {choose(['0.1', 'dt'])})",
            f"{name}.astype(np.float32)",
            f"np.clip({name}.real, {choose(['-0.5', 'None'])}, dt)",
            f"np.clip({one}, {name}.real, 2)",
            f"np.round({one}, {choose(['0', '1', '-1'])})",
            f"np.fix({name}.real)",
            f"np.modf({name}.real)[{choose('01')}]",
            f"np.select([{name} > 0], [{one}], {other})",
            f"({one} / ({other} + 3))",
        ]
        return choose([f"({one} {choose('+-*')} {other})", choose(rare)])

    def reduction(self):
        """Write a reduction."""
        choose = self.chosen.choice
        one, other = choose(self.values or self.names), choose(self.values + self.names)
        name = choose(["sum", "max", "min", "mean", "any", "all", "count_nonzero", "prod", "ptp"])
        rare = [
            f"{one}.real.sum()",
            f"{one}.real.max()",
            f"abs({one}).norm()",
            f"np.linalg.norm({one})",
            f"np.sum(({one} * dt).real)",
            f"np.std({one})",
            f"np.sum({one}, axis=-1)",
            f"np.nansum({one}, where={one} == {one})",
            f"np.add.reduce({one}, axis=None)",
            f"np.vdot(({one} + 0), ({one} * 2))",
            f"np.allclose({one}, {other}, dt)",
        ]
        return choose(
            [f"np.{name}({one})", f"({one} * 0.5).real.{choose(['sum', 'max'])}()", *rare]
        )

    def named(self, expression):
        """Write a line that gives an expression a name."""
        self.values.append(f"t{len(self.values)}")
        return f"{self.values[-1]} = {expression}"

    def line(self):
        """Write a line."""
        choose, name = self.chosen.choice, self.chosen.choice(self.names)
        kind = self.chosen.random()
        if kind < 0.62:
            value = self.expression()
            return self.named(value) if kind < 0.5 else f"{name}[...] = {value}"
        if kind < 0.68:  # NumPy rounds complex products in place otherwise
            return f"{name} {choose(['+=', '-='])} {self.atom()}"
        if kind < 0.76:
            key = [":"] * self.pencil.ndim
            dim = self.chosen.randrange(len(key))
            key[dim] = choose(["0", "-1", "1:", ":-1"])
            part = f"{name}[..., {', '.join(key)}]"
            others = {"0": "-1:", "-1": ":1", "1:": ":-1", ":-1": "1:"}
            key[dim] = others[key[dim]]
            moved = f"{choose(self.names + self.values[-1:])}[..., {', '.join(key)}]"
            return f"{part} = {choose(['dt', '0', '3.5', part + ' * 2', moved, moved])}"
        if kind < 0.9 and any(self.halos[name]):
            return f"{name}.exchange_halo()"
        widths = zip(self.halos[name], self.pencil.periodic, strict=True)
        if kind < 0.95 and any(width and not wraps for width, wraps in widths):
            mode = choose(["'edge'", "'constant', value=dt"])
            return f"{name}.fill_boundary({mode})"
        return self.named(f"{name}.copy()")

    def fields(self, call):
        """Make the arguments of a call."""
        rng, found = np.random.default_rng([self.seed, call, self.rank]), []
        for name, dtype in self.dtypes.items():
            u = pencils.zeros(
                self.pencil, dtype=dtype, components=self.components[name], halo=self.halos[name]
            )
            values = 3 * rng.standard_normal((2, *u.padded.shape))
            u.padded[...] = values[0] > 0 if dtype == "?" else values[0]
            if dtype == "D":
                u.padded.imag[...] = values[1]
            found.append(u)
        return found


def observed(function, fields, numbers):
    """Call a function; return its results and its arguments as bytes, or the error."""
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        try:
            results = function(*fields, *numbers)
        except Exception as error:  # noqa: BLE001 - whatever plain lines raise
            return type(error)
    several = results if isinstance(results, tuple) else (results,)
    own = [next((i for i, u in enumerate(fields) if u is one), None) for one in several]
    # Of zeros of both signs, and of several NaNs, extrema may be others.
    blocks = [
        (one.pencil, one.dtype, one.local.shape, one.local.tobytes())
        if isinstance(one, pencils.PencilArray)
        else (type(one), one if one is None else repr(one + 0))
        for one in several
    ]
    return own, blocks, [u.padded.tobytes() for u in fields]


def check_random_function(comm, seed, decorate, calls):
    """Compare a random function with its plain lines, for several numbers and other data each."""
    program = Program(comm, seed)
    fused = decorate(program.function)
    for call, numbers in enumerate(calls):
        expected = observed(program.function, program.fields(call), numbers)
        found = observed(fused, program.fields(call), numbers)
        if isinstance(expected, type):
            assert everywhere(comm, isinstance(found, type)), program.source
            break
        assert everywhere(comm, found == expected), program.source


@pytest.mark.parametrize("start", range(0, 400, up_to(20, 40)))
def test_random_functions_are_their_plain_lines(comm, start):
    for seed in range(start, start + 20):
        compiler = (None, "no such command")[seed % 2] if seed % 20 else "cc"
        decorate = pencils.fused(compiler=compiler)
        check_random_function(comm, seed, decorate, [(0.25, 3), (0.25, 3), (0.1, 2)])


def step(u, v, dt, feed=0.06):
    """Compute a step of Gray and Scott's reaction."""

    def laplacian(u):
        sides = u.shift((1, 0)) + u.shift((-1, 0)) + u.shift((0, 1)) + u.shift((0, -1))
        return sides - 4 * u

    u.exchange_halo()
    v.exchange_halo()
    w = u * v * v
    new = u + dt * (0.16 * laplacian(u) - w + feed * (1 - u))
    return new, v + dt * (0.08 * laplacian(v) + w - 0.12 * v)


def two_fields(comm, shape=(12, 10), **options):
    pen = pencils.Pencil(shape, periodic=True, comm=comm)
    return [
        pencils.from_function(pen, lambda i, j, n=n: np.sin(i + n * j), halo=1, **options)
        for n in (2, 3)
    ]


def equal(comm, found, expected):
    """Whether fields are equal bit by bit."""
    pairs = zip(found, expected, strict=True)
    return everywhere(comm, all(u.local.tobytes() == v.local.tobytes() for u, v in pairs))


def test_compiled_passes_keep_sums_and_not_what_is_added(comm):
    """They read less in all: rows store as much, but add in the last pass."""

    def sums(u, dt):
        total, now = u, u
        for weight in (0.25, 0.5, 0.25):
            rate = now.shift((1, 0)) - now
            total, now = total + weight * rate, u + dt * rate
        return total, abs(total).max()

    u, _ = two_fields(comm)
    u.exchange_halo()
    ways = [pencils.fused(sums, compiler=compiler) for compiler in (None, "cc")]
    for dt in (0.1, 0.2, 0.3):
        (rows, most), (compiled, largest) = (fused(u, dt) for fused in ways)
        assert equal(comm, [compiled], [rows])
        assert everywhere(comm, largest == most)
    texts = [re.findall("([0-9]+) bytes read and ([0-9]+) ", fused.explain()) for fused in ways]
    (rows, stored), (compiled, same) = (np.array(each, int).sum(axis=0) for each in texts)
    assert everywhere(comm, compiled < rows and same == stored)


@pytest.mark.parametrize("shape", [(12, 10), (1, 3), (2, 1)])
def test_results_go_to_fields_that_are_given(comm, shape):
    u, v = two_fields(comm, shape)
    expected = step(u, v, 0.1)
    fused, outs = pencils.fused(step), [u.blank(), v.blank()]
    assert fused(u, v, 0.1, out=tuple(outs))[0] is outs[0]
    assert equal(comm, outs, expected)
    expected = step(u, v, 0.1, feed=0.05)
    fused(u, v, 0.1, feed=0.05, out=(v, u))  # swapped
    assert equal(comm, (v, u), expected)


def test_loops_are_compiled(comm):
    u, v = two_fields(comm)
    expected = step(u, v, 0.1)
    fused = pencils.fused(compiler="cc")(step)
    assert equal(comm, fused(u, v, 0.1), expected)
    if shutil.which("cc") and pack.compiled() and u.local.size:
        assert "1 compiled loop," in fused.explain()
    assert equal(comm, pencils.fused(step, compiler="no such command")(u, v, 0.1), expected)
    with pytest.raises(TypeError, match="name of a command, not 3"):
        pencils.fused(step, compiler=3)


def test_numbers_are_parameters(comm):
    u, _ = two_fields(comm)
    traced = []

    @pencils.fused
    def function(u, dt, n):
        traced.append(1)
        return u * dt - dt / 2 + (n if n > 2 else 0) + np.sqrt(dt) * u

    for dt, n in [(0.5, 1), (0.25, 1), (1, 1), (np.float32(2), 1), (0.5, 3), (0.75, 3)]:
        plain = function.__wrapped__(u, dt, n)
        assert equal(comm, [function(u, dt, n)], [plain])
        assert function(u, dt, n).dtype == plain.dtype
    # Of each kind of `dt`, and for each value of `n`; a trace that needs the value begins again.
    assert len(traced) - 6 == 2 * 3 + 1
    assert function(u, 0.5, 1) is not function(u, 0.5, 1)


def test_reductions_of_results(comm):
    u, _ = two_fields(comm)

    def function(u, dt):
        w = u * dt + 1
        return w, w.sum(), [np.max(w), (w * w).mean(axis=0)], u.norm()

    plain, fused = function(u, 0.5), pencils.fused(function)
    for _ in range(2):
        found = fused(u, 0.5)
        assert equal(comm, [found[0], found[2][1]], [plain[0], plain[2][1]])
        assert everywhere(comm, found[1::2] == plain[1::2] and found[2][0] == plain[2][0])
    assert fused.explain().count("reduced in a pass") == 3


def test_computed_values_are_shifted(comm):
    u, _ = two_fields(comm)

    @pencils.fused
    def twice(u):
        u.exchange_halo()
        w = u.shift((1, 0)) - u
        return w.shift((0, 1)) * u

    u.exchange_halo()
    w = pencils.zeros(u.pencil, halo=1)
    w[...] = u.shift((1, 0)) - u
    w.exchange_halo()
    assert equal(comm, [twice(u)], [w.shift((0, 1)) * u])
    assert twice.explain().count("one pass") == 2


@pytest.mark.parametrize(("written", "exchanges"), [(False, 2), (True, 3)])
def test_values_that_are_shifted_are_exchanged_together(comm, written, exchanges):
    u, v = two_fields(comm)

    def sides(u):
        return u.shift((1, 0)) + u.shift((0, -1))

    def function(u, v, dt):
        new = [u + dt * v, v - dt * u]
        first = u + sides(new[0])
        if written:
            v[...] = first
        return first, new[0] * new[1] + sides(new[1]), sides(sides(new[0]) + new[1])

    def halos_of(field):
        own = pencils.zeros(field.pencil, halo=1)
        own[...] = field
        own.exchange_halo()
        return own

    def plain(u, v, dt):
        new = [halos_of(u + dt * v), halos_of(v - dt * u)]
        first = u + sides(new[0])
        if written:
            v[...] = first
        last = sides(halos_of(sides(new[0]) + new[1]))
        return first, new[0] * new[1] + sides(new[1]), last

    u.exchange_halo()
    fused = pencils.fused(function)
    copies = u.copy(), v.copy()
    assert equal(comm, fused(u, v, 0.5), plain(*copies, 0.5))
    assert equal(comm, [v], [copies[1]])
    text = fused.explain()
    assert everywhere(comm, text.count("exchange_halo") == exchanges)
    if u.local.size and not written:  # both values that are shifted are written once
        assert "16 bytes read and 16 written" in text


def runge_kutta(u, memory, dt, *, whole):
    """Compute a step of four stages, whose rates are added one by one, or once each is known."""
    after, rates = u, []
    for number, (weight, ahead) in enumerate([(1 / 6, 0.5), (1 / 3, 0.5), (1 / 3, 1), (1 / 6, 0)]):
        now = u if number == 0 else memory[number % 2]
        now.exchange_halo()
        rates.append(now.shift((1, 0)) + now.shift((0, -1)) - now * now)
        after = after + weight * dt * rates[-1]
        if ahead:
            memory[(number + 1) % 2][...] = u + ahead * dt * rates[-1]
    if whole:
        first, second, third, last = rates
        return u + dt / 6 * (first + 2 * second + 2 * third + last)
    return after


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("compiler", [None, "cc"])
def test_sums_of_compiled_passes_take_few_blocks(comm, monkeypatch, compiler, whole):
    u, v = two_fields(comm)
    expected = runge_kutta(u, (v, v.copy()), 0.01, whole=whole)
    programs = []
    make = replay.make_program

    def watched(stores, results, *args, **options):
        programs.append((len(stores), len(results)))
        return make(stores, results, *args, **options)

    monkeypatch.setattr(replay, "make_program", watched)
    fused = pencils.fused(runge_kutta, compiler=compiler)
    for dt in (0.5, 0.01):
        found = fused(u, (v, v.copy()), dt, whole=whole)
    assert equal(comm, [found], [expected])
    # Stores, and new blocks: without a compiler, all rates are kept.
    few = [(1, 1), (1, 1), (2, 0), (1, 0)]
    assert programs == ([(1, 1)] * 3 + [(1, 0)] if compiler is None else few)


def test_blocks_of_values_that_views_show_are_not_taken_again(comm):
    u, v = two_fields(comm)

    def function(u, v, dt):
        u.exchange_halo()
        first = u.shift((1, 0)) - u
        v[...] = dt * first
        v.exchange_halo()
        part = first[1:]
        v[1:] += part
        v.exchange_halo()
        third = np.exp(v.shift((0, 1)))  # could be kept where the first one was
        v[...] = dt * third
        v.exchange_halo()
        v[...] = v.shift((1, 0)) * third
        return part * dt, third

    expected = function(u, v.copy(), 0.1)
    for compiler in (None, "no such command"):
        fused = pencils.fused(function, compiler=compiler)
        assert equal(comm, fused(u, v.copy(), 0.1), expected)


def test_ranks_without_points_exchange_the_same_values_together(comm):
    pen = pencils.Pencil((5, 1), decomp=[1], periodic=True, comm=comm)
    u = pencils.from_function(pen, lambda i, j: np.sin(i + j), halo=[1, 0])
    w = pencils.zeros(pen, halo=[1, 0], components=2)
    up = (1, 0)

    @pencils.fused
    def assigned(u, w):
        first = (2 * u).shift(up)
        w.component(0)[...] = w.component(1)  # both are at one address if there are no points
        return first + (3 * u).shift(up)

    @pencils.fused
    def of_a_new_field(u):
        first, new = (2 * u).shift(up), np.zeros_like(u)
        return first + (new + 3 * u).shift(up)

    five = 5 * pencils.from_function(pen, lambda i, j: np.sin((i + 1) % 5 + j))
    for found in (assigned(u, w), of_a_new_field(u)):
        assert everywhere(comm, np.allclose(found.local, five.local))


@pytest.mark.parametrize("shape", [(12, 10), (1, 3)])
def test_results_do_not_lose_components(comm, shape):
    u, _ = two_fields(comm, shape)
    v = pencils.zeros(u.pencil, components=2)

    def subtract(u, v):
        u -= v
        u[...] = 0 * u

    for function in (subtract, lambda u, v: np.add(u, v, out=u) * 2):
        all_raise(comm, ValueError, "components", pencils.fused(function), u, v)


def test_other_operands(comm):
    u, v = two_fields(comm)
    grid = pencils.localgrid(u.pencil, [np.linspace(0, 1, n) for n in u.shape])
    window = np.hanning(u.shape[1])

    def function(u, more, window):
        x, y = more["grid"]
        masked = np.where(u > x, u * window, y)
        return masked + v * x, np.add(u, y, out=more["out"], where=u > 0)

    outs = [pencils.zeros(u.pencil) for _ in range(2)]
    plain = function(u, {"grid": grid, "out": outs[0]}, window)
    fused = pencils.fused(function)
    found = fused(u, {"grid": grid, "out": outs[1]}, window)
    assert equal(comm, found, plain)
    window *= 2
    again = fused(u, {"grid": grid, "out": outs[1]}, window.copy())
    assert equal(comm, again, function(u, {"grid": grid, "out": outs[0]}, window))


def test_fields_that_share_memory_are_told_apart(comm):
    def function(u, v):
        u[...] = v.shift((1, 0)) + v

    fused = pencils.fused(function)
    pairs = [
        lambda u: (u, u),
        lambda u: (u, u.copy()),
        lambda u: u.unstack(),
        lambda u: u.unstack()[::-1],
    ]
    for number, pair in enumerate(pairs):
        one, other = (two_fields(comm)[0] for _ in range(2))
        if number > 1:
            one, other = (pencils.zeros(u.pencil, components=2, halo=1) for u in (one, other))
            one.padded[...] = other.padded[...] = np.arange(one.padded.size).reshape(
                one.padded.shape
            )
        function(*pair(one))
        fused(*pair(other))
        assert equal(comm, [other], [one])


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda u: u if (u > 0).any() else -u, "has no value until the function returns"),
        (lambda u: u if u > 0 else -u, "has no values while a fused function is traced"),
        (lambda u: np.roll(u, 1), "numpy.roll cannot be fused"),
        (lambda u: u.whole(0), "whole of a field cannot be fused"),
        (lambda u: u.local * 2, "return u instead of u.local"),
        (lambda u: u + object(), None),
        (lambda u: np.add.accumulate(u, 0), "add.accumulate cannot be fused"),
        (lambda u: np.add(u, 1, where=u > 0), "leaves values undefined"),
    ],
)
def test_what_cannot_be_traced_raises(comm, function, text):
    u, _ = two_fields(comm)
    texts = [text] if text else []
    all_raise(comm, TypeError, texts, lambda: pencils.fused(function)(u))


def test_computed_values_are_changed(comm):
    """By operators in place, as long as there is no view of them."""

    def sums(u, v, n):
        one = other = u + v
        for k in range(n):
            one += k * u
            other **= 2
        one *= v.astype("f4")
        np.subtract(one, 1, out=one)
        small = u.astype("f4") * 2
        small += u
        return one, other, small

    u, v = two_fields(comm)
    fused = pencils.fused(sums)
    assert equal(comm, fused(u, v, 3), sums(u, v, 3))
    assert fused.explain().count("pass") == 1

    def viewed(u):
        both = u * 2
        part = both[1:]
        both += 1
        return part

    all_raise(comm, ArgumentError, "v = u.copy()", pencils.fused(viewed), u)


def test_components_count_in_what_is_read_and_written(comm):
    pen = pencils.Pencil((6 * comm.size, 5), comm=comm)
    u, v = (pencils.zeros(pen, components=3, halo=1) for _ in range(2))

    def grow(u, v):
        u[0] += v[1] + v[2].shift((1, 0)) + v[2].shift((-1, 0))

    fused = pencils.fused(grow)
    fused(u, v)
    assert "24 bytes read and 8 written" in fused.explain()


def test_halos_of_several_fields_are_exchanged(comm):
    def moved(u, v):
        pencils.exchange_halos([u, v], corners=False)
        return u.shift((1, 0)) - v.shift((0, -1))

    first, second = two_fields(comm), two_fields(comm)
    fused = pencils.fused(moved)
    assert equal(comm, [fused(*first)], [moved(*second)])
    assert "exchange_halos" in fused.explain()


def test_other_calls_raise_with_a_note(comm):
    u, _ = two_fields(comm)
    with pytest.raises((AttributeError, TypeError)) as caught:
        pencils.fused(lambda u: pencils.transpose(u, u.pencil))(u)
    assert "Call other functions outside" in caught.value.__notes__[0]


def test_a_function_without_fields_raises(comm):
    """Of fields that it finds elsewhere, nothing would be recorded."""
    u, _ = two_fields(comm)

    def grows(dt):
        u[...] *= dt

    all_raise(comm, TypeError, "at least one field as an argument", pencils.fused(grows), 2.0)


def test_bad_arguments_raise(comm):
    u, v = two_fields(comm)
    fused = pencils.fused(step)
    all_raise(comm, ArgumentError, "out must have 2 items", fused, u, v, 1, out=u)
    small = [pencils.zeros(u.pencil, dtype="i4"), u]
    all_raise(comm, TypeError, "int32", fused, u, v, 1, out=small)
    named = pencils.fused(lambda u: {"u": u + 1})
    all_raise(comm, ArgumentError, "needs a tuple of results", named, u, out=v)
    moved = pencils.fused(lambda u: u.shift((0, 0)).exchange_halo())
    all_raise(comm, ArgumentError, "needs a whole field", moved, u)


@several
def test_an_error_on_one_rank_raises_on_all(comm):
    u, v = two_fields(comm, (2 * comm.size, 10))  # each rank has points
    fused = pencils.fused(step)
    fused(u, v, 0.1)
    one_is_wrong(comm, TypeError, "", call=lambda dt: fused(u, v, dt), bad=["x"], good=0.1)
    one_is_wrong(comm, TypeError, "", call=lambda dt: fused(u, v, dt), bad={1}, good=0.1)

    def late(u, k):
        u[...] = 1 / (u * k)
        u.exchange_halo()
        t = u.shift((1, 0)) * 1
        return t, t.sum()

    divided = pencils.fused(late)
    positive = 1 + abs(u)
    for rank in ranks_at_fault(comm):
        w = u.blank()
        w[...] = positive
        with np.errstate(all="raise"):
            all_raise(comm, FloatingPointError, "divide", divided, w, float(comm.rank != rank))
        assert divided(w, 1.0)[0].shape == w.shape
    expected = step(u, v, 0.2)
    assert equal(comm, fused(u, v, 0.2), expected)


@several
@pytest.mark.parametrize("overlap", [False, True])
def test_one_rank_traces_while_others_replay(comm, overlap):
    u, v = two_fields(comm, (2 * comm.size, 10))
    z = pencils.zeros(u.pencil, dtype=complex, halo=1)
    z[...] = u
    traced = []

    @pencils.fused(overlap=overlap)
    def function(u, v):
        traced.append(comm.rank)
        new, _ = step(u, v, 0.1)
        if comm.rank and len(traced) > 1:  # in another way than its first time
            raise ValueError("late")
        return new, new.sum()

    expected = step(u, v, 0.1)[0]
    assert equal(comm, [function(u, v)[0]], [expected])
    for _ in range(2):
        assert equal(comm, [function(u if comm.rank else z.real, v)[0]], [expected])
    assert everywhere(comm, len(traced) == (1 if comm.rank else 2))
    # What fails when it traces, others are told in their next exchange.
    last = comm.rank == comm.size - 1
    all_raise(comm, ValueError, "late", function, z.real if last else u, v)
    assert equal(comm, [function(u, v)[0]], [expected])


def test_functions_keep_no_arguments(comm):
    u, v = two_fields(comm)
    fused = pencils.fused(step)
    fused(u, v, 0.1)
    refs = [weakref.ref(u.padded), weakref.ref(u)]
    del u, v
    gc.collect()
    assert everywhere(comm, all(ref() is None for ref in refs))


def test_the_advice_of_errors_works(comm):
    u, _ = two_fields(comm)
    data = np.linspace(0, 1, 10)

    def assigns(u):
        (2 * u)[0] = 1

    def assigns_data(u, data):
        u[...] = data

    def function(u, data):
        v = u.copy()
        v[...] = 0 * u + data
        v[0] = 1
        return np.where(u > 0, v, 2 * u)

    all_raise(comm, ArgumentError, "v = u.copy()", pencils.fused(assigns), u)
    all_raise(comm, TypeError, "0 * u + data", pencils.fused(assigns_data), u, data)
    shifts = pencils.fused(lambda u: u.astype("f4").shift((1, 0)))  # ghosts are not exchanged
    all_raise(comm, ArgumentError, "shift first", shifts, u)
    assert equal(comm, [pencils.fused(function)(u, data)], [function(u, data)])


class Momentum(NamedTuple):
    """Fields with names."""

    x: object
    y: object


def add_both(a, c):
    a += 1
    c += 1


def write_then_read(a, c):
    a[...] = 1.0
    return c * 1


def accumulate(u, _):
    w = np.zeros_like(u)
    w += u
    v = np.zeros_like(u)
    v[1:] = u[1:]
    return w * 2, v, w


def reduce_early(u, _):
    s, n = u.sum(), abs(u).max()
    u += 1
    return s, n, u.sum()


def nested(u, v):
    return pencils.fused(write_then_read)(u, v) + pencils.fused(lambda u: 2 * u)(v)


def named(u, v):
    return Momentum(u * 2, {"v": v, "w": [u + v]})


def parts(u, v):
    return u.real, u.imag, abs(v.real), v.imag.max()


@pytest.mark.parametrize(
    "function",
    [
        add_both,
        write_then_read,
        accumulate,
        reduce_early,
        nested,
        named,
        parts,
    ],
)
@pytest.mark.parametrize("dtype", [float, complex])
def test_functions_are_their_plain_lines(comm, function, dtype):
    fused = pencils.fused(function)
    pairs = [
        lambda u: (u, u),
        lambda u: (u, u.copy()),
        lambda u: (u, u.real),
        lambda u: (u, u.shift((0, 0))),
    ]
    for pair in pairs:
        for _ in range(2):
            one, other = (two_fields(comm)[0].astype(dtype) for _ in range(2))
            expected, found = function(*pair(one)), fused(*pair(other))
            assert equal(comm, [other], [one])
            assert everywhere(comm, described(found) == described(expected))


def described(value):
    """Return results as what can be compared."""
    if isinstance(value, dict):
        return {name: described(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return type(value), [described(one) for one in value]
    if isinstance(value, pencils.PencilArray):
        return value.pencil, value.dtype, value.local.tobytes()
    return value


def test_methods_keys_and_own_arguments(comm):
    u, _ = two_fields(comm)

    class Step:
        factor = 3

        @pencils.fused
        def run(self, u, sign):
            return u * math.copysign(self.factor, sign)

    step = Step()
    for sign in (0.0, -0.0, 1.0):
        assert equal(comm, [step.run(u, sign)], [u * math.copysign(3, sign)])
    pair = pencils.fused(lambda u, pair: u * pair.x)
    whole = u.astype(int)
    assert [pair(whole, Momentum(one, 0)).dtype.kind for one in (1, 1.0)] == ["i", "f"]
    with pytest.raises(TypeError, match="'out' cannot be an argument"):
        pencils.fused(lambda u, out: u * out)
    masked = pencils.fused(lambda u: u.__setitem__(u > 0, 1j))
    all_raise(comm, TypeError, "cannot be assigned", masked, u)
    data = np.linspace(0, 1, 10)
    assert equal(comm, [pencils.fused(lambda u, a: a * u)(u, data)], [data * u])
    assert equal(
        comm, [pencils.fused(lambda u, a: np.maximum(a, u))(u, data)], [np.maximum(data, u)]
    )


def test_python_functions_of_numbers_see_their_values(comm):
    u, _ = two_fields(comm)
    fused = pencils.fused(lambda u, dt: u * math.sin(dt))
    for dt in (0.5, 0.25):
        assert equal(comm, [fused(u, dt)], [u * math.sin(dt)])


def test_calls_with_the_same_fields_again(comm):
    """They are kept by fields and types of numbers, and execute one pass."""
    u, v = two_fields(comm)
    w, x = u.blank(), u.blank()
    fused = pencils.fused(lambda u, v, dt: u + dt * v)
    for dt in (0.1, 2, 0.3, np.float64(0.4), np.float32(0.5), 3, 1e300):
        for a, b, out in ((u, v, w), (v, u, x), (u, v, u), (u, u, w), (w, v, x)) * 2:
            with np.errstate(over="ignore"):
                expected = a + dt * b
                assert fused(a, b, dt, out=out) is out
            assert equal(comm, [out], [expected])


def test_calls_with_the_same_fields_that_write_arguments(comm):
    u, v = two_fields(comm)

    def add(u, v, dt):
        u[...] = u + dt * v

    fused, expected = pencils.fused(add), u.copy()
    for dt in (0.1, 0.2, 0.3):
        add(expected, v, dt)
        assert fused(u, v, dt) is None
        assert equal(comm, [u], [expected])
    returns = pencils.fused(lambda u, v: (add(u, v, 2), v)[1])
    for _ in range(3):
        add(expected, v, 2)
        assert returns(u, v) is v
        assert equal(comm, [u], [expected])


def test_calls_with_the_same_fields_notice_what_has_changed(comm):
    u, v = two_fields(comm)
    w = u.blank()
    fused = pencils.fused(lambda u, v, dt: u * v + dt)
    for _ in range(3):
        fused(u, v, 1.0, out=w)
    before = w.copy()
    u.local[...] = 0
    v.local[...] = np.inf
    if u.local.size:
        with np.errstate(all="raise"), pytest.raises(FloatingPointError, match="multiply"):
            fused(u, v, 1.0, out=w)
        with pytest.warns(RuntimeWarning, match="multiply"):
            fused(u, v, 1.0, out=w)
        assert np.isnan(w.local).all()
        w.local[...], v.local[...] = before.local, 1
        w.padded.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            fused(u, v, 1.0, out=w)
        assert np.array_equal(w.local, before.local)
    v.local[...] = 1
    fused(u, v, dt=1.0, out=u)
    refs = [weakref.ref(one) for one in (u, v, w)]
    del u, v, w
    gc.collect()
    assert everywhere(comm, not any(one() for one in refs))


def test_values_that_decide_are_seen_with_the_same_fields(comm):
    u, v = two_fields(comm)
    w = u.blank()
    fused = pencils.fused(lambda u, v, n=1: u + v if n == 1 else u - v)
    for _ in range(3):
        assert equal(comm, [fused(u, v, out=w)], [u + v])
    for n in (1, 2, 1, 2, 1.0, 3.5, 1.0):
        assert equal(comm, [fused(u, v, n, out=w)], [u + v if n == 1 else u - v])

    def count(u, n):
        u += n
        return 1

    counted = pencils.fused(count)
    assert [counted(u, n) for n in (1, 1, 1, 2, 1, 3)] == [1] * 6


def test_fields_at_places_of_others_that_were_dropped(comm):
    fused = pencils.fused(lambda u, v: u - v)
    for number in range(100):
        u, v = two_fields(comm, (5, 4))
        w = (u if number % 3 else v).blank()
        fused(u, v, out=w)
        assert equal(comm, [fused(u, v, out=w)], [u - v])


MOVED = (
    "u[1:] = u[:-1]; u[:, 1:] = 2 * u[:, :-1]; return u + v",
    "w = u * v[0]; u[::2] = w[6:]; w = u + 1; u[:-1] = w[1:]; u[0] = dt",
    "v[0, 1:] = k[:-1]; v[1, :, ::2] = u[:, 5:]; v[0] = k; return v.max()",
    "u.exchange_halo(); u[1:] = u.shift((1, 0))[:-1]; u.exchange_halo(); return u.shift((1, 0))",
)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("lines", MOVED)
def test_assignments_move_points(comm, lines, overlap):
    """In the order of the lines, with types converted, of constants and values, too."""
    found = []
    for decorate in (lambda function: function, pencils.fused(overlap=overlap)):
        u, k = two_fields(comm)
        v = pencils.zeros(u.pencil, dtype="f4", components=2, halo=1)
        v[0] = k
        made = {"k": k}
        exec(f"def function(u, v, dt):\n    {lines}", made)
        function = decorate(made["function"])
        for dt in (0.5, 0.25):
            result = function(u, v, dt)
            found.append((u.copy(), v.copy(), *([] if result is None else [result])))
    for plain, fused in zip(found[:2], found[2:], strict=True):
        fields = [pair for pair in zip(plain, fused, strict=True) if hasattr(pair[0], "local")]
        assert equal(comm, *zip(*fields, strict=True))
        assert repr(plain[2:]) == repr(fused[2:])


def test_assignments_that_do_not_fit_raise_on_all_ranks(comm):
    (u, w), texts = two_fields(comm), {}
    texts["u[1:] = u[:-2]"] = pencils.errors.PencilMismatchError, "global shapes differ"
    texts["v = 2 * u; v[1:] = u[:-1]"] = ArgumentError, "has no memory to write to"
    texts["w[1:] = u[:-1]"] = TypeError, "pass it as an argument"
    before = u.padded.copy()
    for lines, (kind, text) in texts.items():
        made = {"w": w}
        exec(f"def function(u):\n    u += 1; {lines}", made)
        all_raise(comm, kind, text, pencils.fused(made["function"]), u)
        assert everywhere(comm, np.array_equal(u.padded, before))


def test_an_assignment_that_fails_on_one_rank(comm):
    """While it is traced: other ranks are told where they move points."""
    u, _ = two_fields(comm)
    fused = pencils.fused(lambda v, u: v.__setitem__(slice(1, None), u[:-1]))

    def assign(other):
        fused(u.copy(), other)

    bad = pencils.zeros(u.pencil.with_(shape=(14, 10)))
    kind = pencils.errors.PencilMismatchError
    one_is_wrong(comm, kind, "global shapes differ", call=assign, bad=bad, good=u)
