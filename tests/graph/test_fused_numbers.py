"""Numbers in fused functions: the values and types of the plain lines, for any arguments."""

import math
from time import perf_counter

import numpy as np
import pytest
from mpi_helpers import all_raise, everywhere

import pencils
from pencils.graph.number import Number, evaluation

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def field(comm):
    pen = pencils.Pencil((6, 5), periodic=True, comm=comm)
    return pencils.from_function(pen, lambda i, j: np.sin(1.0 + i + 2 * j))


def same(comm, function, *numbers, fused=None):
    """Whether a fused function returns a field and a number as the plain function does."""
    u = field(comm)
    with np.errstate(all="ignore"):
        (one, x), (two, y) = (fused or pencils.fused(function))(u, *numbers), function(u, *numbers)
    equal = one.dtype == two.dtype and one.local.tobytes() == two.local.tobytes()
    return everywhere(comm, equal and type(x) is type(y) and repr(x) == repr(y))


@pytest.mark.parametrize(
    ("number", "values"),
    [
        (lambda k: 2**k, [3, -1, 2, 0]),
        (lambda k: k**0.5, [4, -4]),
        (lambda x: (-1.0) ** x, [2.0, 0.5]),
        (lambda x: x**0.5, [4.0, -4.0, np.float64(-4), np.float32(2)]),
        (lambda x: x**2 + x**-1 + x**0, [4, 0.5, -0.5, -3, 1j, np.float64(3)]),
        (lambda x: x**x, [2, -2, 0.5, -0.5]),
        (lambda k: pow(k, 3, 5), [2, 4]),
        (lambda x: np.float64(3) ** x, [0.3, 2]),
        (lambda k: 7 // k + 7 % k - k / 3 + abs(-k), [2, -3, 2.5, np.int32(3), np.float32(0.3)]),
        (lambda k: np.add(np.square(k), 1.0) + np.negative(k), [2, 2**63, 2**70]),
        (lambda k: np.sqrt(k) + np.maximum(k, 0.5), [2, 0.25, np.float32(3)]),
        (lambda x: np.modf(x)[0] + np.divmod(x, 2)[1], [2.5, 0.25]),
        (lambda x: divmod(x, 2)[0] + divmod(9, x)[1], [2.5, 4.0, 3]),
        (lambda k: (k & 6) + (k | 1) + (k ^ 2) + (k << 2) + (8 >> k) + ~k, [3, 2]),
        (lambda x: math.floor(x) + math.ceil(x) + math.trunc(x) + round(x), [2.5, -0.5]),
        (lambda x: x.real + x.imag + x.conjugate(), [0.5, 1 + 2j, 3]),
        (lambda x: x.is_integer() + x.as_integer_ratio()[0], [0.5, 2.0]),
        (lambda x: x.dtype.itemsize + x.item(), [np.float32(0.5), np.float64(2)]),
        (lambda x: {0.5: 1, 2: 3}.get(x, 0), [0.5, 2, 1]),
        (lambda x: len({x, 0.5}), [0.5, 2.0]),
        (lambda x: x if hasattr(x, "dtype") else -x, [0.5, np.float64(0.5)]),
        (lambda x: isinstance(x, float) + 2 * isinstance(x, complex), [0.5, 2, 1j, np.float64(1)]),
        (lambda x: np.where(x > 1, 2.0, x) + np.asarray(x), [0.5, 2.0]),
        (lambda x: +x - (-x), [0.5, 2.0, 1]),
    ],
)
def test_numbers_are_those_of_plain_lines(comm, number, values):
    def function(u, x):
        y = number(x)
        return u * y, y

    fused = pencils.fused(function)
    for x in [*values, *values]:
        assert same(comm, function, x, fused=fused), x


def test_many_numbers_take_linear_time(comm):
    def recurrence(u, w, n):
        a, c = 1.0, w
        for _ in range(n):
            a, c = c, 2 * w * c - a
        return u * c, c

    def sum_of_steps(u, dt, n):
        t = 0
        for _ in range(n):
            t += dt
        return u * t, t

    start = perf_counter()
    fused = pencils.fused(recurrence), pencils.fused(sum_of_steps)
    for x in (0.3, 0.7):
        assert same(comm, recurrence, x, 60, fused=fused[0])
        assert same(comm, sum_of_steps, x, 5000, fused=fused[1])
    assert everywhere(comm, perf_counter() - start < 20)  # and not longer than the universe


def test_numbers_are_evaluated_together(comm):
    dt, k = Number.argument(0.5, 1), Number.argument(3, 2)
    numbers = [one := dt * 2 + k, dt, one * one, np.sqrt(abs(one)), k]
    found = evaluation(numbers)(["field", 0.25, -4])
    assert everywhere(comm, list(found) == [-3.5, 0.25, 12.25, np.sqrt(3.5), -4])
    assert everywhere(comm, found[:2] == tuple(one.evaluate([0, 0.25, -4]) for one in numbers[:2]))


@pytest.mark.parametrize("closed_over", [False, True])
def test_products_of_numbers_and_arrays(comm, closed_over):
    data, u = np.linspace(0, 1, 5), field(comm)

    def function(u, dt, data):
        half = data * dt
        half = dt * half + np.multiply(dt, data) - data / dt + data**dt
        return u * half

    def over(u, dt):
        return function(u, dt, data)

    fused = pencils.fused(over if closed_over else function)
    for dt in (0.5, 0.25, 0.5):
        found = fused(u, dt) if closed_over else fused(u, dt, data)
        expected = function(u, dt, data)
        assert everywhere(comm, found.local.tobytes() == expected.local.tobytes())


def test_arrays_and_fields_of_enclosing_scopes_are_filled(comm):
    u, data, w = field(comm), np.zeros(5), field(comm)

    def function(u, dt):
        data[:] = 1
        data.__imul__(dt)
        w[...] = dt
        np.multiply(data, dt, out=data)
        return u * (w * dt + data)

    for dt in (0.5, 0.25):
        found, expected = pencils.fused(function)(u, dt), function(u, dt)
        assert everywhere(comm, found.local.tobytes() == expected.local.tobytes())


def test_functions_that_catch_errors_do_not_catch_that_a_value_is_needed(comm):
    def function(u, x):
        try:
            y = math.sin(x)
        except Exception:  # noqa: BLE001 - as careless functions do
            y = 0.0
        return u * y, y

    fused = pencils.fused(function)
    for x in (0.5, 2.0):
        assert same(comm, function, x, fused=fused)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (lambda x: x + "1", "'str'"),
        (lambda x: x @ x, "for @"),
        (lambda x: np.multiply(x, None), "NoneType"),
        (lambda x: x[0], "not subscriptable"),
        (lambda x: x < 1j, "not supported between"),
    ],
)
def test_what_numbers_cannot_do_raises(comm, number, text):
    fused = pencils.fused(lambda u, x: u * number(x))
    all_raise(comm, TypeError, text, lambda: fused(field(comm), 0.5))
