"""The Python blocks of README.md and of the documentation run, in order, on any number of ranks."""

import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

import pencils
from simmpi.world import active

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES.remove(ROOT / "docs" / "notebook.md")  # `test_notebook.py` runs it


BLOCK = re.compile(
    r"^```(?:python|\{code-block\} python\n:caption: (.*?)\n)\n(.*?)^```", re.DOTALL | re.MULTILINE
)
MOST = 12  # ranks of mpi4py-fft, which refuses empty blocks


def name_of(page):
    return str(page.relative_to(ROOT).with_suffix(""))


def programs(page):
    """Return the blocks of each program: those with a caption, as in `docs/from`, or without."""
    text, found = page.read_text(), {}
    assert len(BLOCK.findall(text)) == len(re.findall(r"^```.*\bpython$", text, re.MULTILINE))
    for caption, block in BLOCK.findall(text):
        if "simulate(" not in block:  # `simmpi/test_pages.py`
            found.setdefault(caption, []).append(block)
    if not find_spec("petsc4py"):  # .ci/run has an environment with it
        found.pop("petsc4py", None)
    return found


def run_blocks(page):
    """Run the programs of a page: later blocks see the names of earlier ones."""
    for caption, blocks in programs(page).items():
        names = {}
        for number, block in enumerate(blocks, 1):
            exec(compile(block, f"{page.name}, {caption} block {number}", "exec"), names)


@pytest.mark.parallel([1, 2, 3, 4, 6])
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_run_in_order(page, mpi_tmp_path, comm, monkeypatch):
    """Also once more in the same folder, if they have left files there."""
    if page.stem == "mpi4py_fft":
        pytest.importorskip("mpi4py_fft")
        if active() is not None or comm.size > MOST:
            pytest.skip("mpi4py-fft needs processes, and a part of each dimension for each of them")
    with monkeypatch.context() as patch:
        patch.chdir(mpi_tmp_path)
        run_blocks(page)
        if comm.bcast(any(mpi_tmp_path.iterdir())):
            run_blocks(page)


@pytest.mark.thorough  # the test above runs each page on one number of ranks
def test_pages_run_in_one_folder_on_other_numbers_of_ranks(tmp_path, monkeypatch):
    """What pages leave, on any number of ranks, disturbs no other run and no other page."""
    pages = [page for page in PAGES if re.search(r'"[\w/]+\.(h5|npy|png)"', page.read_text())]
    assert len(pages) > 3
    monkeypatch.chdir(tmp_path)
    for run in (partial(pencils.simulate, 3), lambda call, *args: call(*args)):
        for page in pages:
            run(run_blocks, page)
