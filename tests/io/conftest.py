"""Global arrays of any dtype, files on rank 0, verdicts that all ranks share."""

import os
import tempfile
from itertools import permutations
from pathlib import Path

import h5py
import numpy as np
import pytest

import pencils


def fill(rng, shape, dtype):
    if dtype.names:
        array = np.zeros(shape, dtype)
        for name in dtype.names:
            kind = dtype[name]
            base, inner = kind.subdtype or (kind, ())
            array[name] = fill(rng, shape + inner, base)
        return array
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "SV":
        count = int(np.prod(shape)) * dtype.itemsize
        return rng.integers(65, 91, count, np.uint8).view(dtype).reshape(shape)
    if dtype.kind in "iu":
        return rng.integers(-100, 100, shape).astype(dtype)
    values = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype.kind == "c" else 0)
    return values.astype(dtype)


def is_part(field, array):
    part = array[field.local_slices]
    return (
        field.shape == array.shape
        and field.dtype == array.dtype
        and np.array_equal(field.local, part)
        and (array.dtype.char in "Vg" or field.local.tobytes() == part.tobytes())
    )


def is_dataset(thing):
    return isinstance(thing, h5py.Dataset)


class Lab:
    """What the tests here do over and over; everything but `numbers` is collective."""

    def __init__(self, comm):
        self.comm = comm
        self.rng = np.random.default_rng(7)

    def numbers(self, shape, dtype=float):
        """Make a global array, the same on every rank."""
        return fill(self.rng, tuple(shape), np.dtype(dtype))

    def on_root(self, function, *args):
        """Call a function on rank 0; its result, or that it raises, is that of every rank."""
        result = fault = None
        if self.comm.rank == 0:
            try:
                result = function(*args)
            except BaseException as error:  # noqa: BLE001 - told to all ranks
                fault = f"{type(error).__name__}: {error}"
        result, fault = self.comm.bcast((result, fault))
        assert fault is None, fault
        return result

    def look(self, path, function, mode="r"):
        """Return what a function finds, or changes, in the open file on rank 0, for all."""

        def run():
            with h5py.File(path, mode) as file:
                return function(file)

        return self.on_root(run)

    def stored(self, path):
        """Read all datasets by plain h5py on rank 0, for all."""
        return self.look(
            path, lambda file: {name: file[name][...] for name in file if is_dataset(file[name])}
        )

    def everywhere(self, condition):
        """Whether it is true on every rank."""
        return all(self.comm.allgather(bool(condition)))

    def holds(self, field, array):
        """Whether a field has the values of a global array, byte for byte where all bytes count."""
        return self.holds_all({"": field}, {"": array})

    def holds_all(self, fields, arrays):
        """Whether every field has the values of the array of its name."""
        return self.everywhere(all(is_part(fields[name], arrays[name]) for name in arrays))

    def raised(self, function, *args, **kwargs):
        """Call a function that has to raise the same on every rank; its type and text here."""
        mine = None
        try:
            function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - compared by the test
            mine = type(error), str(error)
        found = self.comm.allgather(mine)
        assert None not in found, f"not raised on ranks {[r for r, f in enumerate(found) if not f]}"
        assert len({kind for kind, _ in found}) == 1, found
        return mine

    def refuses(self, kind, texts, function, *args, **kwargs):
        """Call a function that has to raise this error on every rank, with these texts in it."""
        found, said = self.raised(function, *args, **kwargs)
        assert found is kind
        assert all(text in said for text in ([texts] if isinstance(texts, str) else texts)), said

    def some_pencils(self, shape, count=4, seed=0):
        """Pencils of one shape that differ in all that a pencil may differ in."""
        rng = np.random.default_rng(seed)
        dims = range(len(shape))
        orders = list(permutations(dims))
        for _ in range(count):
            decomp = [int(dim) for dim in rng.permutation(len(shape))]
            yield pencils.Pencil(
                shape,
                self.comm,
                decomp=decomp[: int(rng.integers(1, len(shape) + 1))],
                order=orders[int(rng.integers(len(orders)))],
                splits=str(rng.choice(["first", "last", "floor", "ceil"])),
                periodic=[bool(flag) for flag in rng.integers(0, 2, len(shape))],
            )

    def cases(self, shape, count, seed):
        """Fields and their global arrays: components, singletons, halos, memory orders."""
        rng = np.random.default_rng(seed)
        for pencil in self.some_pencils(shape, count, seed):
            components = [(), (3,), (2, 2), (0,)][int(rng.integers(4))]
            varying = [dim for dim in range(len(shape)) if rng.random() < 0.7]
            extents = [n if dim in varying else 1 for dim, n in enumerate(shape)]
            array = self.numbers((*components, *extents))
            field = pencils.zeros(
                pencil,
                dtype=array.dtype,
                components=components,
                dims=varying,
                halo=[int(rng.integers(3)) if dim in varying else 0 for dim in range(len(shape))],
            )
            field.local[...] = array[field.local_slices]
            yield field, array


@pytest.fixture
def lab(comm):
    return Lab(comm)


@pytest.fixture
def path(mpi_tmp_path):
    return mpi_tmp_path / "a.h5"


@pytest.fixture
def pencil(comm):
    return pencils.Pencil((6, 5, 4), comm)


@pytest.fixture
def u(comm):
    return pencils.ones(pencils.Pencil((4, 5), comm))


@pytest.fixture
def memory_path():
    """Make a folder of this process where nothing waits for a disk, if there is such a place."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="pencils-", dir=memory) as folder:
        yield Path(os.path.realpath(folder))
