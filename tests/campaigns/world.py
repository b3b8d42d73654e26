"""What cases run in: a communicator, pencils, global data; and what NumPy computes from the data.

Every rank has the global data and computes the expected block itself, so checks do not communicate.
"""

import hashlib
from functools import cache

import numpy as np

import pencils
from pencils import Pencil

SHAPE = (9, 7, 10)
POINTS, ROWS = 23, 5
TAGS = range(7)  # of the data of fields


@cache
def numbers(shape, dtype="f8", tag=0):
    """Return global data of small whole numbers, whose sums are exact."""
    dtype = np.dtype(dtype)
    values = (np.arange(int(np.prod(shape))) * 7919 + 31 * tag) % 1009
    if dtype.kind == "b":
        values = values % 3 == 0
    elif dtype.kind == "c":
        values = values - 1j * values[::-1]
    elif dtype.itemsize == 1:
        values %= 113
    data = values.astype(dtype).reshape(shape)
    data.flags.writeable = False
    return data


class World:
    """Pencils on a communicator, fields, and a record of all that a case has computed.

    Attributes
    ----------
    found : list of numpy.ndarray
        Copies of results, in the order of their checks.
    fields : list of PencilArray
        Those that `field` and `zeros` have made.
    points, rows : int
        Points that each rank reads or writes, and items of a collection that it has.
    """

    def __init__(self, comm, folder, *, seed=0, shape=SHAPE, points=POINTS, rows=ROWS):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.folder, self.seed, self.shape = folder, seed, shape
        self.points, self.rows = points, rows
        self.fields = []
        self.pen = Pencil(shape, comm)
        self.across = self.pen.with_(decomp=len(shape) - 1)
        self.data = numbers(shape)
        self.found = []

    def rng(self, rank=0, tag=0):
        """Return a generator; that of any rank can be made on all ranks."""
        return np.random.default_rng([self.seed, rank, tag])

    def root(self, value, root=0):
        """Return the value on the root, and None elsewhere."""
        return value if self.rank == root else None

    # Fields.

    def field(self, pen=None, *, tag=0, **options):
        """Return a field of known global data."""
        u = self.zeros(self.pen if pen is None else pen, **options)
        self.refill(u, tag)
        return u

    def zeros(self, pen, **options):
        """Return a field to write to."""
        u = pencils.zeros(pen, **options)
        self.fields.append(u)
        return u

    def refill(self, u, tag=0, *, ghosts=None):
        """Set a field to known global data, and its ghosts to a number, if any."""
        if ghosts is not None:
            u.padded[...] = ghosts
        u.local[...] = numbers(u.shape, u.dtype.str, tag)[u.local_slices]

    def expected(self, u, tag=0):
        """Return the global data of a field of this shape."""
        return numbers(u.shape, u.dtype.str, tag)

    def keeps(self, u):
        """Whether a field still holds what it did before a call that only copies to it."""
        known = (self.expected(u, tag)[u.local_slices] for tag in TAGS)
        filled = numbers(u.padded.shape, u.dtype.str, self.rank)  # by `fill_padded`
        return (
            not u.local.any()
            or any(np.array_equal(u.local, data) for data in known)
            or np.array_equal(u.padded, filled)
        )

    # Checks, which record what was found.

    def record(self, value):
        self.found.append(np.array(value))

    def holds(self, u, data):
        """Check that the own block is that of global data."""
        assert u.shape == data.shape, (u.shape, data.shape)
        self.equal(u.local, data[u.local_slices])

    def holds_about(self, u, data):
        assert u.shape == data.shape, (u.shape, data.shape)
        self.about(u.local, data[u.local_slices])

    def equal(self, value, expected):
        """Check that an array has these values, and this element type."""
        value, expected = np.asarray(value), np.asarray(expected)
        self.record(value)
        assert value.shape == expected.shape, (value.shape, expected.shape)
        assert value.dtype == expected.dtype, (value.dtype, expected.dtype)
        wrong = np.argwhere(value != expected)
        assert not len(wrong), f"{len(wrong)} wrong values, the first one at {wrong[0].tolist()}"

    def about(self, value, expected):
        """Check that an array has these values, up to rounding."""
        value = np.asarray(value)
        self.record(value)
        assert value.shape == np.shape(expected), (value.shape, np.shape(expected))
        assert np.allclose(value, expected, rtol=1e-9, atol=1e-9), "other values"

    def gives(self, found, expected, *, rounded=False):
        """Check a result that is a field, an array or a number."""
        if isinstance(found, pencils.PencilArray):
            (self.holds_about if rounded else self.holds)(found, expected)
        else:
            (self.about if rounded else self.equal)(found, expected)

    def raises(self, kind, call, text=""):
        """Check that a call raises an error of this class, with a text, on this rank."""
        found = None
        try:
            call()
        except kind as error:
            found = str(error)
        assert found is not None, f"no {kind.__name__}"
        assert text in found, (text, found)
        self.record(found.replace(str(self.folder), "").encode())

    def digest(self):
        """Return a number of all bits that were found."""
        summed = hashlib.blake2b(digest_size=8)
        for value in self.found:
            summed.update(repr((value.shape, value.dtype.str)).encode())
            summed.update(value.tobytes())
        return summed.hexdigest()

    # Points and items that each rank reads and writes.

    def coords(self, rank, count=None):
        count = self.points if count is None else count
        return [self.rng(rank).integers(0, n, count) for n in self.shape]

    def everyones_coords(self):
        """Return the points of all ranks, in the order in which they are written."""
        every = [self.coords(rank) for rank in range(self.size)]
        return [np.concatenate(along) for along in zip(*every, strict=True)]

    @property
    def cuts(self):
        return self.rows * np.arange(self.size + 1)

    @property
    def section(self):
        """Return the rows of the own section of a collection."""
        return slice(self.rows * self.rank, self.rows * (self.rank + 1))

    def items(self, rank):
        """Return the items that a rank reads; some of them twice, and on some ranks none."""
        return self.rng(rank, 1).integers(0, self.cuts[-1], rank % 4 * 6 * (self.rows // ROWS))

    @property
    def mine(self):
        """Return where the values of this rank are among those of all ranks."""
        counts = [len(self.items(rank)) for rank in range(self.size)]
        start = sum(counts[: self.rank])
        return slice(start, start + counts[self.rank])

    def everyones_items(self):
        return np.concatenate([self.items(rank) for rank in range(self.size)])


def padded_indices(u, rank=None):
    """Return the global index of each padded point along each space dimension of a field."""
    box = u.extent.layout.box(u.pencil.rank if rank is None else rank)
    return [
        np.arange(start - lo, stop + hi)
        for start, stop, (lo, hi) in zip(box.start, box.stop, u.halo, strict=True)
    ]


def ghost_mask(u, *, corners=True):
    """Return masks of the padded points to be filled: inside of the domain, and outside."""
    along = padded_indices(u)
    box = u.extent.layout.box(u.pencil.rank)
    shape = u.shape[len(u.components) :]
    inside = np.ones([1] * len(shape), bool)
    beyond = np.zeros([1] * len(shape), int)
    for dim, index in enumerate(along):
        view = [1] * len(shape)
        view[dim] = -1
        wraps = u.pencil.periodic[dim]
        known = np.ones(len(index), bool) if wraps else (index >= 0) & (index < shape[dim])
        inside = inside & known.reshape(view)
        own = (index >= box.start[dim]) & (index < box.stop[dim])
        beyond = beyond + (~own).reshape(view)
    return inside & (beyond <= 1) if not corners else inside


def padded_block(u, data):
    """Return the padded block of global data, with periodic dimensions; elsewhere it repeats."""
    along = [
        index % extent if extent else index
        for index, extent in zip(padded_indices(u), u.shape[len(u.components) :], strict=True)
    ]
    return data[(..., *np.ix_(*along))]


def check_ghosts(w, u, data, before, *, corners=True):
    """Check the padded block after an exchange; `before` is the value of points without data."""
    if not u.local.size:
        return
    mask = ghost_mask(u, corners=corners)
    w.equal(u.padded, np.where(mask, padded_block(u, data), before).astype(u.dtype))


def accumulated(u, tag=0):
    """Return global data, with the ghosts of all ranks added that `fill_padded` writes."""
    total = np.zeros(u.shape, u.dtype)
    for rank in range(u.pencil.size):
        along = padded_indices(u, rank)
        box = u.extent.layout.box(rank)
        if not box.volume:
            continue
        values = numbers(tuple(map(len, along)), u.dtype.str, tag + rank)
        keep = [
            np.ones(len(index), bool) if wraps else (index >= 0) & (index < extent)
            for index, wraps, extent in zip(along, u.pencil.periodic, u.shape, strict=True)
        ]
        where = [
            index[kept] % extent for index, kept, extent in zip(along, keep, u.shape, strict=True)
        ]
        np.add.at(total, np.ix_(*where), values[np.ix_(*keep)])
    return total


def fill_padded(u, tag=0):
    """Write known numbers to the padded block."""
    u.padded[...] = numbers(u.padded.shape, u.dtype.str, tag + u.pencil.rank)
