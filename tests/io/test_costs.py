"""What a save and a load cost: collectives, opened files, synchronisations; not time."""

import os
from functools import partial

import pytest
from h5py._hl import files
from mpi_helpers import ON_ONE_NODE, collectives

import pencils

pytestmark = pytest.mark.parallel([2, 3, 4])
# A description by rank 0; `bcast` of objects is two collectives of MPI.
FROM_ROOT = "bcast"


@pytest.fixture
def counted(monkeypatch):
    """Count the files that HDF5 opens and the synchronisations of this rank."""
    counts = {"opened": 0, "fsync": 0}
    start, sync = files.make_fid, os.fsync

    def opened(*args, **kwargs):
        counts["opened"] += 1
        return start(*args, **kwargs)

    def synced(handle):
        counts["fsync"] += 1
        sync(handle)

    monkeypatch.setattr(files, "make_fid", opened)
    monkeypatch.setattr(os, "fsync", synced)
    return counts


def cost(lab, counted, make, call):
    """Call twice with what `make` returns; count the second call."""
    with collectives() as calls:
        made = make(lab.comm.Dup())
        call(made)  # plans and communicators are kept
        calls.clear()
        counted.update(dict.fromkeys(counted, 0))
        call(made)
        return list(calls), dict(counted)


@pytest.mark.mpiexec("counts on one process")
@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize("count", [1, 4])
def test_save_and_load(lab, path, counted, cut, count):
    root = lab.comm.rank == 0
    # Runs that ranks write side by side, of 4 MiB and more for several nodes.
    shape = (12, 64, 128) if cut == 0 else (2, 12, 2**15 if ON_ONE_NODE else 2**19)

    def make(comm):
        pencil = pencils.Pencil(shape, comm, decomp=cut)
        return {f"u{number}": pencils.ones(pencil) for number in range(count)}

    calls, counts = cost(lab, counted, make, lambda fields: pencils.save(path, fields, step=3))
    assert calls == ["Allgather", FROM_ROOT, "Allgather", "Allgather"]
    assert counts == {"opened": 0, "fsync": 2 * root}  # of the file, and of its name
    calls, counts = cost(lab, counted, make, lambda fields: pencils.load(path, fields))
    assert calls == ["Allgather", FROM_ROOT, "Allgather"]
    assert counts == {"opened": 0, "fsync": 0}


@pytest.mark.mpiexec("counts on one process")
@pytest.mark.parametrize(
    ("options", "moved"),
    [({}, []), ({"compression": "lzf"}, ["gather", FROM_ROOT])],
    ids=["slabs", "chunks"],
)
def test_fields_that_move(lab, path, counted, options, moved):
    """All ranks have memory for the first type; the places of chunks come from rank 0."""
    after = ["Allgather", *moved]  # of each field that does not move as the first ones

    def make(comm, kinds=("f8", "f8", "f8")):
        pencil = pencils.Pencil((12, 10, 8), comm, decomp=1)
        names = enumerate(kinds)
        return {f"u{number}": pencils.ones(pencil, dtype=kind) for number, kind in names}

    def calls(make, **more):
        def call(fields):
            saving = pencils.save(path, fields, **options, **more)
            if saving is not None:
                saving.wait()

        found, _ = cost(lab, counted, make, call)
        return [name for name in found if name != "Barrier"]  # those guard shared memory

    begin, end = ["Allgather", FROM_ROOT], ["Allgather", "Allgather"]
    assert calls(make) == [*begin, *moved * 3, *end]
    make_others = partial(make, kinds=("f8", "f8", "f4", "f8"))
    assert calls(make_others) == [*begin, *moved * 2, *after * 2, *end]
    agreements = calls(make, wait=False).count("Allgather")
    assert agreements == 3 + 5  # each field has memory of its own; to start the thread, to wait


@pytest.mark.mpiexec("counts on one process")
@pytest.mark.parametrize(("count", "more"), [(1, 0), (3, 1)])
def test_load_of_fields_that_move(lab, path, monkeypatch, count, more):
    """The first one is read before the agreement; at the end ranks agree on all later ones."""
    monkeypatch.setattr("pencils.io.direct._MOST_READ", 0)

    def make(comm):
        pencil = pencils.Pencil((12, 10, 8), comm, decomp=1)
        return {f"u{number}": pencils.full(pencil, number) for number in range(count)}

    pencils.save(path, make(lab.comm))
    calls, _ = cost(lab, {}, make, lambda fields: pencils.load(path, fields))
    calls = [name for name in calls if name != "Barrier"]  # those guard shared memory
    assert calls == ["Allgather", FROM_ROOT, *["Allgather"] * (1 + more)]


@pytest.mark.mpiexec("counts on one process")
def test_more_checksums_than_an_agreement_carries(lab, path, counted):
    def make(comm):
        pencil = pencils.Pencil((12, 6), comm)
        return {f"u{number}": pencils.ones(pencil) for number in range(5)}

    calls, _ = cost(lab, counted, make, lambda fields: pencils.save(path, fields))
    assert calls == ["Allgather", FROM_ROOT, "Allgather", "Allreduce", "Allgather"]


@pytest.mark.mpiexec("counts on one process")
def test_nothing_is_combined_without_checksums(lab, path, counted):
    pencils.save(path, {"u": pencils.ones(pencils.Pencil((12, 6), lab.comm))}, checksum=False)

    def call(comm):
        pencils.open(path, "r+", comm).close()

    calls, _ = cost(lab, counted, lambda comm: comm, call)
    assert calls == ["Allgather", FROM_ROOT, "Allgather", "Allgather", "Allgather"]
