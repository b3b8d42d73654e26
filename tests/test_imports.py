"""``import pencils`` loads what a program uses, when it uses it."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from mpi_helpers import python

import pencils
from pencils.array import PROVIDERS, provided

LOADED = "print(*sorted(name for name in sys.modules if name.startswith('pencils')))"
# Imported with their users: these take time, or need more than NumPy and mpi4py.
LATE = {"pencils.io", "pencils.fft", "pencils.graph", "pencils.dap", "simmpi"}


def loaded_after(code):
    """Return the modules of pencils that a new Python has after running some code."""
    done = python("-c", f"import sys\n{code}\n{LOADED}")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_package_alone_loads_only_the_door_to_mpi():
    loaded = {"pencils", "pencils.array", "pencils.comm", "pencils.comm.mpi"}
    assert loaded_after("import pencils") == loaded
    # Fields load no files and no transforms.
    loaded = loaded_after("import pencils\npencils.zeros(pencils.Pencil((4, 4)), halo=1).sum()")
    assert "pencils.array.creation" in loaded
    assert not loaded & LATE
    assert not [name for name in loaded if name.startswith(("pencils.transposition", "pencils.ha"))]


def test_names_of_the_package():
    assert PROVIDERS
    assert [name for name in PROVIDERS if provided(name) is None] == []
    # Type checkers see the names that programs find.
    stub = Path(pencils.__file__).with_suffix(".pyi").read_text()
    seen = re.findall(r"^from (\S+) import (\w+) as \2\b", stub, re.MULTILINE)
    assert {name: home for home, name in seen} == pencils._HOMES
    # Methods that are called as functions are named.
    u = pencils.zeros(pencils.Pencil(4), halo=1)
    with pytest.raises(AttributeError, match=r"write u\.exchange_halo\(\)"):
        pencils.exchange_halo(u)
    with pytest.raises(AttributeError, match=r"has no attribute 'flatten'$"):
        pencils.flatten(u)
    pencils.exchange_halos([u])
    # Every name is found and listed.
    assert {"Pencil", "PencilArray", "open", "save", "fft", "simulate"} <= set(dir(pencils))
    for name in dir(pencils):
        assert getattr(pencils, name) is not None or name == "__path__"
    # A star hides no builtin.
    assert "open" not in pencils.__all__
    assert {"Pencil", "transpose", "__version__"} <= set(pencils.__all__)
    names = {}
    exec("from pencils import *", names)
    assert set(pencils.__all__) <= names.keys()
    # A name that is not there raises.
    with pytest.raises(AttributeError, match="module 'pencils' has no attribute 'Pensil'"):
        pencils.Pensil  # noqa: B018
    with pytest.raises(ImportError, match="Pensil"):
        exec("from pencils import Pensil", {})


def test_documented_modules_load_as_attributes():
    page = (Path(__file__).parents[1] / "docs" / "reference.md").read_text()
    names = set(re.findall(r"(?:auto|current)module:: (pencils\S+)", page))
    names |= set(re.findall(r"^## .*`(pencils\.\w+)`", page, re.MULTILINE))
    assert {"pencils.fft", "pencils.graph", "pencils.tools.plot"} <= names
    short = {name.replace("pencils.tools.", "pencils.") for name in names}
    short |= {f"pencils.{name}" for name in pencils._MODULES}
    needs = {"pencils.plot": "matplotlib", "pencils.interop.petsc": "petsc4py"}
    here = [each for each in short if each not in needs or find_spec(needs[each])]
    code = f"import pencils, types\nfor each in {here}:\n    found = type(eval(each))\n"
    assert "pencils.fft" in loaded_after(f"{code}    assert found is types.ModuleType, each")
