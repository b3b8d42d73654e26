"""Block programs: random expressions of all types against NumPy, bit by bit, warnings included."""

import operator
import random
import shutil
import warnings
from functools import partial
from threading import Thread

import numpy as np
import pytest

from pencils.comm import pack
from pencils.graph import make_placeholder
from pencils.graph.array import Array
from pencils.graph.fuse import BlockView, Store, copied, make_program

implementations = pytest.mark.parametrize("name", dict.fromkeys([pack.available()[0], "numpy"]))

TYPES = "?bBhHiIlLqQfdgFDGe"
UFUNCS = sorted(
    {
        each
        for each in vars(np).values()
        if isinstance(each, np.ufunc) and each.nout == 1 and each.signature is None
    },
    key=lambda ufunc: ufunc.__name__,
)
NUMBERS = (2, 0.5, 1, -1, 3.7, 0, 1e3, 2.0, True, np.float32(0.3), np.int64(3))


def numbers(rng, shape, dtype):
    """Return random numbers, some of them special."""
    kind = np.dtype(dtype).kind
    if kind in "biu":
        return rng.integers(-9 if kind == "i" else 0, 2 if kind == "b" else 9, shape).astype(dtype)
    found = rng.standard_normal(shape) * rng.choice([1, 1e3, 1e-3])
    if kind == "c":
        found = found + 1j * rng.standard_normal(shape)
    if rng.random() < 0.2:
        found.flat[rng.integers(found.size)] = rng.choice([np.inf, np.nan, 0, -0.0])
    return found.astype(dtype)


def significant(array):
    """Return the bytes of an array that have a meaning: long doubles have some that have none."""
    plain = np.ascontiguousarray(array)
    if plain.dtype.char in "gG" and np.finfo("g").nmant == 63:
        return plain.reshape(-1).view(np.uint8).reshape(-1, 16)[:, :10].tobytes()
    return plain.tobytes()


class Case:
    """A random graph of nodes of padded fields, and where its results are stored."""

    def __init__(self, seed):
        self.chosen, rng = random.Random(seed), np.random.default_rng(seed)
        choose = self.chosen.choice
        self.shape = tuple(choose([1, 2, 3, 5, 8, 13]) for _ in range(choose([1, 2, 3])))
        self.width = choose([0, 1, 2])
        few = self.chosen.sample(TYPES, 3) if choose([True, False]) else ["d"]
        padded = tuple(n + 2 * self.width for n in self.shape)
        self.fields = [numbers(rng, padded, choose(few)) for _ in range(choose([1, 2, 3]))]
        if choose([True, False, False]):
            self.fields = [np.asfortranarray(field) for field in self.fields]
        self.nodes = [
            make_placeholder(f"p{i}", u.shape, u.dtype) for i, u in enumerate(self.fields)
        ]
        self.values = [node[self.key(node)] for node in self.nodes for _ in range(3)]
        thin = tuple(choose([slice(1), part]) for part in self.key(None))
        self.values.append(self.nodes[0][thin])
        for _ in range(self.chosen.randint(1, 12)):
            self.add()
        results = [choose(self.values[-4:]) for _ in range(choose([1, 2, 3]))]
        self.stored = choose([True, False])
        self.results = [
            node for node in results if isinstance(node, Array) and node.shape == self.shape
        ]

    def key(self, _node):
        """Return a random section of the points of a field and its halo."""
        starts = [self.chosen.randint(0, 2 * self.width) for _ in self.shape]
        return tuple(slice(at, at + n) for at, n in zip(starts, self.shape, strict=True))

    def add(self):
        """Add a random operation, if NumPy has it for these types."""
        choose = self.chosen.choice
        one, other = choose(self.values), choose([choose(self.values), choose(NUMBERS)])
        kind = self.chosen.random()
        try:
            if kind < 0.25:
                found = choose([np.add, np.subtract, np.multiply, np.true_divide])(one, other)
            elif kind < 0.75:
                ufunc = choose(UFUNCS)
                found = ufunc(*(self.chosen.sample([one, other], 2) if ufunc.nin > 1 else [one]))
            elif kind < 0.85:
                found = np.where(choose(self.values) > 0, one, other)
            elif kind < 0.92:
                found = one ** (2 if isinstance(other, Array) else other)
            else:
                found = one.astype(choose(TYPES))
        except (TypeError, ValueError, OverflowError):
            return
        if isinstance(found, Array):
            self.values.append(found)

    def outputs(self, arrays):
        """Store results in fields, in place, or in new arrays; or return them."""
        inside = tuple(slice(self.width, self.width + n) for n in self.shape)
        free, found = list(range(len(self.fields))), []
        for node in self.results:
            fitting = [slot for slot in free if arrays[slot].dtype == node.dtype]
            if not self.stored:
                found.append(node)
            elif fitting and self.chosen.random() < 0.6:
                free.remove(fitting[0])
                views = ((operator.getitem, (inside,), {}),)
                found.append(Store(node, BlockView(fitting[0], arrays[fitting[0]][inside], views)))
            else:
                arrays.append(np.zeros(self.shape, node.dtype))
                found.append(Store(node, BlockView(len(arrays) - 1, arrays[-1])))
        return found

    def expected(self):
        """Compute the results by NumPy."""
        known = dict(zip(self.nodes, self.fields, strict=True))

        def value(node):
            if isinstance(node, Array) and node not in known:
                known[node] = node.func(*map(value, node.args), **node.options)
            return known[node] if isinstance(node, Array) else node

        return [np.array(value(node)) for node in self.results]

    def found(self, compiler=None):
        """Compute the results by a program, for other arrays than it was made with."""
        arrays = [u.copy(order="K") for u in self.fields]
        outputs = self.outputs(arrays)
        slots = {u: i for i, u in enumerate(self.nodes)}
        program, _ = made(outputs, arrays, slots, compiler)
        used = [array.copy(order="K") for array in arrays]
        returned = iter(program.run(used))
        return [
            np.array(
                one.target.derive(used[one.target.slot]) if type(one) is Store else next(returned)
            )
            for one in outputs
        ]


def made(outputs, arrays, slots, compiler=None):
    """Make a program of stores and of nodes whose values it returns."""
    stores = [one for one in outputs if type(one) is Store]
    results = [one for one in outputs if type(one) is not Store]
    return make_program(stores, results, arrays, slots, compiler=compiler)


def observed(function, mode):
    """Call a function; return what it computes, or the exception, and its warnings."""
    with np.errstate(all=mode), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = [(array.dtype, array.shape, significant(array)) for array in function()]
        except (FloatingPointError, ValueError) as error:
            found = type(error)
    return found, {str(each.message) for each in caught}


def check_programs(seeds, mode, compiler=None):
    """Compare random programs with NumPy."""
    for seed in seeds:
        case = Case(seed)
        expected = observed(case.expected, mode)
        found = observed(partial(case.found, compiler), mode)
        if isinstance(expected[0], type):  # operations before it may have warned, or not
            assert found[0] is expected[0], seed
        else:
            assert found == expected, seed


@implementations
@pytest.mark.parametrize("mode", ["ignore", "warn", "raise"])
@pytest.mark.parametrize("start", range(0, 1200, 100))
def test_random_programs_are_those_of_numpy(name, mode, start):
    with pack.using(name):
        check_programs(range(start, start + 100), mode)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("start", range(0, 1200, 100))
def test_random_programs_in_c_are_those_of_numpy(start):
    for mode in ("ignore", "warn", "raise"):
        check_programs(range(start, start + 10), mode, "cc")


def program_of(make, *arrays, target=0, key=...):
    """Return a program that stores an expression of arrays in one of them."""
    nodes = [make_placeholder(str(i), u.shape, u.dtype) for i, u in enumerate(arrays)]
    views = ((operator.getitem, (key,), {}),)
    output = Store(make(*nodes), BlockView(target, arrays[target][key], views))
    return made([output], arrays, {node: i for i, node in enumerate(nodes)})[0]


@implementations
def test_an_error_leaves_what_is_read_and_written(name):
    u = np.linspace(0.0, 1.0, 300_000).reshape(300, 1000)[:, ::-1].copy()
    before = u.copy()
    with pack.using(name):
        program = program_of(lambda x: 1 / x, u)
        with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide"):
            program.run([u])
        np.testing.assert_array_equal(u, before)
        with np.errstate(divide="ignore"):
            program.run([u])
    np.testing.assert_array_equal(u[[0, -1], [-1, 0]], [np.inf, 1])


@implementations
@pytest.mark.parametrize("compiler", [None, "cc"])
def test_exceptions_are_told_after_calls_that_ignored_them(name, compiler):
    u = np.array([[0.0, 1.0, 1e-300]] * 3)
    x = make_placeholder("x", u.shape, u.dtype)
    with pack.using(name):
        program, _ = made([1 / x + x * x], [u], {x: 0}, compiler)
        for mode in ("ignore", "ignore", "warn", "raise", "ignore", "warn"):
            expected = observed(lambda: [1 / u + u * u], mode)
            assert observed(lambda: program.run([u]), mode) == expected


def test_floating_point_errors_are_passed_to_handlers():
    u, calls = np.array([[0.0, 1.0]]), []
    program = program_of(lambda x: 1 / x, u)
    old = np.seterrcall(lambda text, bits: calls.append((text, bits)))
    with np.errstate(divide="call"):
        program.run([u])
    np.seterrcall(old)
    assert calls == [("divide by zero", 1)]


@pytest.mark.skipif(pack.compiled() is None, reason="for compiled programs")
def test_other_arrays_than_those_of_the_program_raise():
    u, v = np.zeros((4, 6)), np.zeros((4, 6))
    program = program_of(lambda _, x: x + 1, u, v)
    for wrong in (np.zeros((4, 7)), np.zeros((4, 6), "f4"), np.zeros((6, 4)).T, np.zeros(24)):
        with pytest.raises(ValueError, match="differs from that"):
            program.run([u, wrong])
    v.flags.writeable = False
    program.run([u, v])
    u.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        program.run([u, v])
    make, view = pack.compiled().RowProgram, (0, -1, 8, 0, (0, 8, 8))
    for slots in (
        [(0, -1, 8, 8, (0, 48, 8))],
        [(0, -1, 8, -8, (0, 48, 8))],
        [(0, -1, 8, 0, (0, 56, 8))],
    ):
        with pytest.raises(ValueError, match="leaves its array"):
            make((1, 4, 6), (u,), tuple(slots), (), (), 1, 4, 6, 6, 0, 0)
    for wrong in ((1, 8, (0,)), (2, 218, (0, 0)), (0, 8, (0, 0)), (1, 8, (0, 1))):
        with pytest.raises(ValueError, match=r"instruction|conversion"):
            make((1, 2, 2), (v,), (view,), (wrong,), (), 1, 2, 2, 2, 0, 0)


def test_threads_execute_one_program_at_once():
    u = [np.random.default_rng(i).random((200, 300)) for i in range(4)]
    expected = [np.sqrt(x * x + 1) - x for x in u]
    program = program_of(lambda x: np.sqrt(x * x + 1) - x, u[0].copy())
    threads = [Thread(target=program.run, args=([x],)) for x in u]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(u, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def misaligned(array):
    """Copy an array to memory where its elements are not aligned."""
    memory = np.frombuffer(bytearray(b"x" + array.tobytes("K")), np.uint8, offset=1)
    strides = array.strides
    found = np.ndarray(array.shape, array.dtype, memory, 0, strides)
    np.copyto(found, array)
    assert not found.flags.aligned
    return found


OTHERS = {
    "datetime": np.arange(20).astype("M8[s]").reshape(4, 5),
    "timedelta": np.arange(20).astype("m8[ms]").reshape(4, 5),
    "bytes": np.arange(100, 120).astype("S3").reshape(4, 5),
    "text": np.arange(100, 120).astype("U5").reshape(4, 5),
    "structured": np.array(
        [(i, 0.5 * i) for i in range(20)], np.dtype([("a", "i1"), ("b", "f8")])
    ).reshape(4, 5),
    "swapped": np.arange(20).astype(np.dtype("f8").newbyteorder()).reshape(4, 5),
    "swapped integers": np.arange(20).astype(np.dtype("i4").newbyteorder()).reshape(4, 5),
}


@implementations
@pytest.mark.parametrize("given", OTHERS.values(), ids=OTHERS)
def test_other_types_than_native_numbers_are_stored(name, given):
    values, chosen = given.copy(), np.arange(20).reshape(4, 5) % 3 == 0
    other = given[::-1].copy()
    nodes = [
        make_placeholder(str(i), u.shape, u.dtype) for i, u in enumerate((values, other, chosen))
    ]
    u, v, c = nodes
    arrays = [values, other, chosen, np.zeros((4, 5))]

    def inside(slot, *key):
        return BlockView(slot, arrays[slot][key], ((operator.getitem, (key,), {}),))

    below, above = (slice(1, None),), (slice(None, -1),)
    outputs = [
        Store(np.where(c, u, v), inside(0)),  # of what the next ones write
        Store(u[above], inside(1, *below)),
        Store(v[:1], inside(1, *above)),  # broadcast
        Store(c * 2.5, inside(3)),
        copied(u[::2]),
        np.flip(v),
    ]
    expected = [np.where(chosen, given, given[::-1]), given[::-1].copy(), chosen * 2.5]
    expected[1][1:] = given[:-1]
    expected[1][:-1] = given[::-1][:1]
    with pack.using(name):
        program, _ = made(outputs, arrays, {node: i for i, node in enumerate(nodes)})
        used = [array.copy() for array in arrays]
        returned = program.run(used)
    for found, wanted in zip([used[0], used[1], used[3]], expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(returned[0], given[::2])
    np.testing.assert_array_equal(returned[1], np.flip(used[1]))
    for alone in (lambda x: x[::-1], lambda x: x[:1], lambda x: x):  # in place
        with pack.using(name):
            program = program_of(alone, values.copy())
            program.run(used := [values.copy()])
        np.testing.assert_array_equal(used[0], np.broadcast_to(alone(values), (4, 5)))


@implementations
def test_two_fields_of_another_type_are_exchanged(name):
    u, v = OTHERS["bytes"], OTHERS["bytes"][::-1].copy()
    nodes = [make_placeholder(str(i), x.shape, x.dtype) for i, x in enumerate((u, v))]
    outputs = [Store(nodes[1], BlockView(0, u)), Store(nodes[0], BlockView(1, v))]
    with pack.using(name):
        program, _ = made(outputs, [u, v], {node: i for i, node in enumerate(nodes)})
        program.run(used := [u.copy(), v.copy()])
    np.testing.assert_array_equal(used, [v, u])


@implementations
@pytest.mark.parametrize("given", ["datetime", "swapped"])
def test_other_types_are_computed_by_numpy(name, given):
    values = OTHERS[given]
    expected = (values - values[::-1]) * 3
    x = make_placeholder("x", values.shape, values.dtype)
    with pack.using(name):
        program, _ = made([(x - x[::-1]) * 3, x > x[::-1]], [values.copy()], {x: 0})
        found, larger = program.run([values])
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(larger, values > values[::-1])


@implementations
@pytest.mark.parametrize("dtype", ["f8", "i2", "c16", "g", "c8"])
def test_elements_may_be_misaligned_when_programs_are_made_or_run(name, dtype):
    values = np.arange(1, 7001).reshape(70, 100).astype(dtype)
    odd, out = misaligned(values), np.zeros((70, 100), dtype)
    with pack.using(name):
        for made in (values.copy(), odd.copy(order="K"), odd):
            for target in (out, misaligned(out)):
                program = program_of(lambda _, x: x * x + x[:, ::-1], target, made, target=0)
                for given, to in [(values, out), (odd, out), (values, misaligned(out))]:
                    program.run([to, given])
                    np.testing.assert_array_equal(to, values * values + values[:, ::-1])
        program = program_of(lambda x: 2 * x[::-1], misaligned(values))
        program.run([odd])
        np.testing.assert_array_equal(odd, 2 * values[::-1])


@implementations
def test_fields_of_records_may_be_misaligned(name):
    records = np.zeros(50, np.dtype([("a", "i1"), ("b", "f8")]))
    records["b"] = np.arange(50)
    out = np.zeros(50)
    with pack.using(name):
        program = program_of(lambda _, x: np.sqrt(x) + 1, out, records["b"])
        program.run([out, records["b"]])
    np.testing.assert_array_equal(out, np.sqrt(np.arange(50)) + 1)


@implementations
@pytest.mark.parametrize("dtype", ["f4", "e", "c8"])
def test_constants_that_overflow_warn_in_each_call(name, dtype):
    u = np.linspace(0.5, 1, 12).reshape(3, 4).astype(dtype)
    for make in (
        lambda x: x * 1e300,
        lambda x: x + 1e300,
        lambda x: np.where(np.equal(x, 0.5), x, -1e300),
        lambda x: np.where(np.equal(x, 0.5), x, 1e-300),
        lambda x: x * 1e-300,
        lambda x: x * np.inf,
    ):
        x = make_placeholder("x", u.shape, u.dtype)
        for mode in ("warn", "raise", "ignore"):
            with pack.using(name), warnings.catch_warnings():
                warnings.simplefilter("error")
                program, _ = made([make(x)], [u.copy()], {x: 0})
                expected = observed(lambda make=make: [make(u)], mode)
                for _ in range(2):
                    assert observed(lambda run=program.run: run([u]), mode) == expected


def test_ufuncs_of_other_libraries_are_left_to_numpy():
    special = pytest.importorskip("scipy.special")
    u = np.linspace(0, 1, 12).reshape(3, 4)
    program = program_of(lambda x: special.erf(x) + x, u.copy())
    assert any("NumPy: erf" in text for text in program.texts)
    program.run(used := [u.copy()])
    np.testing.assert_array_equal(used[0], special.erf(u) + u)


@pytest.mark.skipif(pack.compiled() is None, reason="for compiled programs")
def test_compiled_programs_refuse_elements_they_do_not_have():
    make, view = pack.compiled().RowProgram, (0, -1, 8, 0, (0, 8, 8))
    u = np.zeros((2, 2))
    for wrong in ((1, 3, (0, 0)), (0, 7, (0, 0, 0, 0)), (1, 0, (0, 0)), (1, -8, (0, 0))):
        with pytest.raises(ValueError, match="so many bytes"):
            make((1, 2, 2), (u,), (view,), (wrong,), (), 1, 2, 2, 2, 0, 0)
    for array in (u.view("V8"), u.view("S8"), u.astype(np.dtype("f8").newbyteorder())):
        with pytest.raises(ValueError, match="native byte order"):
            make((1, 2, 2), (array,), (view,), ((1, 8, (0, 0)),), (), 1, 2, 2, 2, 0, 0)


@implementations
@pytest.mark.parametrize("first", [0, 1])
def test_programs_of_several_shapes_read_before_they_store(name, first):
    u, w, v = np.arange(20.0).reshape(4, 5), np.ones((2, 5)), np.zeros((4, 5))
    x, y = (make_placeholder(str(i), each.shape, each.dtype) for i, each in enumerate((u, w)))
    outputs = [
        Store(x * np.pad(y, ((0, 2), (0, 0))), BlockView(0, u)),
        Store(x[1:3] + y, BlockView(1, w)),
    ]
    outputs += [Store(outputs[0].value, BlockView(2, v)), copied(x.T)]
    with pack.using(name):
        ordered = outputs if first == 0 else outputs[::-1]
        program, _ = made(ordered, [u, w, v], {x: 0, y: 1})
        returned = program.run(used := [u.copy(), w.copy(), v.copy()])
    np.testing.assert_array_equal(used[0], u * np.pad(w, ((0, 2), (0, 0))))
    np.testing.assert_array_equal(used[1], u[1:3] + w)
    np.testing.assert_array_equal(used[2], used[0])
    np.testing.assert_array_equal(returned[0], u.T)


@implementations
@pytest.mark.parametrize("order", [1, -1])
def test_values_are_stored_in_their_shape_and_broadcast(name, order):
    u, v, w = np.arange(5.0).reshape(1, 5), np.zeros((4, 5)), np.zeros((1, 5))
    x = make_placeholder("x", u.shape, u.dtype)
    outputs = [Store(x + 1, BlockView(1, v)), Store(x * 2, BlockView(2, w)), x - 3][::order]
    with pack.using(name):
        program, _ = made(outputs, [u, v, w], {x: 0})
        returned = program.run(used := [u, v.copy(), w.copy()])
    np.testing.assert_array_equal(used[1], np.broadcast_to(u + 1, (4, 5)))
    np.testing.assert_array_equal(used[2], u * 2)
    np.testing.assert_array_equal(returned[0], u - 3)


@implementations
def test_functions_that_return_their_argument_are_copied(name):
    u = np.arange(20.0)
    with pack.using(name):
        for make in (lambda x: np.ravel(x)[::-1] * 2, lambda x: np.real(x)[::-1] * 2):
            program = program_of(make, u.copy())
            program.run(used := [u.copy()])
            np.testing.assert_array_equal(used[0], 2 * u[::-1])
