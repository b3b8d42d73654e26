"""Every example in a docstring gives what it shows, on one process."""

import doctest
import importlib
import pkgutil

import pytest

import pencils
import simmpi

NAMES = sorted(
    module.name
    for package in (pencils, simmpi)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples_in(name):
    """Find the docstrings with examples; none where an optional library is missing."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        return []
    return [test for test in doctest.DocTestFinder().find(module) if test.examples]


def test_examples_are_found():
    assert "pencils.pencil.Pencil" in [test.name for test in examples_in("pencils.pencil")]


def test_every_public_name_has_an_example():
    named = {name: getattr(pencils, name) for name in pencils.__all__}
    docs = {name: value.__doc__ for name, value in named.items() if callable(value)}
    assert [name for name, text in docs.items() if ">>>" not in (text or "")] == []


@pytest.mark.parametrize("name", NAMES)
def test_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    for test in examples_in(name):
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
