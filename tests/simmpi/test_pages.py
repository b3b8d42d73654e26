"""The blocks of the documentation that start simulated ranks, on one process."""

import re
from pathlib import Path

import numpy as np
import pytest

import pencils

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / name for name in ("tour.md", "howto/debug.md", "simmpi.md")]
PAGES.append(ROOT / "simmpi" / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_run_in_order(page):
    names = {"np": np, "pencils": pencils}  # the first blocks of the page import these
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    found = [block for block in blocks if "simulate(" in block]
    assert found
    for block in found:
        exec(compile(block, f"{page.name}: {block[:40]}", "exec"), names)


FRONT = re.compile(r"^```python\n(.*?)^```.*?^```text\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "index.md"])
def test_the_first_program_prints_what_the_page_shows(page, capsys, tmp_path, monkeypatch):
    """On four ranks."""
    monkeypatch.chdir(tmp_path)
    program, shown = FRONT.search(page.read_text()).groups()
    pencils.simulate(4, lambda: exec(program, {}))
    assert capsys.readouterr().out == shown
