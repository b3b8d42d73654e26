"""Type checkers see of the package what is true when a program runs."""

import importlib.util
import shutil
import typing
from pathlib import Path
from types import UnionType

import numpy as np
import pytest
from mpi_helpers import python

PROGRAM = Path(__file__).with_name("typed_usage.py")
WITH_PLUGIN = Path(__file__).with_name("typed_usage_with_plugin.py")
CONFIGURATION = """[mypy]
plugins = pencils.tools.mypy_plugin
"""


@pytest.fixture
def typed_usage(monkeypatch):
    return loaded(PROGRAM, monkeypatch)


def loaded(path, monkeypatch):
    """Return a program as a module, in which `assert_type` looks at the value."""
    monkeypatch.setattr(typing, "assert_type", assert_instance)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_instance(value, kind):
    assert is_instance(value, kind), f"a {type(value).__name__} is no {kind}"


def is_instance(value, kind):
    """Whether a value is of a type, as far as its parts can be looked at."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is typing.Any:
        return True
    if origin in {typing.Union, UnionType}:
        return any(is_instance(value, one) for one in args)
    if origin is np.ndarray:
        return type(value) is np.ndarray
    if origin in {tuple, list} and isinstance(value, origin):
        each = args if origin is tuple and args[-1] is not ... else args[:1] * len(value)
        return len(value) == len(each) and all(map(is_instance, value, each))
    return isinstance(value, origin or kind)


def check(path, cache, configuration=""):
    """Run mypy as a user does, in the folder of a file; return what it finds."""
    options = ["--strict", "--warn-unreachable", f"--config-file={configuration}"]
    options += ["--hide-error-context", "--no-error-summary", "--cache-dir", cache, path.name]
    done = python("-m", "mypy", *options, cwd=path.parent, without={"MYPYPATH", "PYTHONPATH"})
    return done.stdout + done.stderr


@pytest.mark.thorough
def test_a_program_has_the_types_that_mypy_is_to_find(tmp_path, pytestconfig):
    pytest.importorskip("mypy")
    path = Path(shutil.copy(PROGRAM, tmp_path))
    found = check(path, pytestconfig.cache.mkdir("mypy"))
    assert not found, f"{found}\nIf mypy finds no package, install it again: pip install -e ."


@pytest.mark.thorough
def test_the_plugin_knows_what_functions_of_numpy_give(tmp_path, pytestconfig, monkeypatch):
    pytest.importorskip("mypy")
    path = Path(shutil.copy(WITH_PLUGIN, tmp_path))
    (tmp_path / "mypy.ini").write_text(CONFIGURATION)
    found = check(path, pytestconfig.cache.mkdir("mypy_plugin"), "mypy.ini")
    assert not found, found
    assert "no-any-return" in check(path, pytestconfig.cache.mkdir("mypy"))
    loaded(WITH_PLUGIN, monkeypatch).main()


def test_a_program_has_these_types_when_it_runs(typed_usage):
    mistakes = typed_usage.main()
    assert mistakes
    for mistake in mistakes:
        with pytest.raises((TypeError, ValueError, AttributeError)):
            mistake()


def test_assert_type_looks_at_values_when_the_program_runs(typed_usage):
    with pytest.raises(AssertionError, match="is no"):
        typed_usage.assert_type(np.zeros(3), typed_usage.pencils.PencilArray)
    with pytest.raises(AssertionError, match="is no"):
        typed_usage.assert_type([1.0], list[int])
