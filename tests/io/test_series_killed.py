"""A process that dies while it appends, or reads meanwhile: only whole snapshots are seen.

As a script, ``python tests/io/test_series_killed.py 50 out.zarr`` kills that many runs that append
to this series; with ``run`` instead of ``out.zarr``, runs that save checkpoints in Zarr folders.
"""

import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI
from tiers import up_to

import pencils

SHAPE = (12, 10, 8)

PROGRAM = """
import random, signal, sys
import numpy as np, pencils

path, seed = sys.argv[1], int(sys.argv[2])
pencil = pencils.Pencil((12, 10, 8), decomp=(0, 1))
draw = random.Random(seed)
victim, instant = draw.randrange(pencil.size), draw.uniform(0, 0.3)
options = {"chunks": {"u": (5, 4, 8)}, "compression": [None, "zstd"][seed % 2]}
with pencils.TimeSeries(path, **(options if path.endswith(".zarr") else {})) as series:
    if pencil.rank == 0:
        print("appended", len(series), flush=True)
    def set_alarm():
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which kills
        signal.setitimer(signal.ITIMER_REAL, 1e-6 + instant)
    first = len(series)
    while True:
        step = len(series)
        u = pencils.full(pencil, float(step))
        series.append(step, {"u": u, "row": (u, np.s_[3, ::2]), "step": step})
        if pencil.rank == 0:
            print("appended", step + 1, flush=True)
        if pencil.rank == victim and step == first:
            set_alarm()
"""

CHECKPOINTS = """
import random, signal, sys
import numpy as np, pencils

path, seed = sys.argv[1], int(sys.argv[2])
pencil = pencils.Pencil((12, 10, 8), decomp=(0, 1))
draw = random.Random(seed)
victim, instant = draw.randrange(pencil.size), draw.uniform(0, 0.3)
with pencils.CheckpointSeries(path, keep=2, signals=(), format="zarr") as series:
    state = series.resume(pencil)
    first = step = state.step if state else 0
    assert state is None or (state["u"].local == step).all()
    if pencil.rank == 0:
        print("appended", step, flush=True)
    while True:
        step += 1
        series.save(step, {"u": pencils.full(pencil, float(step))}, chunks=(5, 4, 8))
        if pencil.rank == 0:
            print("appended", step, flush=True)
        if pencil.rank == victim and step == first + 1:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which kills
            signal.setitimer(signal.ITIMER_REAL, 1e-6 + instant)
"""

READER = """
import sys
import h5py, numpy as np

path, seen = sys.argv[1], set()
while len(seen) < 20:
    with h5py.File(path) as file:
        u, row, step, times = (file[name] for name in ("u", "row", "step", "time"))
        counts = {one.shape[0] for one in (u, row, step, times)}
        assert len(counts) == 1, counts
        count = counts.pop()
        seen.add(count)
        for last in (0, count // 2, count - 1):
            assert times[last] == step[last] == last
            assert (u[last] == last).all() and (row[last] == last).all()
"""


def check(path):
    """Look at all snapshots; how many there are."""
    if "u" not in pencils.verify(path, MPI.COMM_SELF):
        return 0
    shapes = {"u": SHAPE, "row": (5, 8)}
    targets = {name: pencils.Pencil(shape, MPI.COMM_SELF) for name, shape in shapes.items()}
    found = pencils.load(path, targets)
    steps = np.arange(len(found["time"]))
    assert np.array_equal(found["time"], steps)
    assert np.array_equal(found["step"], steps)
    assert (found["u"].local == steps[:, None, None, None]).all()
    assert (found["row"].local == steps[:, None, None]).all()
    return steps.size


def check_plain(path):
    """Look at all snapshots by plain h5py; how many there are."""
    with h5py.File(path) as file:
        steps = np.arange(file["time"].shape[0])
        assert np.array_equal(file["time"], steps)
        assert np.array_equal(file["step"], steps)
        assert file["u"].shape == (steps.size, *SHAPE)
        assert (file["u"][...] == steps[:, None, None, None]).all()
        assert (file["row"][...] == steps[:, None, None]).all()
    return steps.size


def check_zarr(path):
    """Look at all snapshots by plain zarr-python; how many there are."""
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(path, mode="r", use_consolidated=True)
    if "u" not in group:
        return 0
    steps = np.arange(group["time"].shape[0])
    for name in ("time", "step", "u", "row"):
        found = group[name][...]
        assert (found.reshape(len(found), -1) == steps[:, None]).all(), name
    return steps.size


def check_folder(path):
    """Look at the last checkpoint; its step. All that have a name are whole."""
    steps = [0]
    for one in sorted(path.glob("checkpoint-*.zarr")):
        found = pencils.load(one, pencils.Pencil(SHAPE, MPI.COMM_SELF))
        assert pencils.verify(one, MPI.COMM_SELF) == ["u"]
        assert (found["u"].local == found.step).all()
        steps.append(found.step)
    return max(steps)


def kill_and_check(run, path, seed):
    """Let a run be killed; what it said it had appended must be there."""
    program = PROGRAM if path.suffix else CHECKPOINTS
    ran = run(3, "-c", program, path, seed, timeout=120)
    assert ran.returncode != 0
    said = [int(number) for number in re.findall(r"appended (\d+)\n", ran.stdout)]
    look = check if path.suffix else check_folder
    count = look(path) if path.exists() else 0
    assert path.suffix != ".zarr" or count == check_zarr(path)
    assert count >= max(said, default=0), (seed, count, ran.stdout, ran.stderr)
    return count


def test_killed_while_appending(mpirun, tmp_path):
    path = tmp_path / "out.h5"
    counts = [kill_and_check(mpirun, path, seed) for seed in range(up_to(3, 2))]
    assert counts == sorted(counts)
    u = pencils.full(pencils.Pencil(SHAPE, MPI.COMM_SELF), float(counts[-1]))
    with pencils.TimeSeries(path, comm=MPI.COMM_SELF) as series:
        assert len(series) == counts[-1]
        series.append(counts[-1], {"u": u, "row": (u, np.s_[3, ::2]), "step": counts[-1]})
    assert check(path) == check_plain(path) == counts[-1] + 1


@pytest.mark.skipif(not shutil.which("h5dump"), reason="needs h5dump")
def test_h5dump_finds_all_chunks(tmp_path):
    path = tmp_path / "out.h5"
    u = pencils.zeros(pencils.Pencil((3,), MPI.COMM_SELF))
    with pencils.TimeSeries(path, comm=MPI.COMM_SELF) as series:
        for step in range(70):
            u.fill(step)
            series.append(step, {"u": u})
    command = ["h5dump", "-d", "/u", "-y", "-w", "65535", path]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    numbers = text.split("DATA {")[1].split("}")[0].replace(",", " ").split()
    assert list(map(float, numbers)) == np.repeat(np.arange(70.0), 3).tolist()
    assert "UNLIMITED" in text.upper()


def main(count, name="out.h5"):
    """Kill many runs, each of which goes on where the last one ended."""
    mpiexec = Path(sys.executable).with_name("mpiexec")

    def run(n, *args, timeout):
        command = [mpiexec, "-n", str(n), sys.executable, *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        for number in range(count):
            found = kill_and_check(run, path, random.randrange(10**9))
            print(f"{number + 1} of {count} runs killed, {found} snapshots, all right", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
