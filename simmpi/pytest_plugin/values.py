"""Simulated ranks of a session, and values of fixtures that differ by rank."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from simmpi import Simulation
from simmpi.errors import SimulationError


class Ranks:
    """The simulated ranks of a session, replaced by new ones when they cannot go on.

    `made` counts how often that has happened.
    """

    def __init__(self, size: int, **options: Any) -> None:
        self.size = size
        self.made = 0
        self._options = options  # of `Simulation`
        self._installed = ExitStack()
        self._start()

    def _start(self) -> None:
        self.simulation = Simulation(self.size, **self._options)
        self._installed.enter_context(self.simulation.installed())
        self.made += 1

    def restart(self) -> None:
        """Make new ranks, without the communicators of those before."""
        self._installed.close()
        self._start()

    def stop(self) -> None:
        """Give the names of MPI back."""
        self._installed.close()

    @property
    def running(self) -> int | None:
        """Number of the running rank, if one runs."""
        rank = self.simulation.scheduler.current
        return None if rank is None else rank.number

    def run(self, function: Callable[[], object]) -> None:
        """Call a function on all ranks; an error of one is raised here."""
        __tracebackhide__ = True
        try:
            self.simulation.run(function)
        except SimulationError as error:
            self.restart()
            _raise_of_ranks(error.with_traceback(None))
        except BaseException as error:
            if isinstance(error, (pytest.skip.Exception, pytest.xfail.Exception)):
                del error.__notes__  # a skipped test needs no places of ranks
            scheduler = self.simulation.scheduler
            raised = all(rank.error is not None for rank in scheduler.ranks)
            if not raised or scheduler.ended or self.simulation.left(done=False):
                self.restart()
            raise


def _raise_of_ranks(error: SimulationError) -> None:
    raise error


class RankValues:
    """The value of a fixture on each rank, made on the rank when it is first asked for."""

    def __init__(self, ranks: Ranks, make: Callable[[RankValues], object]) -> None:
        self._ranks = ranks
        self._make = make
        self._made: dict[tuple[int, int], object] = {}  # by ranks.made and rank
        self._at_end: dict[tuple[int, int], list[Callable[[], object]]] = {}

    def here(self) -> Any:
        """Return the value on the running rank."""
        key = self._key()
        if key not in self._made:
            self._made[key] = self._make(self)
        return self._made[key]

    def instance(self, instance: Any) -> Any:
        """Return the instance of a test class that belongs to the running rank."""
        _, rank = self._key()
        if instance is None or rank == 0:
            return instance
        of_ranks: dict[int, Any] = vars(instance).setdefault("_instances_of_ranks", {})
        return of_ranks.setdefault(rank, type(instance)())

    def bound(self, function: Callable[..., Any], instance: Any) -> Callable[..., Any]:
        """Bind a method of a test class to the instance of the running rank."""
        plain = getattr(function, "__func__", None)
        owner = type(getattr(function, "__self__", None))
        if plain is None or instance is None or not isinstance(instance, owner):
            return function
        method: Callable[..., Any] = plain.__get__(self.instance(instance))
        return method

    def at_end(self, function: Callable[[], object]) -> None:
        """Have the running rank call a function at the end of the fixture."""
        self._at_end.setdefault(self._key(), []).append(function)

    def finish(self, *, quiet: bool = False) -> None:
        """Call on all ranks what is to be called at the end; `quiet`: whatever it raises."""
        if not self._at_end:
            return
        quiet = quiet or any(made < self._ranks.made for made, _ in self._at_end)
        try:
            self._ranks.run(self._finish_here)
        except Exception:
            if not quiet:  # after a restart an error has been reported, and communicators ended
                raise
        finally:
            self._made.clear()
            self._at_end.clear()

    def _key(self) -> tuple[int, int]:
        rank = self._ranks.running
        assert rank is not None
        return self._ranks.made, rank

    def _finish_here(self) -> None:
        """Do so on the running rank; first, in spite of errors, for that rank before a restart."""
        last, rank = self._key()
        for made in range(1, last + 1):
            for function in reversed(self._at_end.get((made, rank), [])):
                with suppress(*([Exception] if made < last else [])):
                    function()


def here(value: object) -> Any:
    """Return the value of a fixture on the running rank."""
    return value.here() if isinstance(value, RankValues) else value


class RankRequest:
    """The fixture ``request`` of a rank: values, instance and finalizers are those of the rank."""

    def __init__(self, request: pytest.FixtureRequest, values: RankValues) -> None:
        self._request = request
        self._values = values

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    @property
    def instance(self) -> Any:
        """Instance of the test class on this rank."""
        return self._values.instance(self._request.instance)

    def getfixturevalue(self, argname: str) -> Any:
        """Return the value of another fixture on this rank."""
        return here(self._request.getfixturevalue(argname))

    def addfinalizer(self, finalizer: Callable[[], object]) -> None:
        """Call a function on this rank at the end of the fixture, or of the test."""
        self._values.at_end(finalizer)


def argument_here(value: object, values: RankValues) -> object:
    """Return an argument of a test or a fixture on the running rank."""
    return RankRequest(value, values) if isinstance(value, pytest.FixtureRequest) else here(value)


def make_value(
    function: Callable[..., Any], kwargs: dict[str, object], values: RankValues
) -> object:
    """Call the function of a fixture on the running rank."""
    found = {name: argument_here(value, values) for name, value in kwargs.items()}
    if not inspect.isgeneratorfunction(function):
        return function(**found)
    generator: Generator[object] = function(**found)
    value = next(generator)
    values.at_end(lambda: _end(generator, function))
    return value


def _end(generator: Generator[object], function: Callable[..., Any]) -> None:
    for _ in generator:
        pytest.fail(f"the fixture function {function.__name__} has more than one yield")


def call_here(
    test: Callable[..., object], instance: object, kwargs: dict[str, object], values: RankValues
) -> None:
    """Call the function of a test on the running rank."""
    found = {name: argument_here(value, values) for name, value in kwargs.items()}
    values.bound(test, instance)(**found)
