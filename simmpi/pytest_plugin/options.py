"""Options of pytest for simulated ranks; the rest is imported only if ``--simulate`` is given.

pytest imports this module at every start. The effect of each option is described in
`simmpi.pytest_plugin`.
"""

from __future__ import annotations

import argparse
import contextlib

import pytest

MARKERS = (
    "parallel(ranks): runs on that number of ranks, or on those numbers",
    "mpiexec(reason): needs processes of an MPI library; skipped on simulated ranks",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("simmpi", "simulated ranks of MPI (simmpi)")
    with contextlib.suppress(ValueError, argparse.ArgumentError):  # another plugin has an option
        _add_options(group)


def _add_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--simulate",
        dest="simmpi_size",
        type=int,
        metavar="N",
        help="run the tests that are marked `parallel` for N ranks on N simulated ranks",
    )
    group.addoption(
        "--simulate-seed",
        dest="simmpi_seed",
        type=int,
        metavar="S",
        help="number of the schedule; by default ranks run in turn",
    )
    group.addoption(
        "--simulate-nodes",
        dest="simmpi_nodes",
        type=int,
        default=1,
        metavar="K",
        help="number of nodes over which the simulated ranks are distributed (default: 1)",
    )
    group.addoption(
        "--simulate-max-steps",
        dest="simmpi_max_steps",
        type=int,
        metavar="N",
        help="fail a test or a fixture whose ranks make more than N calls of MPI together",
    )
    group.addoption(
        "--simulate-no-strict",
        dest="simmpi_strict",
        action="store_false",
        help="omit the checks of buffers, requests and messages that MPI libraries do not make",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Replace the names of MPI before any test module or conftest.py is imported."""
    options = early_config.known_args_namespace
    size = getattr(options, "simmpi_size", None)
    if size is None:
        return
    from simmpi.pytest_plugin.plugin import SimulatedRanks

    plugin = SimulatedRanks(
        size,
        seed=options.simmpi_seed,
        nodes=options.simmpi_nodes,
        max_steps=options.simmpi_max_steps,
        strict=options.simmpi_strict,
    )
    early_config.pluginmanager.register(plugin, "simmpi-ranks")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marks."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
