"""A plugin for pytest that runs tests of MPI programs on simulated ranks.

It is there when simmpi is installed. Tests for several ranks are marked as those of mpi-pytest::

    import pytest
    from mpi4py import MPI


    @pytest.fixture
    def comm():
        return MPI.COMM_WORLD


    @pytest.mark.parallel([2, 3, 4])
    def test_sum(comm):
        assert comm.allreduce(1) == comm.size

and run without mpiexec, on any number of ranks::

    pytest --simulate 4
    for n in 2 3 16 64; do pytest --simulate $n || break; done
    pytest --simulate 4 --numprocesses 2       # the tests distributed by pytest-xdist
    pytest --simulate 4 --simulate-seed 7      # ranks run in another order; the same one each time
    pytest --simulate 4 --simulate-nodes 2     # two ranks on each of two nodes
    pytest --simulate 4 --simulate-max-steps 1000000   # a test that never ends fails
    pytest --simulate 4 --simulate-no-strict   # without checks that MPI libraries do not make

If another plugin, loaded before, has an option of one of these names, there are no simulated ranks.
If a ``conftest.py`` or a plugin that is loaded later has one, pytest reports a "conflicting option
string": run it as ``pytest -p no:simmpi``, or rename that option.

**Which tests run.** Those marked ``parallel`` without a number, for this number of ranks
(``parallel(4)``), or for several numbers of which this is one or which are all smaller: a test for
``parallel([2, 3, 4])`` does not depend on the number, and runs on 16 ranks, too. All other tests
are deselected; they run in plain ``pytest``. Tests marked ``mpiexec("reason")`` are skipped: they
need processes. Methods of `unittest.TestCase` are deselected, too. Async functions of tests and
fixtures fail: call ``asyncio.run`` in a plain function. Plain ``pytest`` runs all tests, on one
process: if a test for ``parallel(4)`` cannot pass there, deselect such tests, ``pytest -m "not
parallel"``.

**What is replaced.** The names of ``mpi4py.MPI`` are replaced before the first ``conftest.py`` is
imported: while modules are imported and tests are collected, ``MPI.COMM_WORLD`` is that of rank 0
of N, on which nothing collective can be called. The function of the test and those of all its
fixtures run on all ranks; each rank has its own value of every fixture, of any scope, and its own
instance of a test class. What a fixture does after ``yield`` runs on all ranks, too. Each rank also
has its own

- ``monkeypatch``: what is patched is patched for this rank. Use the fixture rather than
  ``unittest.mock`` or ``pytest.MonkeyPatch()``, which patch for all ranks,
- ``capsys``: what this rank prints,
- ``caplog``: what this rank logs (levels belong to all ranks),
- ``tmp_path``, ``tmpdir``: another folder for each rank,
- ``request``, of which ``getfixturevalue`` and ``addfinalizer`` are those of the rank.

All other fixtures of pytest itself, as ``capfd``, ``recwarn`` or ``tmp_path_factory``, and values
of ``parametrize`` are common to all ranks.

**Property tests.** With Hypothesis the ranks run once for each example. So there is no need to
derandomize, and failing examples shrink, which separate processes cannot do. ``st.data()`` draws
the same on all ranks. Drawn values are copied for each rank.

**Outcomes.** A test fails once: with the error of the lowest rank that has raised one, and a note
which rank that was, where the others were, and the seed. If ranks wait for each other, the test
fails with a `DeadlockError` and the place where each rank waits. A test also fails if it leaves
messages that were not received or requests that nothing can complete. If a test fails in a way
that its ranks do not end together, the next test gets new ranks, and fixtures of modules and
sessions are made again.

What simulated ranks cannot show is described in `simmpi.simulate`: run the tests with mpiexec,
too, on one number of ranks.
"""

from __future__ import annotations
