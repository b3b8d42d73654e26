"""NumPy expressions on nodes compute what NumPy computes, with shapes and types known before."""

import operator
import pickle

import numpy as np
import pytest
from graphs import compute

from pencils import graph
from pencils.errors import ArgumentError

A = np.arange(1.0, 13.0).reshape(3, 4)
B = A[::-1] - 5
V = np.array([2.0, -1.0, 0.5, 3.0])

EXPRESSIONS = {
    "operators": lambda a, b: (a + 2 * b - 1 / a) ** 2 // 3 % 7,
    "comparison": lambda a, b: (a > b) & ~(b <= 2),
    "reflected": lambda a, _: 3 - a / 2,
    "list": lambda a, _: a * [1, 2, 3, 4],
    "ufunc": lambda a, b: np.hypot(np.sin(a), b),
    "ufunc dtype": lambda a, b: np.true_divide(a, b, dtype="f8"),
    "not equal": np.not_equal,
    "broadcast": lambda a, b: a[:, None, :] + b[None, :, :1],
    "scalar int": lambda a, _: a.astype("i1") + 3,
    "NumPy scalar": lambda a, _: a.astype("f4") + np.float64(3),
    "where": lambda a, b: np.where(a > b, a, 0),
    "clip": lambda a, b: np.clip(a, b, 6) + np.clip(a, None, 3) + a.clip(2, 5),
    "round": lambda a, _: np.round(a / 7, 2) + (a / 7).round(1),
    "complex": lambda a, b: np.real((a + 1j * b).conj() * b) + (a * 1j).imag,
    "nan_to_num": lambda a, _: np.nan_to_num(np.log(a - 6), nan=1.5),
    "sum": lambda a, _: a.sum(),
    "sum axis": lambda a, _: np.sum(a, axis=-1, keepdims=True),
    "sum axes": lambda a, _: a.sum(axis=(0, 1)),
    "sum positional": lambda a, _: np.sum(a, 0),
    "mean and std": lambda a, _: a.mean(0) / a.std(axis=0),
    "var": lambda a, _: np.var(a, ddof=1),
    "prod": lambda a, _: a.prod(axis=1),
    "extremes": lambda a, b: a.min() + b.max(axis=0),
    "any, all": lambda a, b: (a > 11).any(axis=0) ^ (b < 5).all(axis=0),
    "argmax": lambda a, _: np.argmax(a, axis=1),
    "add.reduce": lambda a, _: np.add.reduce(a),
    "maximum.reduce": lambda a, _: np.maximum.reduce(a, axis=1),
    "index": lambda a, _: a[1],
    "slices": lambda a, _: a[::-1, 1:3] * a[..., None, 1:, 2][0],
    "element": lambda a, _: a[2, 3],
    "fancy": lambda a, _: a[[0, 2, 2], 1:],
    "mask": lambda a, _: a[np.array([True, False, True])],
    "reshape": lambda a, _: a.reshape(2, -1) + a.reshape((2, 6)) + np.reshape(a, (2, 6)),
    "ravel": lambda a, b: a.ravel() + np.ravel(b),
    "transpose": lambda a, b: a.T + b.transpose(1, 0) + np.transpose(a, (1, 0)) + a.transpose(),
    "axes": lambda a, _: np.squeeze(np.expand_dims(np.moveaxis(a, 0, 1), 0)) + np.swapaxes(a, 0, 1),
    "squeeze": lambda a, _: a[:1].squeeze(),
    "flip": lambda a, _: np.flip(a, 0) + np.rot90(a, 2),
    "broadcast_to": lambda a, _: np.broadcast_to(a, (2, 3, 4)),
    "roll": lambda a, _: np.roll(a, 1, axis=1) - np.roll(a, (1, -1), (0, 1)) + np.roll(a, 5),
    "cumsum": lambda a, _: np.cumsum(a, axis=0),
    "sort": lambda _, b: np.sort(b, axis=0),
    "concatenate": lambda a, b: np.concatenate([a, b, np.ones((1, 4))]),
    "concatenate axis": lambda a, b: np.concatenate((a, b[:, :1] > 0), axis=-1),
    "stack": lambda a, b: np.stack([a, b], axis=-1),
    "take": lambda a, _: np.take(a, [1, 0], axis=1),
    "take by keyword": lambda a, _: np.take(a, indices=[0, 1, 0], axis=0),
    "tensordot by keyword": lambda a, b: np.tensordot(a, b=b.T, axes=1),
    "take flat": lambda a, _: np.take(a, a.astype(int)[0]),
    "pad": lambda a, _: np.pad(a, ((1, 0), (2, 1))) + np.pad(a, ((0, 1), (1, 2)), mode="edge"),
    "matmul": lambda a, b: (a @ b.T) @ a,
    "matmul vectors": lambda a, _: (a @ V) @ a + V * (V @ a.T)[0],
    "matmul stacks": lambda a, b: np.stack([a, b]) @ a.T,
    "tensordot": lambda a, b: np.tensordot(a, b, axes=([1], [1])),
    "tensordot count": lambda a, b: np.tensordot(a, b.T, 1),
    "einsum": lambda a, b: np.einsum("ij, kj -> ik", a, b),
    "einsum implicit": lambda a, b: np.einsum("ij,jk", a, b.T),
    "einsum dots": lambda a, b: np.einsum("i...,i...->...", a, b),
    "likes": lambda a, _: np.zeros_like(a) + np.ones_like(a, dtype="f4") + np.full_like(a, 3),
    "unpacked": lambda a, _: operator.add(*a[:2]),
    "divmod parts": lambda a, b: a // b + np.remainder(a, b),
    "copy": lambda a, _: np.copy(a),
    "square": lambda a, b: (a > b) ** 2,
    "powers": lambda a, b: a**2 + b**2.0 + 2**a + a ** (b > 3) + a ** np.float64(2),
    "conjugate": lambda a, b: (a > b).conj(),
    "keepdims": lambda a, _: np.sum(a, axis=1, keepdims=1) + np.mean(a, keepdims=1),
    "positional": lambda a, _: a.sum(0, float) + a.mean(0, None),
    "argmin": lambda a, b: a.argmax(1) + b.argmin(axis=1),
    "one bound": lambda a, _: a.clip(max=3) + a.clip(min=2),
    "ravel order": lambda a, b: a.ravel("F") + np.ravel(b, order="F"),
    "joined flat": lambda a, b: np.concatenate([a, b[0]], axis=None),
    "joined type": lambda a, b: np.concatenate([a, b], dtype="c16") + 1,
    "vstack": lambda a, b: np.vstack([a, b[0], [1, 2, 3, 4]]),
    "hstack": lambda a, b: np.hstack([a, b]),
    "hstack flat": lambda a, b: np.hstack([a[0], b[0], 3]),
    "einsum of nothing": lambda a, b: np.einsum("i,i->i", a[:1, 0], b[:0, 0]),
    "take of nodes": lambda a, b: np.take(a[0], (b > 0).astype(int)) + np.vecdot(a, b)[:, None],
    "empty": lambda a, _: a[:0].sum(axis=1) + np.roll(a[:0], 1, axis=0)[:, 0],
    "matrix of constants": lambda a, _: np.multiply(np.eye(3)[:, :1], a),
}


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_expressions_are_those_of_numpy(name, dtype):
    values = A.astype(dtype), (B + 0.5).astype(dtype)
    nodes = [graph.make_placeholder(key, A.shape, dtype) for key in "ab"]
    expected = np.asarray(EXPRESSIONS[name](*values))
    node = EXPRESSIONS[name](*nodes)
    assert isinstance(node, graph.Array)
    assert (node.shape, node.dtype) == (expected.shape, expected.dtype)
    found = compute(node, a=values[0], b=values[1])
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(found, expected)


def test_promotion_is_that_of_numpy_2():
    x = graph.make_placeholder("x", (2,), "f4")
    assert (x + 1.5).dtype == "f4"
    assert (x + np.float64(1.5)).dtype == "f8"
    assert (x + 1j).dtype == "c8"
    assert (graph.make_placeholder("n", (2,), "u1") + 3).dtype == "u1"
    flag = graph.make_placeholder("b", (), "?")
    assert [(flag + one).dtype.kind for one in (1, True, 1.0)] == ["i", "b", "f"]  # all are equal
    with pytest.raises(OverflowError):
        graph.make_placeholder("n", (2,), "u1") + 300


def test_call_runs_any_function():
    x = graph.make_placeholder("x", (8,))
    half = graph.call(np.fft.rfft, x, shape=5, dtype=complex)
    back = graph.call(np.fft.irfft, half, 8, shape=(8,), dtype=float)
    same = graph.call(lambda values: values * 1, x)
    values = np.random.default_rng(0).random(8)
    found = compute({"half": half, "back": back, "same": same}, x=values)
    np.testing.assert_array_equal(found["half"], np.fft.rfft(values))
    np.testing.assert_allclose(found["back"], values)
    np.testing.assert_array_equal(found["same"], values)


def test_results_of_call_are_checked():
    x = graph.make_placeholder("x", (8,))
    with pytest.raises(ArgumentError, match=r"rfft.*returned shape \(5,\).*announced with shape"):
        compute(graph.call(np.fft.rfft, x, shape=4, dtype=complex), x=np.ones(8))
    with pytest.raises(ArgumentError, match="node"):
        graph.call(np.zeros, 3, shape=3, dtype=float)


def test_sources():
    data = np.arange(3.0)
    wrapped = graph.make_data_wrapper(data)
    assert wrapped.data is data
    total = wrapped + graph.zeros(3) + graph.ones((2, 3), "f4") + graph.full((), 0.5)
    np.testing.assert_array_equal(compute(total), [data + 1.5] * 2)
    assert graph.zeros((1000,) * 5).nbytes == 8 * 10**15  # which takes no memory
    outputs = graph.make_dict_of_named_arrays({"b": wrapped, "a": total})
    assert list(outputs) == ["b", "a"]
    assert outputs["a"] is total
    assert len(outputs) == 2


def test_nodes_are_compared_by_identity():
    x, y = (graph.make_placeholder("x", 3) for _ in range(2))
    assert x == x  # noqa: PLR0124
    assert x != y
    assert not x == y  # noqa: SIM201
    assert {x: 1, "x": 2}[x] == 1
    assert len({x, y, x}) == 2
    assert isinstance(np.equal(x, y), graph.Call)


def test_assigning_in_place_makes_a_new_node():
    x = before = graph.make_placeholder("x", 3)
    x += 1
    x *= 2
    assert x is not before
    np.testing.assert_array_equal(compute({"x": x, "b": before}, x=np.ones(3))["x"], [4, 4, 4])


@pytest.mark.parametrize("use", [bool, float, int, complex, np.asarray, np.array, operator.index])
def test_nodes_have_no_value_yet(use):
    with pytest.raises(TypeError, match="no value yet"):
        use(graph.make_placeholder("x", ()))


def test_texts_of_nodes():
    x = graph.make_placeholder("x", (3, 4))
    assert repr(x) == "<Placeholder 'x' (3, 4) float64>"
    assert repr(np.sin(x)) == "<Call sin (3, 4) float64>"
    assert repr(graph.make_distributed_recv(1, "t", 3, "i4")) == (
        "<DistributedRecv 't' from rank 1 (3,) int32>"
    )
    assert (x.ndim, x.size, x.nbytes, len(x)) == (2, 12, 96, 3)
    assert (np.shape(x), np.ndim(x), np.size(x), np.size(x, 1)) == ((3, 4), 2, 12, 4)
    assert not np.iscomplexobj(x)
    assert np.result_type(x, 1j) == np.dtype(complex)


def test_tags_stay_where_they_are_put():
    class Mine(graph.Tag):
        pass

    mine = Mine()
    x = graph.make_placeholder("x", 3, tags=frozenset({mine}))
    assert x.tags == {mine}
    y = (x + 1).tagged(mine, "also")
    assert y.tags == {mine, "also"}
    np.testing.assert_array_equal(compute(y, x=np.zeros(3)), np.ones(3))


x34 = graph.make_placeholder("x", (3, 4))
WRONG = {
    "unknown function": (lambda: np.fft.fft(x34), TypeError, r"fft has no rule.*call\("),
    "unknown method": (lambda: np.add.outer(x34, x34), TypeError, "add.outer has no rule"),
    "several results": (lambda: np.divmod(x34, 2), TypeError, "has no rule"),
    "out": (lambda: np.add(x34, 1, out=np.empty((3, 4))), TypeError, "does not take out"),
    "out by position": (lambda: np.add(x34, 1, np.empty(())), TypeError, "does not take out"),
    "where": (lambda: np.sum(x34, where=x34 > 1), TypeError, "does not take where"),
    "keyword": (lambda: np.clip(x34, a_min=x34, a_max=2), TypeError, "by position"),
    "known keyword": (lambda: np.clip(x34, a_min=np.ones((3, 4)), a_max=2), TypeError, "position"),
    "pad keyword": (lambda: np.pad(x34, 1, constant_values=x34.sum()), TypeError, "by pos"),
    "pad dict": (lambda: np.pad(x34, {0: (1, 2)}), TypeError, "not as a dict"),
    "ravel": (lambda: np.ravel(x34, order="K"), ArgumentError, "depends on memory"),
    "equal": (lambda: x34 == 1, TypeError, r"numpy\.equal"),
    "not equal": (lambda: np.where(x34 != 0, 1 / x34, 0), TypeError, r"numpy\.not_equal"),
    "objects": (lambda: graph.full(3, None), TypeError, "objects"),
    "recv dtype": (lambda: graph.DistributedRecv((3,), object, 0, "t"), TypeError, "objects"),
    "shapes": (lambda: x34 + np.ones(3), ValueError, r"shapes \(3,4\) \(3,\)"),
    "axis": (lambda: x34.sum(axis=2), np.exceptions.AxisError, "axis 2"),
    "reshape": (lambda: x34.reshape(5, 2), ValueError, "cannot reshape"),
    "index": (lambda: x34[3], IndexError, "out of bounds"),
    "computed index": (lambda: x34[x34 > 0], TypeError, "numpy.take"),
    "matmul": (lambda: x34 @ x34, ValueError, r"mismatch .*\(size 3 is different from 4\)"),
    "matmul number": (lambda: x34 @ np.float64(2), ValueError, "not have enough dimensions"),
    "concatenate": (
        lambda: np.concatenate([x34, x34.T]),
        ArgumentError,
        "must be equal but along axis 0",
    ),
    "stack": (lambda: np.stack([x34, x34.T]), ArgumentError, r"\(4, 3\) must be equal; reshape"),
    "cumsum": (lambda: np.cumsum(x34), TypeError, "needs axis="),
    "einsum messages": (lambda: np.einsum("ijk->i", x34), ValueError, "too many subscripts"),
    "einsum result": (lambda: np.einsum("ij->k", x34), ValueError, "never appeared in an input"),
    "einsum extents": (lambda: np.einsum("ij,ij", x34, x34.T), ValueError, r"\(4,3\)"),
    "einsum terms": (lambda: np.einsum("ij", x34, x34), ValueError, "operands provided to"),
    "tensordot": (lambda: np.tensordot(x34, x34, 1), ValueError, "shape-mismatch for sum"),
    "placeholder name": (lambda: graph.make_placeholder(3, 3), TypeError, "name must be a str"),
    "placeholder shape": (lambda: graph.make_placeholder("x", -1), ArgumentError, "negative"),
    "placeholder dtype": (lambda: graph.make_placeholder("x", 3, object), TypeError, "objects"),
    "data": (lambda: graph.make_data_wrapper(x34), TypeError, "no value yet"),
    "send data": (lambda: graph.make_distributed_send(A, 0, "t"), TypeError, "sent_data"),
    "send rank": (lambda: graph.make_distributed_send(x34, -1, "t"), ArgumentError, "dest_rank"),
    "recv rank": (lambda: graph.make_distributed_recv("0", 1, 3, "f8"), TypeError, "src_rank"),
    "tag": (lambda: graph.make_distributed_recv(0, [], 3, "f8"), TypeError, "hashable"),
    "staple": (lambda: graph.staple_distributed_send(x34, 0, 1, A), TypeError, "passthrough"),
    "outputs": (lambda: graph.make_dict_of_named_arrays({"x": A}), TypeError, "output 'x'"),
    "length": (lambda: len(x34.sum()), TypeError, "no length"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_raise_when_the_graph_is_built(name):
    func, kind, text = WRONG[name]
    with pytest.raises(kind, match=text):
        func()


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.thorough)])
def test_many_nodes_need_no_recursion(count):
    x = node = graph.make_placeholder("x", ())
    for _ in range(count):
        node = node + 1
    assert compute(node, x=0.0) == count
    del node
    wide = x
    for _ in range(20):  # a million paths, twenty nodes
        wide = wide + wide
    assert compute(wide, x=1.0) == 2**20


def test_errors_name_the_node():
    def fail(values, factor):
        return values @ factor / 0

    x = graph.make_placeholder("x", (3,))
    with pytest.raises(ValueError, match="matmul") as caught:
        compute(graph.call(fail, x, np.ones(4)), x=np.ones(3))
    assert caught.value.__notes__ == [
        "in a node of a graph: fail(float64 of shape (3,), float64 of shape (4,))"
    ]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("y", 1, r"no 'x'.*it has \['y'\]"),
        ("x", np.ones(2), r"shape \(2,\)"),
        ("x", np.ones(3, "f4"), "float32"),
    ],
)
def test_inputs_are_checked(name, value, text):
    x = graph.make_placeholder("x", (3,))
    with pytest.raises(ArgumentError, match=text):
        compute(x + 1, **{name: value})
    with pytest.raises(ArgumentError, match="two different inputs"):
        compute(x + graph.make_placeholder("x", ()), x=np.ones(3))


FIT = [("f8", 3), ("f4", 0.1), (">f8", np.float64(0.1)), ("c8", 2.5), ("u1", True), ("u1", 255)]
TOO_LARGE = [("u1", 256), ("i8", 1.9), ("i8", np.float64(1.5)), ("f8", 1j), ("?", 2)]
TOO_LARGE += [("f4", np.float64(1e300))]


@pytest.mark.parametrize(("dtype", "value"), FIT + TOO_LARGE)
def test_numbers_are_converted_to_what_can_hold_them(dtype, value):
    x = graph.make_placeholder("x", (), dtype)
    if (dtype, value) in FIT:
        assert compute({"x": x}, x=value)["x"] == np.asarray(value).astype(dtype)
        return
    with pytest.raises(ArgumentError, match=r"announced|too large"):
        compute({"x": x}, x=value)


def test_an_index_is_what_it_was():
    x = graph.make_placeholder("x", (3,))
    mask, places = np.array([True, False, True]), [0, 1]
    outputs = {"masked": x[mask], "picked": x[places]}
    mask[:] = True
    places[:] = [2, 2]
    found = compute(outputs, x=np.arange(3.0))
    np.testing.assert_array_equal(found["masked"], [0, 2])
    np.testing.assert_array_equal(found["picked"], [0, 1])


def test_receives_can_be_made_directly():
    got = graph.DistributedRecv(3, "f4", 0, "t")
    assert (got.shape, got.dtype, got.nbytes) == ((3,), np.dtype("f4"), 12)


def test_tags_of_messages_can_be_any_data():
    tag = ("halo", 3, frozenset({1}))
    send = graph.make_distributed_send(x34, 1, tag)
    assert send.comm_tag == pickle.loads(pickle.dumps(tag))
    recv = graph.make_distributed_recv(1, tag, [3, 4], "f8", axes=("x", "y"))
    assert (recv.shape, recv.axes) == ((3, 4), ("x", "y"))
