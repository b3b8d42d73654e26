"""The files around the package agree with it."""

import re
import tomllib
from pathlib import Path

import house
import pytest

import pencils

ROOT = Path(__file__).parents[1]


def test_versions_files_and_releases():
    version = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version
    assert version[1] == pencils.__version__
    # The guide for contributors names existing files.
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:pencils|simmpi|tests|docs|benchmarks)/[\w./]*)`", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
    # A release depends on the tests.
    text = (ROOT / ".github/workflows/release.yml").read_text()
    assert re.search(r"tests:\n +uses: \$/\.github/workflows/ci\.yml", text)
    assert re.search(r"publish:\n.*\n +needs: \[tests, wheels, source\]", text)


def test_recipes_name_what_the_files_beside_them_define():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    recipes = text.split("## Recipes")[1].split("\n## ")[0].split("\n- ")[1:]
    missing = []
    for recipe in recipes:
        sources = "".join(map(source, re.findall(r"`((?:pencils|simmpi)/[\w./]*)`", recipe)))
        names = re.findall(r"`(_?[A-Z]\w+)`", recipe)
        missing += [name for name in names if not re.search(rf"\b{name}\b", sources)]
    assert recipes
    assert missing == []


def test_the_recipe_for_conda_requires_what_the_package_requires():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    recipe = (ROOT / "packaging/conda/recipe.yaml").read_text()
    assert f'version: "{pencils.__version__}"' in recipe
    python = "python" + project["project"]["requires-python"]
    assert named_in(recipe, "run") == [python, *project["project"]["dependencies"]]
    assert set(project["build-system"]["requires"]) <= set(named_in(recipe, "host"))


@pytest.mark.thorough
def test_the_size_of_the_house_is_printed(capsys):
    text = house.table()
    with capsys.disabled():
        print(f"\n{text}")
    assert all(re.search(r" \d[\d,]* \(goal [\d,]+\)$", line) for line in text.splitlines())


def named_in(recipe, section):
    """List the requirements in a section of the recipe, as pyproject.toml writes them."""
    lines = re.search(rf"^  {section}:\n((?:    - .*\n)+)", recipe, re.MULTILINE)[1].splitlines()
    return [line.split("#")[0].replace(" ", "").removeprefix("-") for line in lines]


def source(path):
    return (ROOT / path).read_text()
