"""What HDF5's own checksums of its metadata find, for each range of versions of the format.

    python tests/campaigns/hdf5_checksums.py --count 1000 --seed 1

Damages everything but raw data in files that plain h5py writes: whole ones, compressed ones, and
ones that have grown, from which single writes of the last step are missing: a stale part that is
well formed. Each damaged file is read in a process of its own. Prints how often the contents were
those of a state that was written, or an error, and how often neither: ``SILENT``, ``crash`` or
``hang``.
"""

import argparse
import io
import os
import random
import signal
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np

VERSIONS = {"earliest": ("earliest", "v110"), "v110": ("v110", "v110")}
SECONDS = 5
STEPS = 30


class Recorded(io.BytesIO):
    """A file in memory that keeps what HDF5 writes."""

    def __init__(self, data=b""):
        super().__init__(data)
        self.writes = []

    def write(self, data):
        self.writes.append((self.tell(), bytes(data)))
        return super().write(data)


def describe(dataset, name):
    """Add attributes as pencils has them, strings of fixed length."""
    dataset.attrs["pencils_components"] = 1
    dataset.attrs["pencils_periodic"] = np.array([0, 1], np.int8)
    dataset.attrs["pencils_checksum"] = np.uint64(2**63 + 7)
    dataset.attrs["name"] = np.bytes_(name)


def fill(file, **options):
    """Write fields, values and coordinates."""
    rng = np.random.default_rng(1)
    file.attrs["pencils_format"] = 1
    file.attrs["title"] = np.bytes_("flow")
    for name in ("u", "fluid/p", "fluid/deep/q"):
        describe(file.create_dataset(name, data=rng.normal(size=(6, 8)), **options), name)
    for axis, name in enumerate("xy"):
        file[name] = np.arange((6, 8)[axis], dtype=float)
        file[name].make_scale(name)
        file["u"].dims[axis].attach_scale(file[name])
    file["dt"] = 0.25
    file["words"] = np.array([b"red", b"green"])


def grow(file, step):
    """Append a step to datasets that have no last one."""
    for name, shape in {"u": (6, 8), "energy": ()}.items():
        if step == 0:
            most, chunks = (None, *shape), (1, *shape) if shape else (4,)
            describe(
                file.create_dataset(name, (0, *shape), float, maxshape=most, chunks=chunks), name
            )
        file[name].resize(step + 1, axis=0)
        file[name][-1] = np.full(shape, float(step))
        file[name].attrs.modify("pencils_checksum", np.uint64(2**40 * step))


def make_files(libver):
    """Return by name the bytes of a file, the earlier states, and the writes of the last one."""
    made = {}
    for name, options in {"whole": {}, "packed": {"compression": "gzip", "chunks": (2, 4)}}.items():
        handle = Recorded()
        with h5py.File(handle, "w", libver=libver) as file:
            fill(file, **options)
        made[name] = handle.getvalue(), [], []
    handle, states = Recorded(), []
    for step in range(STEPS):
        handle = Recorded(handle.getvalue())
        with h5py.File(handle, "r+" if step else "w", libver=libver) as file:
            grow(file, step)
        states.append(handle.getvalue())
        if step in (3, 12, STEPS - 1):  # a small index of chunks, and larger ones
            made[f"grown {step + 1}"] = states[-1], states[:-1][-1:], handle.writes
    return made


def contents(path):
    """Read all of a file but raw data, in a form that can be compared."""
    found = {}

    def look(name, thing):
        attrs = {key: repr(value) for key, value in thing.attrs.items() if "LIST" not in key}
        values = None
        if isinstance(thing, h5py.Dataset):
            dims = [[scale.name for scale in dim.values()] for dim in thing.dims]
            values = thing.shape, str(thing.dtype), thing.chunks, dims, thing[...].tobytes()
        found[name] = attrs, values

    with h5py.File(path, "r", locking=False) as file:
        look("/", file)
        file.visititems(look)
    return found


def raw_extents(path):
    """List where raw data are."""
    found = []

    def look(_, thing):
        if not isinstance(thing, h5py.Dataset):
            return
        if thing.chunks:
            infos = [thing.id.get_chunk_info(n) for n in range(thing.id.get_num_chunks())]
            found.extend((one.byte_offset, one.size) for one in infos)
        elif thing.id.get_offset() is not None:
            found.append((thing.id.get_offset(), thing.id.get_storage_size()))

    with h5py.File(path) as file:
        file.visititems(look)
    return found


def damage(dice, data, places, writes, before):
    """Damage bytes at some of the places; return what was done, and the bytes."""
    kinds = ["flip", "flip", "random", "swap", "zero", "cut", "longer"]
    kind = dice.choice([*kinds, *["stale"] * 3] if writes else kinds)
    bad, at = bytearray(data), dice.choice(places)
    if kind == "flip":
        bad[at] ^= dice.choice([255, 1 << dice.randrange(8)])
    elif kind == "random":
        for _ in range(4):
            bad[dice.choice(places)] = dice.randrange(256)
    elif kind == "cut":
        del bad[at:]
    elif kind == "longer":
        bad += dice.randbytes(dice.choice([1, 8, 4096]))
    elif kind == "stale":
        bad = lose_writes(dice, data, places, writes, before)
    else:
        change_run(dice, bad, places, at, zero=kind == "zero")
    return kind, bytes(bad)


def change_run(dice, bad, places, at, *, zero):
    """Fill a run of bytes with zeros, or swap it with another run."""
    allowed, there = set(places), dice.choice(places)
    for one, other in ((at + n, there + n) for n in range(512 if zero else 16)):
        if zero and one in allowed:
            bad[one] = 0
        elif not zero and {one, other} <= allowed:
            bad[one], bad[other] = bad[other], bad[one]


def lose_writes(dice, data, places, writes, before):
    """Let a write of HDF5, or several, not get to the disk; raw data all do."""
    bad = bytearray(before[-1].ljust(len(data), b"\0"))
    lost = set(dice.sample(range(len(writes)), dice.randint(1, max(1, len(writes) - 1))))
    for number, (offset, new) in enumerate(writes):
        if number not in lost:
            bad[offset : offset + len(new)] = new
    for place in set(range(len(data))) - set(places):
        bad[place] = data[place]
    return bad


def judge(path, states):
    """Read a file in a process of its own; say how that ends."""
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        code = 3
        with suppress(Exception):
            code = 2  # an error, if nothing else follows
            code = 0 if contents(path) in states else 1
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "hang" if os.WTERMSIG(status) == signal.SIGALRM else "crash"
    return {0: "exact", 1: "SILENT", 2: "error"}[os.WEXITSTATUS(status)]


def run(libver, count, seed):
    """Damage so many files of each kind; count what comes of it, by kinds of file and damage."""
    outcomes = Counter()
    with tempfile.TemporaryDirectory(prefix="pencils-hdf5-") as folder:
        path = Path(folder) / "a.h5"
        for name, (data, before, writes) in make_files(libver).items():
            states = []
            for state in [*before, data]:
                path.write_bytes(state)
                states.append(contents(path))
            raw = {byte for start, size in raw_extents(path) for byte in range(start, start + size)}
            places = [byte for byte in range(len(data)) if byte not in raw]
            for number in range(count):
                dice = random.Random(f"{seed} {name} {number}")
                kind, bad = damage(dice, data, places, writes, before)
                path.write_bytes(bad)
                allowed = states if kind == "stale" else states[-1:]
                outcomes[name, kind, judge(path, allowed)] += 1
    return outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="for each kind of file")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for version, libver in VERSIONS.items():
        outcomes = run(libver, args.count, args.seed)
        for kind in dict.fromkeys(kind for _, kind, _ in sorted(outcomes)):
            row = Counter()
            for (_, one, outcome), number in outcomes.items():
                row[outcome] += number if one == kind else 0
            print(f"{version:9} {kind:7} {dict(sorted(row.items()))}", flush=True)


if __name__ == "__main__":
    main()
