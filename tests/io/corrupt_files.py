"""Damage files of every kind at random, and read them: what comes back is exact, or an error.

    python tests/io/corrupt_files.py --count 5000 --seed 1

Prints the seed and the number of each damage before it looks at the file, so that one which never
comes back is known. Exits with 1 if data were wrong or missing, or an error was none of those that
are documented.
"""

import argparse
import random
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pencils
from pencils.errors import CheckpointError
from pencils.io.load import find_matches

COMM = MPI.COMM_SELF
PENCIL = pencils.Pencil((4, 6), COMM)
GRID = pencils.localgrid(PENCIL, (np.arange(4.0), np.arange(6.0)))


def make_save(path, **options):
    """Save fields and values of all kinds; how to read them again."""
    u = pencils.random.normal(PENCIL, 1, components=2)
    p = pencils.random.normal(PENCIL, 2)
    values = {"dt": 0.1, "name": "Green", "modes": np.arange(9), "rng": np.random.default_rng(1)}
    pencils.save(path, {"u": u, "g/p": p, **values}, grid=GRID, step=3, time=0.5, **options)
    return path.read_bytes(), path


def make_unsummed(path):
    """Save without checksums: what lies in fields is taken for true, but nothing else."""
    return make_save(path, checksum=False)


def make_packed(path):
    """Save compressed chunks."""
    return make_save(path, compression="gzip", chunks=(2, 3))


def make_rewritten(path):
    """Save, and write into what was saved."""
    made = make_save(path)
    for _ in range(2):
        with pencils.open(path, "r+", COMM) as file:
            file["g/p"].write(pencils.ones(PENCIL))
    return path.read_bytes(), made[1]


def append(series):
    for time in range(len(series), len(series) + 3):
        u = pencils.full(PENCIL, float(time))
        series.append(time, {"u": u, "row": (u, np.s_[2]), "energy": u.norm(), "n": time})


def make_series(path):
    """Append to one file, several times."""
    for _ in range(2):
        with pencils.TimeSeries(path, grid=GRID) as series:
            append(series)
    return path.read_bytes(), path


def make_running(path):
    """Append to one file that is still open."""
    with pencils.TimeSeries(path, grid=GRID) as series:
        append(series)
        return path.read_bytes(), path


KINDS = {
    "save": make_save,
    "unsummed": make_unsummed,
    "packed": make_packed,
    "rewritten": make_rewritten,
    "series": make_series,
    "running": make_running,
}


def damage(data, dice):
    """Flip bits, swap runs of 16 bytes, fill a range or cut the end off, anywhere.

    If the first object of a heap of HDF5 is swapped with zeros, HDF5 looks for its end for ever.
    """
    bad, size = bytearray(data), len(data)
    kinds = ["flip", "flips", "swap", "fill", "cut"]
    kind = dice.choice([*kinds, "heap"] if b"GCOL" in data else kinds)
    if kind == "heap":
        one = data.index(b"GCOL") + 16
        other = data.index(bytes(16), one)
        bad[one : one + 16], bad[other : other + 16] = bytes(16), data[one : one + 16]
        return kind, bytes(bad)
    near = dice.choice([size, size, 1000, 96])  # often in the head
    if kind == "cut":
        return kind, bytes(bad[: dice.randrange(near)])
    if kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else dice.randrange(2, 20)):
            bad[dice.randrange(near)] ^= 1 << dice.randrange(8)
    elif kind == "swap":
        one, other = (16 * dice.randrange(max(1, near // 16)) for _ in range(2))
        bad[one : one + 16], bad[other : other + 16] = bad[other : other + 16], bad[one : one + 16]
    else:
        start, count = dice.randrange(near), dice.choice([1, 8, 100, 512, 4096])
        count = min(count, size - start)
        bad[start : start + count] = dice.choice([b"\0", b"\xff"]) * count
    return kind, bytes(bad)


def read_all(path):
    """Load everything; what came, in a form that can be compared."""
    found = pencils.load(path, _place(path))
    contents = {name: plain(thing) for name, thing in found.items()}
    return contents, found.step, found.time, repr(found.attrs)


def plain(thing):
    """Make of a field or value something that can be compared."""
    if isinstance(thing, pencils.PencilArray):
        return thing.local.tobytes()
    if isinstance(thing, np.random.Generator):
        return thing.random()
    return thing.tolist() if isinstance(thing, np.ndarray | np.generic) else thing


def _place(path):
    if path.name in ("series", "running"):
        return {"u": PENCIL, "row": pencils.Pencil((6,), COMM)}
    return PENCIL


def list_series(path):
    """Make a series of the file; which times it has."""
    with pencils.TimeSeries(path, comm=COMM) as series:
        return series.times.tolist()


def read_but_fields(path):
    """Load everything, but leave out what is in the fields."""
    contents, *rest = read_all(path)
    return {name: isinstance(one, bytes) or one for name, one in contents.items()}, *rest


def verify(path):
    """Verify the file; what is found right, None without checksums."""
    return find_matches(path, COMM)


def looks(kind):
    """List what is done with a file of a kind."""
    if kind in ("series", "running"):
        return [read_all, list_series]
    return [read_but_fields if kind == "unsummed" else read_all, verify]


def judge(look, path, expected):
    """Say how a look at a damaged file ends."""
    try:
        found = look(path)
    except (CheckpointError, OSError) as error:
        return type(error).__name__
    except Exception:  # noqa: BLE001 - which none may be
        return f"WRONG: {traceback.format_exc()}"
    return "exact" if found == expected else f"WRONG: {found!r:.300} instead of {expected!r:.300}"


def corrupt(count, seed, tell):
    """Damage files so many times; how often what came of it."""
    outcomes, wrong = Counter(), 0
    with tempfile.TemporaryDirectory(prefix="pencils-corrupt-") as name:
        whole = {}
        for kind, make in KINDS.items():
            data, path = make(Path(name) / kind)
            path.write_bytes(data)
            whole[kind] = data, path, [(look, look(path)) for look in looks(kind)]
        for number in range(count):
            dice = random.Random(f"{seed} {number}")
            kind = list(KINDS)[number % len(KINDS)]
            data, path, expected = whole[kind]
            way, bad = damage(data, dice)
            tell(f"seed {seed}, number {number}: {way} in {kind}")
            path.write_bytes(bad)
            for look, found in expected:
                outcome = judge(look, path, found)
                if outcome.startswith("WRONG"):
                    wrong += 1
                    tell(outcome)
                    outcome = "WRONG"
                outcomes[outcome] += 1
            path.write_bytes(data)
    return outcomes, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="how often (default: 1000)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    args = parser.parse_args()
    outcomes, wrong = corrupt(args.count, args.seed, lambda text: print(text, flush=True))
    for outcome, number in sorted(outcomes.items()):
        print(f"{number:6} {outcome}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
