"""Cards in notebooks: well-formed, with a block for each rank, and facts that NumPy has, too."""

from datetime import timedelta
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from mpi_helpers import everywhere

import pencils
from pencils.fft import PencilFFT
from pencils.tables import text_bytes

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def facts(shown):
    """Return the rows of a card by their names, and its numbers of pictures and of blocks."""
    html = shown._repr_html_()
    root = ET.fromstring(html)
    rows = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    assert rows[0] == [type(shown).__name__]
    counts = html.count("<svg"), html.count("<polygon")
    return {name: values[0] if len(values) == 1 else values for name, *values in rows[1:]}, counts


def blocks(pencil):
    return sum(pencil.layout.box(rank).volume > 0 for rank in range(pencil.size))


def times(*numbers):
    return " × ".join(map(str, numbers))


def text_of(pencil):
    return f"[{', '.join(f'{part.start}:{part.stop}' for part in pencil.local_slices)}]"


def test_of_a_pencil(comm):
    pencil = pencils.Pencil((12, 1000), comm, periodic=(False, True), order=(1, 0), decomp=(1,))
    found, counts = facts(pencil)
    own = int(np.prod(pencil.local_shape))
    expected = {
        "": ["all ranks", f"rank {comm.rank} of {comm.size}"],
        "shape": ["12 × 1000", times(*pencil.local_shape)],
        "points": ["12,000", f"{own:,}"],
        "indices": ["", text_of(pencil)],
        "process grid": f"{comm.size} along dimension 1",
        "periodic": "along 1",
        "in memory": "dimensions (1, 0), slowest first",
    }
    assert everywhere(comm, found == expected), found
    assert counts == (1, blocks(pencil))
    assert facts(pencils.Pencil((2,) * 4, comm))[1] == (0, 0)


def test_of_a_field(comm):
    pencil = pencils.Pencil((12, 8), comm, decomp=(0, 1))
    u = pencils.from_function(pencil, lambda i, j: 10.0 * i + j, halo=1)
    found, counts = facts(u)
    assert everywhere(comm, found["bytes"] == [text_bytes(12 * 8 * 8), text_bytes(u.local.nbytes)])
    assert everywhere(comm, found["indices"] == ["", text_of(pencil)])
    first = " ".join(map(str, u.local.ravel()[:4]))
    assert everywhere(comm, found["values"] == ["", f"{first} ..."])
    ghosts = text_bytes(u.padded.nbytes - u.local.nbytes)
    assert everywhere(comm, found["halo"] == ["1", ghosts])
    assert found["dtype"] == "float64"
    assert "components" not in found
    assert counts == (1, blocks(pencil))
    found, _ = facts(pencils.zeros(pencil, dims=0, components=(2, 3), dtype="f4"))
    assert found["shape"][0] == "2 × 3 × 12 × 1"
    assert found["bytes"][0] == text_bytes(2 * 3 * 12 * 4)
    assert found["components"] == "(2, 3)"
    assert "halo" not in found


def test_of_plans(comm):
    rows = pencils.Pencil((12, 8), comm)
    columns = rows.with_(decomp=1)
    found, counts = facts(pencils.Transposition(rows, columns, components=(2,), method="alltoallw"))
    assert found["shape"] == ["2 × 12 × 8"] * 2
    assert found["process grid"] == [f"{comm.size} along dimension {dim}" for dim in (0, 1)]
    own = f"rank {comm.rank} of {comm.size}"
    assert everywhere(comm, found[own] == [text_of(rows), text_of(columns)])
    sizes = [text_bytes(2 * 8 * int(np.prod(pen.local_shape))) for pen in (rows, columns)]
    assert everywhere(comm, found["its bytes"] == sizes)
    assert found["method"] == "alltoallw"
    assert counts == (2, blocks(rows) + blocks(columns))
    with PencilFFT(rows, float, dealias="3/2", backend="scipy") as plan:
        found, counts = facts(plan)
        pens = plan.input_pencil, plan.output_pencil
        assert found["dtype"] == ["float64", "complex128"]
        assert found["shape"] == [times(*pen.shape) for pen in pens] == ["18 × 12", "12 × 5"]
        assert everywhere(comm, found[own] == [text_of(pen) for pen in pens])
        assert set(found["transforms"].split(", ")) == {"c2c along 0", "r2c along 1"}
        assert set(found["dealiased"].split(", ")) == {"3/2 along 0", "3/2 along 1"}
        assert found["library"] == "scipy"
        assert counts == (2, sum(map(blocks, pens)))
        assert everywhere(comm, found["memory"] == f"{text_bytes(plan.memory)} on this rank")


def test_of_series(comm, mpi_tmp_path):
    path = mpi_tmp_path / "a.h5"
    with pencils.TimeSeries(path, comm=comm) as series:
        assert (facts(series)[0]["times"], facts(series)[0]["fields"]) == ("none", "none")
        for time in (0.5, 2.0):
            series.append(time, {"n": time, "u": pencils.ones(pencils.Pencil((4, 4), comm))})
        expected = {"file": str(path), "snapshots": "2", "times": "0.5 to 2", "fields": "n, u"}
        assert facts(series) == ({**expected, "state": "open, mode 'a'"}, (0, 0))
    assert facts(series)[0]["state"] == "closed"
    with pencils.TimeSeries(path, comm=comm) as series:
        assert facts(series)[0]["fields"] == "n, u"
    u = pencils.ones(pencils.Pencil((4, 4), comm))
    with pencils.CheckpointSeries(mpi_tmp_path / "b", keep=None, every=2, comm=comm) as kept:
        for step in range(12):
            kept.save(step, {"u": u})
        expected = {"steps": "..., 4, 5, 6, 7, 8, 9, 10, 11", "keeps": "all", "every": "2 steps"}
        assert facts(kept)[0] == {"directory": str(mpi_tmp_path / "b"), **expected}
    every = timedelta(minutes=5)
    with pencils.CheckpointSeries(mpi_tmp_path / "c", every=every, comm=comm) as kept:
        found = facts(kept)[0]
    assert (found["steps"], found["keeps"], found["every"]) == ("none", "the last 3", "0:05:00")
