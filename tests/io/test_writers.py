"""Writing fields into files: pieces of any size, and a write that fails on one rank."""

import numpy as np
import pytest

import pencils
from pencils.io import direct, writers

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.mark.parametrize("checksum", [True, False])
def test_pieces_of_any_size_make_the_same_file(path, checksum, monkeypatch, lab):
    cases = {str(number): case for number, case in enumerate(lab.cases((5, 1, 6), 6, seed=4))}
    fields = {name: field for name, (field, _) in cases.items()} | {"modes": np.arange(4)}
    pencils.save(path, fields, checksum=checksum, halo=True)
    before = lab.on_root(path.read_bytes)
    for piece in (8, 40, 2**20):
        monkeypatch.setattr(direct, "_PIECE_BYTES", piece)
        pencils.save(path, fields, checksum=checksum, halo=True)
        assert lab.on_root(path.read_bytes) == before


def test_a_write_that_fails_on_one_rank(mpi_tmp_path, comm, monkeypatch, lab):
    u = pencils.ones(pencils.Pencil((6, 5, 4), comm))
    path = mpi_tmp_path / "a.h5"
    pencils.save(path, {"u": u})
    write_part = writers.write_part

    def fail(*args, **kwargs):
        written = write_part(*args, **kwargs)
        if u.pencil.rank == u.pencil.size - 1:
            msg = "Can't write data"
            raise OSError(msg)
        return written

    with monkeypatch.context() as patch:
        patch.setattr(writers, "write_part", fail)
        kind, text = lab.raised(pencils.save, path, {"u": 2 * u})
    assert kind is OSError
    assert "Can't write data" in text
    assert pencils.load(path, u.pencil)["u"].max() == 1
    assert lab.on_root(lambda: len(list(mpi_tmp_path.iterdir()))) == 1
