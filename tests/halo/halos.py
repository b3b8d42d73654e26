"""Fields of all kinds to exchange, and what ghosts must hold according to NumPy."""

from math import prod

import numpy as np
import pytest
from mpi_helpers import everywhere, mark_ways, numbered, random_pencil, reaching, same, spy_on

import pencils
from pencils import PencilArray

METHODS = reaching(["shared", "hybrid", "messages"])

# Every method of halos, and the one that knows nodes on parts of nodes; takes a module's own
# fixture `comm` that passes its parameter to `on_nodes`.
ways = mark_ways((*METHODS, "auto"))
few_ways = pytest.mark.parametrize(
    ("comm", "method"),
    [
        *(("real nodes", method) for method in reaching(["auto", "shared", "messages"])),
        ("two halves", "hybrid"),
    ],
    indirect=["comm"],
    ids=[*reaching(["auto", "shared", "messages"]), "hybrid two halves"],
)
routes = pytest.mark.parametrize("route", ["direct", "sweeps"])

# Largest extent and width for each number of dimensions: several blocks, and several periods.
LARGEST = {1: (9, 20), 2: (6, 7), 3: (5, 4), 4: (4, 2)}


def room(field, trimmed):
    """Tell how many points each side of a padded block has, if it ends where the domain ends."""
    box = field.extent.box
    along = enumerate(zip(box.start, box.stop, field.extent.shape, field.halo, strict=True))
    return [
        (lo - max(lo - start, 0), hi - max(stop + hi - n, 0)) if dim in trimmed else (lo, hi)
        for dim, (start, stop, n, (lo, hi)) in along
    ]


def trim(field, dims):
    """View a field without its points beyond the ends of some dimensions, like an imported one."""
    key = [
        slice(lo - before, lo + n + after)
        for n, (lo, _), (before, after) in zip(
            field.extent.local_shape, field.halo, room(field, dims), strict=True
        )
    ]
    return PencilArray.from_block(
        field.pencil,
        field.padded[(Ellipsis, *key)],
        field.singletons,
        field.halo,
        trimmed=frozenset(dims),
    )


def origins(field, *, corners=True):
    """Tell of which global point each point of the padded block is a copy, by number.

    Own points are copies of themselves. What no exchange touches is -1: boundary points, all points
    of ranks without own ones and, without `corners`, what lies beyond several dimensions.
    """
    shape = field.shape[len(field.components) :]
    box, widths = field.extent.box, room(field, field.trimmed)
    if box.volume == 0:
        return np.full(box.grow(widths).shape, -1)
    world = np.arange(prod(shape)).reshape(shape)
    for dim, width in enumerate(field.halo):
        pad = [width if d == dim else (0, 0) for d in range(len(shape))]
        if field.pencil.periodic[dim]:
            world = np.pad(world, pad, mode="wrap")
        else:
            world = np.pad(world, pad, constant_values=-1)
    block = world[box.grow(widths).slices([-lo for lo, _ in field.halo])]
    return block if corners else np.where(beyond(field) <= 1, block, -1)


def beyond(field):
    """Tell beyond how many dimensions each point of the padded block lies."""
    local = zip(field.extent.local_shape, room(field, field.trimmed), strict=True)
    return sum(np.ix_(*(np.repeat([1, 0, 1], [lo, n, hi]) for n, (lo, hi) in local)))


def replica(field):
    """Tell ranks apart that hold another copy of a field with singletons."""
    pencil = field.pencil
    where = zip(pencil.decomp, pencil.coords, strict=True)
    return tuple(coord for dim, coord in where if dim in field.singletons)


def exchanged(field, data, before, *, corners=True):
    """Tell what the padded block must hold after an exchange, given global data."""
    at = origins(field, corners=corners)
    found = before.copy()
    points = prod(data.shape[len(field.components) :])
    found[..., at >= 0] = data.reshape(*field.components, points)[..., at[at >= 0]]
    return found


def accumulated(field, *, corners=True):
    """Tell what the padded block must hold once its ghosts are added up. Collective."""
    at = origins(field, corners=corners)
    before = field.padded.copy()
    total = np.zeros((*field.components, prod(field.shape[len(field.components) :])), field.dtype)
    for other, here, block in field.pencil.comm.allgather((replica(field), at, before)):
        if other == replica(field):
            np.add.at(total, (..., here[here >= 0]), block[..., here >= 0])
    own = (beyond(field) == 0) & (at >= 0)
    before[..., at >= 0] = 0
    before[..., own] = total[..., at[own]]
    return before


def random_grid(rng, comm, shape):
    """Draw any pencil, some dimensions of which are periodic."""
    periodic = rng.random(len(shape)) < 0.6
    return random_pencil(rng, comm, shape).with_(periodic=periodic.tolist())


def random_shape(rng, ndim):
    shape = rng.integers(1, LARGEST[ndim][0] + 1, ndim).tolist()
    if rng.random() < 0.07:
        shape[rng.integers(ndim)] = 0
    return shape


def random_widths(rng, ndim):
    widths = rng.integers(0, LARGEST[ndim][1] + 1, (ndim, 2))
    widths[rng.random((ndim, 2)) < 0.2] = 0
    return widths.tolist()


def random_field(rng, pencil, dtype):
    """Draw a field without values, and lay its block in any memory with any strides.

    Some end with the domain along some dimensions, be they cut or not, as imported ones do.
    """
    ndim = pencil.ndim
    wide = rng.integers(ndim)  # here the field has a halo
    dims = [dim for dim in range(ndim) if rng.random() < 0.85 or dim == wide]
    halo = [w if dim in dims else (0, 0) for dim, w in enumerate(random_widths(rng, ndim))]
    halo[wide][rng.integers(2)] += 1
    lead = tuple(rng.integers(1, 4, rng.choice([0, 0, 1, 2])).tolist())
    lead = (0, *lead) if rng.random() < 0.05 else lead
    # Adopted by a pencil that goes through memory in another order.
    turned = pencil.with_(order=rng.permutation(ndim).tolist()) if rng.random() < 0.3 else pencil
    field = pencils.zeros(
        turned, dtype=dtype, components=lead, halo=halo, dims=dims, shared=rng.random() < 0.6
    )
    lies = rng.choice(list(LYING), pencil.size)
    if rng.random() < 0.5:
        lies[:] = lies[0]
    block = LYING[lies[pencil.rank]](field.padded, pencil.rank)
    field = PencilArray(pencil, block, halo=halo, dims=dims)
    return trim(field, np.flatnonzero(rng.random(ndim) < 0.7)) if rng.random() < 0.3 else field


LYING = {
    "as it was": lambda block, _: block,
    "backwards": lambda block, _: block[(slice(None, None, -1),) * block.ndim],
    "private": lambda block, _: block.copy(),
    "Fortran": lambda block, _: block.copy(order="F"),
    "sparse": lambda block, rank: np.repeat(block, 2 + rank, axis=-1)[..., :: 2 + rank],
}


def fill(field, seed=0):
    """Give a field values, anything in its halo, and return the global data and the whole block."""
    data = np.roll(numbered(field.shape, field.dtype).reshape(-1), seed).reshape(field.shape)
    padded = field.padded
    padded[...] = np.roll(numbered(padded.shape, field.dtype)[..., ::-1], 3 + seed, axis=-1)
    field.local[...] = data[field.local_slices]
    return data, padded.copy()


def has_ghosts(field, data, before, *, corners=True):
    """Whether all points of the padded block are what they must be after an exchange."""
    return same(field.padded.copy(), exchanged(field, data, before, corners=corners))


def check_exchange(fields, exchange, *, corners=True):
    """Fill fields, exchange, and compare all points of all blocks. Collective."""
    comm = fields[0].pencil.comm
    known = [fill(field, seed) for seed, field in enumerate(fields)]
    exchange()
    for field, (data, before) in zip(fields, known, strict=True):
        ok = has_ghosts(field, data, before, corners=corners)
        assert everywhere(comm, ok), (field.pencil, field.halo, field.dtype)


def check_sums(fields, accumulate, *, corners=True):
    """Accumulate small integers, whose sums are exact, and compare all points. Collective."""
    comm = fields[0].pencil.comm
    rng = np.random.default_rng([8, comm.rank])
    for field in fields:
        field.padded[...] = rng.integers(0, 4, field.padded.shape)
    expected = [accumulated(field, corners=corners) for field in fields]
    accumulate()
    for field, block in zip(fields, expected, strict=True):
        ok = same(field.padded.copy(), block)
        assert everywhere(comm, ok), (field.pencil, field.halo, field.dtype)


def spies_on(plan):
    """Watch what a plan by messages, which nobody has called yet, sends: one spy for each round."""
    return [spy_on(exchange) for exchange in plan._filling.exchanges]
