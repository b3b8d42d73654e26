"""Tests marked `parallel` run on simulated ranks, each as one test."""

import pytest

pytest_plugins = ["pytester"]

HEAD = """
import logging, os, sys, warnings
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mpi4py import MPI

SIZE = MPI.COMM_WORLD.size
pytestmark = pytest.mark.parallel

@pytest.fixture(scope="session")
def comm():
    private = MPI.COMM_WORLD.Dup()
    yield private
    private.Free()
"""


@pytest.fixture
def on_ranks(pytester):
    """Run the text of a test module on simulated ranks."""

    def run(text, *options, ranks=3):
        pytester.makepyfile(HEAD + text)
        return pytester.runpytest_subprocess("--simulate", str(ranks), "-p", "no:xdist", *options)

    return run


def test_fixtures_and_parameters_have_values_for_each_rank(on_ranks):
    found = on_ranks(
        """
@pytest.fixture(params=["a", "b"])
def name(request, comm):
    assert request.getfixturevalue("comm") is comm
    return f"{request.param}{comm.rank}"

@pytest.fixture(autouse=True)
def waits(comm):
    comm.Barrier()

@pytest.mark.parametrize("width", [1, 2])
def test_values(name, width, comm, request):
    assert SIZE == comm.size == 3
    assert comm.allgather(name) == [f"{name[0]}{rank}" for rank in range(3)]
    assert comm.allreduce(width) == 3 * width
    assert request.getfixturevalue("name") == name

def test_patches(monkeypatch, comm):
    monkeypatch.setattr(np, "rank_here", comm.rank, raising=False)
    monkeypatch.setenv("RANK_HERE", str(comm.rank))
    comm.barrier()
    with monkeypatch.context() as patch:
        patch.delattr(np, "rank_here")
        comm.barrier()
        assert not hasattr(np, "rank_here")
    comm.barrier()
    assert np.rank_here == int(os.environ["RANK_HERE"]) == comm.rank

def test_patches_are_undone():
    assert not hasattr(np, "rank_here")
    assert "RANK_HERE" not in os.environ

def test_folders(tmpdir, tmp_path, monkeypatch, comm):
    assert str(tmpdir) == str(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert len(set(comm.allgather(tmp_path))) == 3
    assert os.getcwd() == str(tmp_path)

def test_output(capsys, caplog, comm):
    print("rank", comm.rank)
    logging.warning("rank %d", comm.rank)
    comm.barrier()
    assert capsys.readouterr().out == f"rank {comm.rank}\\n"
    assert caplog.messages == [f"rank {comm.rank}"]

def test_warnings(comm):
    with pytest.warns(UserWarning, match=f"rank {comm.rank}"):
        comm.barrier()
        warnings.warn(f"rank {comm.rank}")
        comm.barrier()

class TestClass:
    def setup_method(self):
        self.rank = MPI.COMM_WORLD.rank

    @pytest.fixture
    def twice(self):
        return 2 * self.rank

    def test_instance(self, comm, twice):
        comm.barrier()
        assert twice == 2 * self.rank == 2 * comm.rank
"""
    )
    found.assert_outcomes(passed=10)


def test_only_tests_for_this_number_of_ranks_run(on_ranks):
    text = """
pytestmark = []
def test_serial(): assert False
@pytest.mark.parallel(3)
def test_three(): assert False
@pytest.mark.parallel([2, 3])
def test_any_number(): pass
@pytest.mark.parallel([3, 7])
def test_larger_ones(): assert False
@pytest.mark.parallel
@pytest.mark.mpiexec("reads the clock")
def test_clock(): assert False
@pytest.mark.parallel
def test_skipped(): pytest.skip("not today")
@pytest.mark.parallel
@pytest.mark.xfail(raises=ZeroDivisionError)
def test_bug(): 1 / 0
"""
    found = on_ranks(text, "-rs", ranks=5)
    found.assert_outcomes(passed=1, skipped=2, xfailed=1, deselected=3)
    found.stdout.fnmatch_lines(["*needs mpiexec: reads the clock"])
    found.stdout.no_fnmatch_line("*of 5 raised this*")


def test_failures_name_ranks_places_and_seed(on_ranks):
    found = on_ranks(
        """
def test_one_rank(comm):
    assert comm.rank != 1
    comm.Barrier()

def test_deadlock(comm):
    if comm.rank:
        comm.Barrier()

def test_message(comm):
    if comm.rank == 0:
        comm.isend("unread", 1).Free()

def test_next(comm):
    assert comm.allreduce(1) == 3
""",
        "--simulate-seed",
        "7",
    )
    found.assert_outcomes(passed=1, failed=3)
    found.stdout.fnmatch_lines(
        [
            "*simulated ranks: 3 on 1 node, seed 7*",
            "*def test_one_rank(comm):",
            "*rank 1 of 3 raised this (seed=7)",
            "*ranks 0, 2 wait in Barrier * for rank 1, which raised AssertionError*",
            "*DeadlockError: *(seed=7)",
            "*ranks 1-2 wait in Barrier * for rank 0, which returned",
            "*in test_deadlock: comm.Barrier()",
            "rank 1 has not received a message from rank 0 *",
        ]
    )


def test_fixtures_end_on_all_ranks_though_a_test_fails(on_ranks, pytester):
    found = on_ranks(
        """
@pytest.fixture
def file(request):
    comm = MPI.COMM_WORLD
    request.addfinalizer(lambda: open(f"final{comm.rank}", "w").close())
    yield
    comm.barrier()
    open(f"ended{comm.rank}", "w").close()

@pytest.mark.parametrize("rank", [0, 2])
def test_one_rank(file, rank):
    assert MPI.COMM_WORLD.rank != rank
    MPI.COMM_WORLD.barrier()

@pytest.fixture
def broken(file):
    assert MPI.COMM_WORLD.rank != 1

def test_broken(broken): pass

@pytest.fixture
def twice():
    yield 1
    yield 2

def test_twice(twice): pass
"""
    )
    found.assert_outcomes(passed=1, failed=2, errors=2)
    found.stdout.fnmatch_lines(["*rank 1 of 3 raised this*", "*twice has more than one yield*"])
    names = {path.name for path in pytester.path.iterdir()}
    assert names >= {f"{name}{rank}" for name in ("ended", "final") for rank in range(3)}


def test_properties_draw_the_same_on_all_ranks_and_shrink(on_ranks):
    found = on_ranks(
        """
@given(st.lists(st.integers()), st.data())
def test_draws(comm, values, data):
    drawn = data.draw(st.lists(st.text()))
    assert len(set(comm.allgather(repr((values, drawn))))) == 1
    values.append(1)
    drawn.append("")

@given(st.lists(st.integers()))
@settings(database=None)
def test_false(comm, values):
    total = comm.allreduce(len(values))
    assert comm.rank == 1 or total < 9
    comm.barrier()
"""
    )
    found.assert_outcomes(passed=1, failed=1)
    found.stdout.fnmatch_lines(["*values=[[]0, 0, 0[]],*"])


def test_async_functions_are_refused(on_ranks):
    found = on_ranks(
        """
async def test_plain(): assert False

async def test_generator(): yield

@given(st.integers())
async def test_property(number): assert False

@pytest.fixture
async def value(): return 1

@pytest.fixture
async def values(): yield 1

def test_value(value): pass

def test_values(values): pass
"""
    )
    found.assert_outcomes(failed=3, errors=2)
    found.stdout.fnmatch_lines(["*the fixture values is an async function, *asyncio.run*"])
    found.stdout.fnmatch_lines(["*the test is an async function, *asyncio.run*"])


def test_limits_and_checks_are_options(on_ranks):
    text = """
def test_loop(comm):
    for _ in range(30):
        comm.Barrier()

def test_left(comm):
    comm.send(1, dest=comm.rank)

def test_short(comm):
    comm.Barrier()
"""
    found = on_ranks(text, "--simulate-max-steps", "60", "--simulate-no-strict")
    found.assert_outcomes(passed=2, failed=1)
    found.stdout.fnmatch_lines(["*StepLimitError: *max_steps=60; *"])


def test_a_plugin_with_the_same_option_still_runs(pytester):
    option = "parser.addoption('--simulate', action='store_true')"
    pytester.makepyfile(other=f"def pytest_addoption(parser):\n    {option}")
    pytester.makepyfile("def test_option(pytestconfig): assert pytestconfig.getoption('simulate')")
    pytester.syspathinsert()
    found = pytester.runpytest_subprocess("-p", "other", "--simulate", "-p", "no:zarr")
    found.assert_outcomes(passed=1)


def test_options(pytester):
    pytester.makepyfile(
        """
import sys
def test_modules():
    assert "simmpi.pytest_plugin.options" in sys.modules
    assert "pencils" not in sys.modules
    assert "mpi4py.MPI" not in sys.modules
"""
    )
    pytester.runpytest_subprocess("-p", "no:zarr").assert_outcomes(passed=1)
    # Senseless options are refused.
    found = pytester.runpytest_subprocess("--simulate", "2", "--simulate-nodes", "3")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines(["*--simulate=2 --simulate-nodes=3*at most as many nodes as ranks*"])
