"""Distributed transforms are equal to serial ones of the global array, and lead back."""

from math import prod

import numpy as np
import pytest
from fft_cases import close, draw, forward, random_names, random_shape
from mpi_helpers import all_raise, random_pencil

import pencils
from pencils.errors import ArgumentError
from pencils.fft import PencilFFT, directions, execute

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture(autouse=True, params=["in work memory", "in results"])
def place(request, monkeypatch):
    """Where fields before the last step lie."""
    if request.param == "in results":
        monkeypatch.setattr(directions, "LARGE", 0)


def check_plan(plan, a, expected):
    """Compare both directions with the global arrays, with and without fields to fill."""
    u = pencils.partition(plan.input_pencil, a, copy=True)
    u_hat = plan.forward(u)
    assert u_hat.pencil == plan.output_pencil
    assert u_hat.shape == expected.shape
    assert close(u_hat, expected)
    assert np.array_equal(u.local, a[u.local_slices])
    back = pencils.empty_like(u)
    before = u_hat.local.copy()
    assert plan.backward(u_hat, back) is back
    assert close(back, a)
    assert close(plan.backward(u_hat), a)
    assert np.array_equal(u_hat.local, before)
    again = pencils.empty_like(u_hat)
    assert plan.forward(back, again) is again
    assert close(again, expected)


@pytest.mark.parametrize("seed", range(30))
def test_random_plans(comm, backend, seed):
    """Any shape, axes, transforms, element type, pencil, components and norm."""
    rng = np.random.default_rng(seed)
    ndim = int(rng.integers(1, 6))
    shape = random_shape(seed, ndim)
    dtype = str(rng.choice(["f4", "f8", "c8", "c16"]))
    components = [(), (2,), (2, 1), (3,)][rng.integers(4)]
    norm = str(rng.choice(["backward", "ortho", "forward"]))
    axes, names, full = random_names(rng, ndim, dtype)
    a = draw((*components, *shape), dtype, seed)
    expected = forward(a, {axis + len(components): name for axis, name in full.items()}, norm)
    pen = random_pencil(rng, comm, shape)
    signed = [axis - ndim * int(rng.integers(2)) for axis in axes]
    with PencilFFT(
        pen,
        dtype,
        signed,
        [names[axis] for axis in axes],
        components=components,
        normalize=norm,
        backend=backend,
        check=bool(rng.integers(2)),
    ) as plan:
        check_plan(plan, a, expected)


@pytest.mark.parametrize("dtype", ["f4", "f8", "g"])
def test_one_wave_that_is_wrong_is_seen(comm, dtype):
    """By what compares here, in any precision."""
    pen = pencils.Pencil((8, 6, 10), comm)
    a = draw(pen.shape, dtype)
    expected = forward(a, {0: "c2c", 1: "c2c", 2: "r2c"})
    with PencilFFT(pen, dtype) as plan:
        u_hat = plan.forward(pencils.partition(pen, a))
    assert close(u_hat, expected)
    expected[-1, -1, -1] += 20 * np.finfo(dtype).eps * abs(expected).max()
    assert comm.allreduce(not close(u_hat, expected))


@pytest.mark.parametrize("shape", [(8, 6, 10), (5, 7, 3), (1, 1, 4), (2, 16)])
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_the_default_is_the_transform_of_numpy(comm, shape, dtype):
    a = draw(shape, dtype)
    expected = np.fft.rfftn(a) if dtype == "f8" else np.fft.fftn(a)
    with PencilFFT(pencils.Pencil(shape, comm), dtype) as plan:
        check_plan(plan, a, expected)
        assert plan.input_pencil == pencils.Pencil(shape, comm)
        assert (plan.dtype, plan.components) == (np.dtype(dtype), ())


# Shape, components first; element type; arguments of the pencil and of the plan; the transforms.
R, C = "r2c", "c2c"
PLANS = {
    "no components": [((0, 6, 4), "f8", {}, {"components": 0}, {1: C, 2: R})],
    "long numbers": [
        ((5, 6), dtype, {}, {"normalize": norm}, {0: C, 1: R if dtype == "g" else C})
        for dtype in "gG"
        for norm in ("backward", "ortho", "forward")
    ],
    # Also than waves: half of 4 points are 3.
    "more processes than points": [
        ((3, 2, 4), "f8", {"decomp": decomp}, {}, {0: C, 1: C, 2: R})
        for decomp in ((0, 1), (1, 2), (2,), (0, 1, 2))
    ],
    # One dimension is transformed where all of it lies: on one process.
    "decomposed lines": [
        ((17,), "f8", {}, {}, {0: R}),
        ((3, 8), "c16", {}, {"components": 3}, {1: C}),
    ],
    "Fourier x cosine x Fourier": [
        *(
            ((6, 5, 8), "f8", {}, {"transforms": transforms}, {0: C, 1: "dct1", 2: R})
            for transforms in ({1: "dct1"}, {-2: "dct1"}, ("fft", "dct1", "fft"))
        ),
        ((6, 5, 8), "c16", {}, {"transforms": {1: "dst3"}}, {0: C, 1: "dst3", 2: C}),
    ],
    # The first of the given axes is transformed last; of real data the last one is halved.
    "axes in another order": [((6, 4, 5), "f8", {}, {"axes": (1, 2, 0)}, {0: R, 1: C, 2: C})],
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_of_a_kind(comm, backend, name):
    for shape, dtype, cut, options, names in PLANS[name]:
        a = draw(shape, dtype)
        pencil = pencils.Pencil(shape["components" in options :], comm, **cut)
        with PencilFFT(pencil, dtype, backend=backend, **options) as plan:
            check_plan(plan, a, forward(a, names, options.get("normalize", "backward")))


def test_nothing_to_transform_is_a_copy(comm):
    a = draw((4, 5), float)
    pen = pencils.Pencil((4, 5), comm)
    for kinds in ({"axes": ()}, {"transforms": "none"}):
        with PencilFFT(pen, **kinds) as plan:
            assert plan.output_pencil == pen
            check_plan(plan, a, a)


@pytest.mark.parametrize("decomp", [0, 1, (0, 1), (2, 0)])
def test_waves_go_where_they_are_wanted(comm, decomp):
    """Another transpose brings them there, from wherever they were."""
    a = draw((6, 5, 8), float)
    pen = pencils.Pencil(a.shape, comm)
    output = pencils.Pencil((6, 5, 5), comm, decomp=decomp, order=(1, 2, 0))
    with PencilFFT(pen, output=output) as plan:
        assert plan.output_pencil is output
        check_plan(plan, a, np.fft.rfftn(a))


def test_lines_of_waves_are_whole_along_an_axis(comm):
    a = draw((4, 5, 6), float)
    pen = pencils.Pencil(a.shape, comm)
    for dim in range(3):
        axes = [d for d in range(3) if d != dim]
        with PencilFFT(pen, axes=axes, whole=dim) as plan:
            assert plan.output_pencil.process_shape[dim] == 1
            check_plan(plan, a, np.fft.rfftn(a, axes=axes))
    all_raise(comm, ArgumentError, "whole=1 must be", PencilFFT, pen, whole=1)


def test_fields_with_halos_and_other_memory_orders(comm, backend):
    """Halos are neither read nor written; a field may lie in memory in any way."""
    a = draw((6, 5, 8), float)
    pen = pencils.Pencil(a.shape, comm)
    expected = np.fft.rfftn(a)
    with PencilFFT(pen, backend=backend) as plan:
        u = pencils.full(pen.with_(order=(2, 0, 1)), -1.0, halo=2)
        u.local[...] = a[u.local_slices]
        u_hat = pencils.full(plan.output_pencil.with_(order=(0, 2, 1)), -2 + 0j, halo=1)
        plan.forward(u, u_hat)
        assert close(u_hat, expected)
        back = pencils.full(pen, -3.0, halo=1)
        plan.backward(u_hat, back)
        assert close(back, a)
        for field, value in ((u, -1), (u_hat, -2), (back, -3)):
            field.local[...] = value
            assert (field.padded == value).all()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("axes", [None, (0,), (0, 2)])
@pytest.mark.parametrize("decomp", [0, (0, 1)])
def test_fields_in_the_same_memory(comm, backend, shared, axes, decomp):
    """One program for any number of processes, whether a transpose comes between or not."""
    a = draw((6, 4, 4), complex)
    pen = pencils.Pencil(a.shape, comm, decomp=decomp)
    with PencilFFT(pen, complex, axes, backend=backend) as plan:
        u, u_hat = pencils.alias([pen, plan.output_pencil], complex, shared=shared)
        for _ in range(2):
            u.local[...] = a[u.local_slices]
            plan.forward(u, u_hat)
            assert close(u_hat, np.fft.fftn(a, axes=axes))
            plan.backward(u_hat, u)
            assert close(u, a)


def test_a_field_becomes_its_waves(comm, backend):
    """Also as another field on the same block."""
    a = draw((6, 4, 4), complex)
    pen = pencils.Pencil(a.shape, comm)
    with PencilFFT(pen, complex, output=pen, backend=backend) as plan:
        u = pencils.partition(pen, a, copy=True)
        same = pencils.PencilArray(pen, u.local)
        plan.forward(u, same)
        assert close(u, np.fft.fftn(a))
        plan.backward(u, u)
        assert close(u, a)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_fields_that_overlap_in_any_way(comm, backend, dtype, monkeypatch):
    """Shifted by some numbers, or taking turns in memory."""
    monkeypatch.setattr(execute, "PIECE", 100)
    a = draw((6, 4, 4), dtype)
    pen = pencils.Pencil(a.shape, comm, decomp=0)
    with PencilFFT(pen, dtype, axes=(1, 2), backend=backend) as plan:
        expected = (np.fft.rfftn if dtype == "f8" else np.fft.fftn)(a, axes=(1, 2))
        n, m = (prod(pencil.local_shape) for pencil in (pen, plan.output_pencil))
        for start in (0, 16, 48):
            memory = np.empty(16 * (2 * max(n, m) + 6), np.uint8)
            block = memory[start:][: n * a.itemsize].view(dtype).reshape(pen.local_shape)
            waves = memory[32:][: 16 * m].view(complex).reshape(plan.output_pencil.local_shape)
            u = pencils.PencilArray(pen, block)
            u_hat = pencils.PencilArray(plan.output_pencil, waves)
            u.local[...] = a[u.local_slices]
            plan.forward(u, u_hat)
            assert close(u_hat, expected)
            plan.backward(u_hat, u)
            assert close(u, a)
        if dtype == "f8":
            return
        both = np.empty((*pen.local_shape, 2), dtype)
        u, u_hat = (pencils.PencilArray(pen, both[..., i]) for i in range(2))
        u.local[...] = a[u.local_slices]
        plan.forward(u, u_hat)
        assert close(u_hat, expected)
        assert np.array_equal(u.local, a[u.local_slices])


@pytest.mark.parametrize("together", [0, 1000])
def test_large_planes_are_transformed_axis_by_axis(comm, backend, together, monkeypatch):
    """What does not fit in the cache is gone through once for each axis, or for some of them."""
    monkeypatch.setattr(execute, "TOGETHER", together)
    monkeypatch.setattr(execute, "PIECE", 500)
    shape = (6, 4, 5, 3)
    pen = pencils.Pencil(shape, comm, decomp=0)
    a = draw(shape, float)
    with PencilFFT(pen, backend=backend) as plan:
        check_plan(plan, a, np.fft.rfftn(a))
    with PencilFFT(pen, transforms={2: "dst2", 1: "none"}, backend=backend) as plan:
        check_plan(plan, a, forward(a, {0: "c2c", 2: "dst2", 3: "r2c"}))
    with PencilFFT(pen, dealias="3/2", backend=backend) as plan:
        waves = np.fft.rfftn(a)
        u = plan.backward(pencils.partition(plan.output_pencil, waves))
        assert close(plan.forward(u), waves)
