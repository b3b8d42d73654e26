"""The Python blocks of README.md and of the documentation run, in order, on any number of ranks."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES.remove(ROOT / "docs" / "notebook.md")  # `test_notebook.py` runs it


def python_blocks(page):
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [block for block in blocks if "simulate(" not in block]  # `simulation/test_pages.py`


def run_blocks(page):
    """Run a page as one program: later blocks see the names of earlier ones."""
    names = {}
    for number, block in enumerate(python_blocks(page), 1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_run_in_order(page, mpi_tmp_path, comm, monkeypatch):
    """Also once more in the same folder, if they have left files there."""
    with monkeypatch.context() as patch:
        patch.chdir(mpi_tmp_path)
        run_blocks(page)
        if comm.bcast(any(mpi_tmp_path.iterdir())):
            run_blocks(page)
