"""The magic ``%%simulate`` in IPython, and the tutorial that uses it."""

import doctest
import json
import re
import sys
import traceback
from pathlib import Path

import pytest

from simmpi.errors import DeadlockError

pytest.importorskip("IPython", exc_type=ImportError)
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PAGE = Path(__file__).parents[2] / "docs" / "notebook.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def ipython(tmp_path, monkeypatch):
    """Return an IPython."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # IPython sets its own
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    InteractiveShell.clear_instance()


@pytest.fixture
def run(ipython):
    """Run a cell in an IPython with the magic; return its result, or raise."""
    ipython.run_line_magic("load_ext", "simmpi")

    def run(cell):
        result = ipython.run_cell(cell)
        result.raise_error()
        return result.result

    run("from mpi4py import MPI\nimport pencils\ncomm = MPI.COMM_WORLD\nstep = 3")
    return run


def test_cells_run_on_ranks_and_have_values(run, capsys):
    cell = "%%simulate -n 3\nprint(comm.rank, comm.size, step)\ncomm.allgather(comm.rank)"
    assert run(cell) == [0, 1, 2]
    assert sorted(capsys.readouterr().out.splitlines())[:3] == ["0 3 3", "1 3 3", "2 3 3"]
    # Each rank has its own variables, and classes that can be sent.
    cell = "%%simulate -n 3 --seed 1\nmine = comm.rank\ncomm.barrier()\ncomm.gather(mine)"
    assert run(cell) == [0, 1, 2]
    cell = "%%simulate -n 3\nclass Own:\n    pass\ntype(comm.bcast(Own())) is Own"
    assert run(cell) is True
    # The variables of rank 0 come back.
    run("%%simulate -n 3\nmine = MPI.COMM_WORLD.rank\nstep += 1 + mine\nother = step")
    assert run("[mine, step, other]") == [0, 4, 4]
    run("%%simulate -n 3\nown = MPI.COMM_WORLD")
    assert run("comm.size, comm is MPI.COMM_WORLD, own is MPI.COMM_WORLD") == (1, True, True)
    run(
        "%%simulate -n 3 --seed 4\n"
        "u = pencils.from_function(pencils.Pencil((4, 5)), lambda i, j: 10 * i + j)\n"
        "whole = pencils.gather(u, root=0)"
    )
    assert run("whole[3, 4]") == 34
    # Magics inside of the cell, and no value.
    assert run("%%simulate -n 2\nx = !echo 5\ncomm.allreduce(int(x[0]));") is None
    assert run("x") == ["5"]


def test_errors_and_world_communicators(run):
    with pytest.raises(ZeroDivisionError) as caught:
        run("%%simulate -n 3\nif comm.rank == 1:\n    1 / 0\ncomm.barrier()")
    assert "rank 1 of 3" in "".join(caught.value.__notes__)
    with pytest.raises(DeadlockError, match="waits in barrier"):
        run("%%simulate -n 3\nif comm.rank == 1:\n    comm.barrier()")
    # World communicators of the notebook are those of the ranks.
    run("def size():\n    return comm.size, own.size\nown = MPI.COMM_SELF")
    assert run("%%simulate -n 3\nsize()") == (3, 1)
    assert run("size()") == (1, 1)
    with pytest.raises(ZeroDivisionError):
        run("%%simulate -n 3\n1 / 0")
    assert run("%%simulate -n 3\nnew = MPI.COMM_WORLD\nnew.size") == 3
    assert run("new.size, comm is new is MPI.COMM_WORLD") == (1, True)


@pytest.mark.parametrize("line", ["", "-n x", "-n 2 --unknown"])
def test_options_that_are_not_allowed(run, line):
    with pytest.raises(ValueError, match="usage: %%simulate -n N"):
        run(f"%%simulate {line}\n1")


def cells():
    """Return the cells of the tutorial, each with the output below it."""
    found = []
    for kind, text in FENCE.findall(PAGE.read_text()):
        if kind == "python":
            found.append((text, ""))
        elif kind == "text":
            found[-1] = found[-1][0], text
    return found


def output_of(ipython, cell):
    """Run a cell; return what it prints and its value, or its error."""
    with capture_output() as printed:
        result = ipython.run_cell(cell)
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        return "".join(traceback.format_exception_only(error)).removeprefix("simmpi.errors.")
    last = "" if result.result is None else f"{result.result!r}\n"
    return printed.stdout.partition("Out[")[0] + last


def test_the_notebook_has_the_cells_of_the_page(monkeypatch):
    """So what runs below are also the cells of the file that readers open."""
    monkeypatch.syspath_prepend(PAGE.parent)
    import notebooks

    text = PAGE.with_suffix(".ipynb").read_text()
    assert text == notebooks.of_page(PAGE.read_text()), "run docs/notebooks.py"
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert ["".join(cell["source"]) for cell in code] == [cell.strip() for cell, _ in cells()]


def test_the_notebook_of_an_example_runs(monkeypatch):
    monkeypatch.syspath_prepend(PAGE.parent)
    monkeypatch.setattr(sys, "argv", [])
    import notebooks

    path = PAGE.parents[1] / "examples" / "heat_equation.py"
    made = json.loads(notebooks.of_example(path, ["--n", "4"]))
    names = {"__name__": "__main__"}
    for cell in made["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["sys"].argv == ["heat_equation.py", "--n", "4"]
    made = json.loads(notebooks.of_example(path, ["--picture", "heat_equation.png"]))
    assert "Image" in "".join(made["cells"][-1]["source"])


def test_each_cell_of_the_tutorial_gives_the_output_below_it(ipython):
    for cell, expected in cells():
        found = output_of(ipython, cell)
        same = doctest.OutputChecker().check_output(expected, found, OPTIONS)
        assert same, f"{cell}\nprinted\n{found}"
    outputs = [output for _, output in cells() if output]
    assert len(outputs) > 10
    assert sum("DeadlockError" in output for output in outputs) == 2
