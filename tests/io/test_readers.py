"""What stands in the file can be read by the tools that people have."""

import shutil
import subprocess

import pytest

import pencils

pytestmark = pytest.mark.skipif(not shutil.which("h5dump"), reason="needs h5dump")


def test_h5dump_reads_everything(tmp_path):
    pencil = pencils.Pencil((3, 2), order=(1, 0))
    fields = {
        "g/u": pencils.from_function(pencil, lambda i, j: 10.0 * i + j),
        "flags": pencils.from_function(pencil, lambda i, j: i > j),
        "spectrum": pencils.full(pencil, 1 + 2j, dtype=">c16"),
        "records": pencils.zeros(pencil, dtype=[("a", "f4"), ("b", "i2")]),
        "half": pencils.ones(pencil, dtype="f2"),
        "nothing": pencils.zeros(pencil, components=0),
    }
    pencils.save(tmp_path / "a.h5", fields, attrs={"step": 3, "name": "Green", "axis": [1.0, 2.0]})

    def h5dump(*args):
        command = ["h5dump", *args, tmp_path / "a.h5"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert "Green" in h5dump()
    numbers = h5dump("-d", "/g/u", "-y", "-w", "65535").split("DATA {")[1].split("}")[0]
    found = [float(number) for number in numbers.replace(",", " ").split()]
    assert found == [0, 1, 10, 11, 20, 21]
    properties = h5dump("-p", "-H").split()
    assert {"CONTIGUOUS", "H5D_ALLOC_TIME_EARLY", "H5D_FILL_TIME_NEVER"} <= set(properties)
