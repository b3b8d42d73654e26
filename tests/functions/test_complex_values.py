"""Infinities and NaN in complex fields: where NumPy has them, in real and imaginary parts."""

import numpy as np
import pytest
from fields import spread
from mpi_helpers import everywhere

import pencils

pytestmark = [
    pytest.mark.parallel([1, 2, 3, 4, 6]),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

SHAPE = (8, 9, 7)
AT = [np.cumsum(np.random.default_rng(n).uniform(0.1, 1, n)) for n in SHAPE]
SPECIAL = [
    complex(np.inf, 1),
    complex(-np.inf, np.nan),
    complex(np.nan, 2),
    complex(1, np.inf),
    complex(-0.0, 0),
    complex(0, -0.0),
    complex(np.inf, -np.inf),
    complex(-2, -np.inf),
]
LAYOUTS = [
    {"decomp": 0, "periodic": True},
    {"decomp": 2, "order": (1, 2, 0)},
    {"decomp": (1, 2), "order": (2, 0, 1)},
]


def drawn(dtype, seed):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(*SHAPE, 2)).view(complex)[..., 0]
    a.reshape(-1)[rng.choice(a.size, len(SPECIAL), replace=False)] = SPECIAL
    return a.astype(dtype)


def differ(found, expected):
    """Whether a part differs by more than rounding."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return True
    digits = 1e-5 if found.dtype.char in "fF" else 1e-11
    return not all(
        np.allclose(one, other, rtol=digits, atol=digits, equal_nan=True)
        for one, other in ((found.real, expected.real), (found.imag, expected.imag))
    )


# Functions of a field or an array `u`, and of an axis.
ALONG = {
    "gradient": lambda u, axis: np.gradient(u, 0.3, axis=axis),
    "gradient of order 2": lambda u, axis: np.gradient(u, 0.5, axis=axis, edge_order=2),
    "gradient at points": lambda u, axis: np.gradient(u, AT[axis], axis=axis),
    "gradient at points of order 2": lambda u, axis: np.gradient(
        u, AT[axis], axis=axis, edge_order=2
    ),
    "gradient by 1e-320": lambda u, axis: np.gradient(u, 1e-320, axis=axis),
    "gradient by a complex number": lambda u, axis: np.gradient(u, 1 + 0.5j, axis=axis),
    "diff": lambda u, axis: np.diff(u, axis=axis),
    "diff of order 3": lambda u, axis: np.diff(u, 3, axis=axis),
    "trapezoid": lambda u, axis: np.trapezoid(u, dx=0.3, axis=axis),
    "trapezoid at points": lambda u, axis: np.trapezoid(u, AT[axis], axis=axis),
    "average": lambda u, axis: np.average(u, axis, AT[axis]),
    "average by complex weights": lambda u, axis: np.average(u, axis, AT[axis] * (1 + 2j)),
    "cumsum": np.cumsum,
    "nancumsum": np.nancumsum,
    "cumprod": np.cumprod,
    "nancumprod": np.nancumprod,
}
EVERY = ["sum", "mean", "var", "std", "nansum", "nanmean", "nanvar", "nanstd", "average"]
ALONG |= {name: lambda u, axis, name=name: getattr(np, name)(u, axis=axis) for name in EVERY}
WHOLE = {name: lambda u, name=name: getattr(np, name)(u) for name in EVERY}
WHOLE |= {
    **{name: lambda u, name=name: getattr(np, name)(u) for name in ("angle", "sinc", "conj")},
    "vdot": lambda u: np.vdot(u, u),
    "count_nonzero": np.count_nonzero,
    "nan_to_num": np.nan_to_num,
    "polyval": lambda u: np.polyval([1.5, 2, 3], u),
    "interp": lambda u: np.interp(u.real, [0, 1, 2], [1, complex(np.inf, 2), 3]),
    "by a number": lambda u: u / 2 - 3 * u + 0.5j * u,
    "cross": lambda u: np.cross(np.stack([u, 2 * u, u / 3]), [1, 2, 3], 0, 0, 0),
    "einsum": lambda u: np.einsum("ij,j...->i...", [[1, 2], [3, 4]], np.stack([u, 1j * u])),
    "tensordot": lambda u: np.tensordot([[1, 2], [3, 4]], np.stack([u, 1j * u]), 1),
    "vecdot": lambda u: np.vecdot(np.stack([u, u]), np.stack([u, 1j * u]), axis=0),
}


def is_right(u, a, function, axis=None):
    """Whether the own part of what a function returns is that of NumPy's result."""
    found, expected = function(u), function(a)
    if isinstance(found, pencils.PencilArray):
        if axis is not None and expected.ndim < a.ndim:
            expected = np.expand_dims(expected, axis)
        found, expected = found.local, expected[found.local_slices]
    return not differ(np.asarray(found), np.asarray(expected))


@pytest.mark.parametrize("dtype", ["c16", "c8"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=["slabs", "ordered", "pencils"])
def test_functions(comm, layout, dtype):
    pencil = pencils.Pencil(SHAPE, comm, **layout)
    a = drawn(dtype, pencil.decomp[0])
    u = spread(pencil, a, halo=1)
    wrong = [name for name, function in WHOLE.items() if not is_right(u, a, function)]
    for axis in range(3):
        for name, function in ALONG.items():
            if not is_right(u, a, lambda x, f=function: f(x, axis), axis):  # noqa: B023
                wrong.append((name, axis))
    orders = None, 1, 2, 3, np.inf, -np.inf, 0
    wrong += [p for p in orders if differ(u.norm(p), np.linalg.norm(a.ravel(), p))]
    assert everywhere(comm, not wrong), wrong


@pytest.mark.parametrize("dtype", ["c16", "c8"])
@pytest.mark.parametrize("layout", LAYOUTS[:1] + LAYOUTS[2:], ids=["slabs", "pencils"])
def test_points(comm, layout, dtype):
    pencil = pencils.Pencil(SHAPE, comm, **layout | {"periodic": True})
    a = drawn(dtype, 3)
    u = spread(pencil, a, halo=1)
    points = np.random.default_rng(4).uniform(0, 6, (3, 50))
    low = points.astype(int)
    expected = np.zeros(50, dtype)
    for corner in np.ndindex(2, 2, 2):
        step = np.array(corner)[:, np.newaxis]
        share = np.prod(np.where(step, points - low, 1 - (points - low)), axis=0)
        expected = (expected + share * a[tuple(low + step)]).astype(dtype)
    assert everywhere(comm, not differ(pencils.indexer.interpolate(u, points), expected))
