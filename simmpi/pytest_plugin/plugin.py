"""Hooks of pytest that run tests and their fixtures on simulated ranks."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Generator
from typing import Any

import pytest

from simmpi.pytest_plugin import fixtures
from simmpi.pytest_plugin.given import inner_of, is_property, run_property
from simmpi.pytest_plugin.marks import runs_on
from simmpi.pytest_plugin.values import Ranks, RankValues, call_here, make_value

_MOST_SHOWN = 10  # messages that were left


class SimulatedRanks:
    """The plugin, registered if ``--simulate`` is given."""

    def __init__(
        self, size: int, *, seed: int | None, nodes: int, max_steps: int | None, strict: bool
    ) -> None:
        if size < 1 or not 1 <= nodes <= size:
            raise pytest.UsageError(
                f"--simulate={size} --simulate-nodes={nodes}: give 1 or more ranks, and at most as "
                "many nodes as ranks"
            )
        if max_steps is not None and max_steps < 1:
            raise pytest.UsageError(f"--simulate-max-steps={max_steps}: give 1 or more calls")
        self.ranks = Ranks(size, seed=seed, nodes=nodes, max_steps=max_steps, strict=strict)
        self._strict = strict
        self._text = f"simulated ranks: {size} on {nodes} node{'s' * (nodes > 1)}, seed {seed}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Register the fixtures of ranks, and remove what runs such tests otherwise."""
        config.pluginmanager.register(fixtures, "simmpi-fixtures")
        if config.pluginmanager.has_plugin("mpi-pytest"):
            config.pluginmanager.unregister(name="mpi-pytest")
        _choose_core()

    def pytest_unconfigure(self) -> None:
        """Give the names of MPI back."""
        self.ranks.stop()

    def pytest_report_header(self) -> str:
        """Name the number of ranks and the seed, which repeat this run."""
        return self._text

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselect tests that are not for this number of ranks, and skip those for processes."""
        chosen = [item for item in items if self._runs(item)]
        if len(chosen) < len(items):
            kept = set(chosen)
            config.hook.pytest_deselected(items=[item for item in items if item not in kept])
            items[:] = chosen
        for item in items:
            mark = item.get_closest_marker("mpiexec")
            if mark is not None:
                item.add_marker(pytest.mark.skip(reason=f"needs mpiexec: {' '.join(mark.args)}"))

    def _runs(self, item: pytest.Item) -> bool:
        return type(item) is pytest.Function and runs_on(
            item.get_closest_marker("parallel"), self.ranks.size
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Call the function of a fixture on each rank."""
        plain = fixturedef.func
        if _is_common(fixturedef, request):
            return (yield)
        _refuse_asynchronous(plain, f"the fixture {fixturedef.argname}")
        fixturedef.func = self._for_all_ranks(plain, request.instance)  # type: ignore[misc]
        try:
            return (yield)
        finally:
            fixturedef.func = plain  # type: ignore[misc]

    def _for_all_ranks(
        self, plain: Callable[..., Any], instance: object
    ) -> Callable[..., Generator[RankValues]]:
        """Return a fixture function whose value is that of each rank."""

        def function(**kwargs: object) -> Generator[RankValues]:
            def make(values: RankValues) -> object:
                return make_value(values.bound(plain, instance), kwargs, values)

            values = RankValues(self.ranks, make)
            if self.ranks.running is None:  # otherwise the rank asks for it next
                try:
                    self.ranks.run(values.here)
                except BaseException:
                    values.finish(quiet=True)
                    raise
            yield values
            values.finish()

        return function

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        """Call the function of a test on all ranks."""
        __tracebackhide__ = True
        test = pyfuncitem.obj
        _refuse_asynchronous(inner_of(test), "the test")
        values = RankValues(self.ranks, lambda _: None)
        pyfuncitem.addfinalizer(values.finish)
        names = pyfuncitem._fixtureinfo.argnames
        kwargs = {name: pyfuncitem.funcargs[name] for name in names}
        left = set(self.ranks.simulation.left(done=False))
        if is_property(test):
            run_property(test, pyfuncitem.instance, kwargs, values, self.ranks)
        else:
            self.ranks.run(lambda: call_here(test, pyfuncitem.instance, kwargs, values))
        if self._strict:
            self._fail_if_left(left)
        return True

    def _fail_if_left(self, before: set[str]) -> None:
        """Fail a test after which there are more messages or requests than before."""
        left = [text for text in self.ranks.simulation.left(done=False) if text not in before]
        if left:
            self.ranks.restart()
            shown = "\n".join(left[:_MOST_SHOWN])
            pytest.fail(f"after the test ({len(left)} in all):\n{shown}", pytrace=False)


def _is_common(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> bool:
    """Whether a fixture has one value for all ranks.

    Those of pytest itself have, and parameters; but not ``tmpdir``, which requests ``tmp_path``.
    """
    of_pytest = fixturedef.func.__module__.startswith("_pytest.")
    if not of_pytest or fixturedef.argname.startswith("_xunit_setup"):
        return False
    requested = (request.getfixturevalue(name) for name in fixturedef.argnames)
    return not any(isinstance(value, RankValues) for value in requested)


def _refuse_asynchronous(function: Callable[..., Any], name: str) -> None:
    """Fail if a call of a function returns before its body has run."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        pytest.fail(
            f"{name} is an async function, which does not run on simulated ranks; make it a plain "
            "function that calls asyncio.run",
            pytrace=False,
        )


def _choose_core() -> None:
    """Keep each worker of pytest-xdist on a core of its own, if there are enough."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    number = worker.removeprefix("gw")
    if number.isdigit() and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(number) % len(cores)]})
