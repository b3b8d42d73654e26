"""Without a library that some parts need, these raise an error that names what installs it."""

import re
import tomllib
from pathlib import Path

import pytest
from mpi_helpers import python

import pencils
from pencils.errors.missing import INSTALL

ROOT = Path(__file__).parents[1]
HIDE = "import sys\nsys.modules[{!r}] = None\nimport pencils\n"
PLOT = r"error: (u.h5: )?Matplotlib is not installed: pip install \"pencils\[plot\]\""
COMMAND = "from pencils.__main__ import main\nmain({!r}.split())"
# What is missing, a program that needs it, and its last line.
CASES = {
    "draw": ("matplotlib", "pencils.plot", r".*MissingLibraryError: Matplotlib is .*\[plot\]"),
    "show": ("matplotlib", COMMAND.format("show u.h5 --plot u"), PLOT),
    "plan": ("matplotlib", COMMAND.format("plan 8 8 --ranks 4 --picture a.png"), PLOT),
    "demo's picture": ("matplotlib", COMMAND.format("demo --n 8 --picture a.png"), PLOT),
    "transform": (
        "scipy",
        "from pencils.fft import PencilFFT",
        ".*MissingLibraryError: SciPy is .* scipy",
    ),
    "draw by SciPy": ("scipy", "pencils.plot", ".*MissingLibraryError: SciPy is not .* scipy"),
    "demo": ("scipy", COMMAND.format("demo"), ".*error: SciPy is not installed: pip install scipy"),
    "ZFP": (
        "hdf5plugin",
        "pencils.save('z.h5', {'u': pencils.ones(pencils.Pencil((4, 3)))}, tolerance=1e-3)",
        r".*MissingLibraryError: hdf5plugin is not installed: .*\[zfp\]",
    ),
    "FFTW": (
        "mpi4py_fft",
        "pencils.fft.PencilFFT(pencils.Pencil((4, 4)), backend='fftw')",
        r".*ArgumentError: backend='fftw' cannot .*: mpi4py-fft is .*\"pencils\[fftw\]\"",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_missing_is_named(case, tmp_path):
    library, program, text = CASES[case]
    pencils.save(tmp_path / "u.h5", {"u": pencils.ones(pencils.Pencil((4, 3)))})
    done = python("-c", HIDE.format(library) + program, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode != 0
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]
    assert re.match(text, last), done.stdout + done.stderr
    assert not list(tmp_path.glob("*.png"))


def test_filters_are_found_when_a_file_is_read(tmp_path):
    pytest.importorskip("hdf5plugin")
    pencils.save(tmp_path / "z.h5", {"u": pencils.ones(pencils.Pencil((8, 3)))}, tolerance=1e-3)
    load = "pencils.load('z.h5', pencils.Pencil((8, 3)))"
    done = python("-c", HIDE.format("hdf5plugin") + load, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert re.search(r"MissingLibraryError: hdf5plugin is .*\[zfp\]", done.stderr), done.stderr
    show = f"import pencils\nprint(round({load}['u'].sum()))"
    done = python("-c", show, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert done.stdout.strip() == "24", done.stderr


def test_errors_name_extras_that_there_are():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"pencils\[(\w+)\]", " ".join(INSTALL.values())))
    assert named
    extras = project["optional-dependencies"].keys()
    assert named <= extras
    # CI installs each of them alone, and others to test with.
    alone = set(re.findall(r'^with "\[(\w+)\]"', (ROOT / ".ci/extras").read_text(), re.MULTILINE))
    assert alone == extras - {"test", "docs", "readers"}
