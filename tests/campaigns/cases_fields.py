"""Cases: fields come and go."""

import numpy as np
from cases import case, each
from mpi4py import MPI
from world import numbers

import pencils
from pencils import Pencil


@case
def make_pencil(w):
    def call():
        pen = Pencil(w.shape, w.comm, periodic=True)
        w.equal(np.array([pen.box().volume]), [np.prod(pen.local_shape)])
        boxes = [pen.box(rank).volume for rank in range(w.size)]
        w.equal(np.array(sum(boxes)), np.array(w.data.size))

    return call


@case
def make_pencil_on_a_copy(w):
    def call():
        comm = w.comm.Dup()
        u = w.field(Pencil(w.shape, comm, decomp=(1, 2)))
        w.equal(u.sum(), w.data.sum())
        comm.Free()

    return call


@case
def create_shared(w):
    def call():
        u = pencils.full(w.pen, 2.5, shared=True)
        w.holds(u, np.full(w.shape, 2.5))
        w.refill(u)
        w.equal(u.take_points(w.coords(w.rank)), w.data[tuple(w.coords(w.rank))])

    return call


@each({"uniform": pencils.random.uniform, "normal": pencils.random.normal})
def random(w, value):
    alone = value(Pencil(w.shape, MPI.COMM_SELF), 7)
    return lambda: w.holds(value(w.pen, 7), alone.local)


@each(
    {
        "view": {"root": None},
        "root": {"root": 0},
        "last": {"root": -1},
        "halo": {"root": 0, "halo": 1},
        "components": {"root": 0, "components": 3},
    }
)
def partition(w, value):
    value = dict(value)
    data = numbers((value.pop("components", 1), *w.shape)) if "components" in value else w.data
    root = None if value["root"] is None else value.pop("root") % w.size
    value["root"] = root

    def call():
        given = data if root is None else w.root(data, root)
        w.holds(pencils.partition(w.pen, given, **value), data)

    return call


@case
def partition_plane(w):
    def call():
        plane = numbers((w.shape[0], w.shape[2]))
        u = pencils.partition(w.pen, w.root(plane), root=0, dims=(0, 2))
        w.holds(u, plane[:, None, :])

    return call


@case
def partition_lazy(w):
    class Lazy:
        shape, dtype = w.shape, np.dtype(float)

        def __getitem__(self, key):
            return w.data[key].copy()

    return lambda: w.holds(pencils.partition(w.pen, w.root(Lazy()), root=0), w.data)


@each(
    {
        "root": {},
        "last": {"root": -1},
        "all": {"root": None},
        "key": {"key": np.s_[::-2, 3:]},
        "plane": {"key": np.s_[2], "root": None},
    }
)
def gather(w, value):
    u = w.field()
    root = value.get("root", 0)
    root = root if root is None else root % w.size

    def call():
        found = pencils.gather(u, **value | {"root": root})
        if root is None or w.rank == root:
            w.equal(found, w.data[value.get("key", ...)])
        else:
            assert found is None

    return call


@case
def gather_padded(w):
    u = w.field(w.pen.with_(decomp=(1, 2), order=(2, 0, 1)), halo=2, dtype="c16", components=2)
    return lambda: w.equal(pencils.gather(u, root=None), w.expected(u))


@case
def gather_of_planes(w):
    u = w.field(dims=(2, 0))
    root = w.size - 1

    def call():
        found = pencils.gather(u, root=root, dims=(2, 0))
        if w.rank == root:
            w.equal(found, w.expected(u)[:, 0, :].T)

    return call


@case
def localgrid(w):
    axes = [np.arange(float(n)) * (1 + dim) for dim, n in enumerate(w.shape)]

    def call():
        x, y, z = pencils.localgrid(w.pen, axes)
        a, b, c = np.meshgrid(*axes, indexing="ij")
        w.holds(x * y + z, a * b + c)
        w.equal(pencils.gather(y, root=None), axes[1].reshape(1, -1, 1))

    return call
