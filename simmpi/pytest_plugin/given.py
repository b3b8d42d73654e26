"""Property tests of Hypothesis: for each example the simulated ranks run once."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from typing import Any

from simmpi.pytest_plugin.values import Ranks, RankValues, call_here


def is_property(test: object) -> bool:
    """Whether a test draws examples."""
    return "hypothesis" in sys.modules and getattr(test, "is_hypothesis_test", False)


def inner_of(test: Any) -> Any:
    """Return the function that Hypothesis calls for each example, or the test."""
    return test.hypothesis.inner_test if is_property(test) else test


def run_property(
    test: Any, instance: object, kwargs: dict[str, object], values: RankValues, ranks: Ranks
) -> None:
    """Draw examples outside of the ranks, and call the inner function for each on all ranks."""
    from hypothesis.control import _current_build_context as context

    plain = test.hypothesis.inner_test

    @functools.wraps(plain)
    def inner(*_: object, **arguments: object) -> None:
        drawn = {name: _Drawn(value, ranks) for name, value in arguments.items()}
        current = context.value

        def call() -> None:
            with context.with_value(current):  # which belongs to a thread
                here = {
                    name: kwargs[name] if name in kwargs else value.here()
                    for name, value in drawn.items()
                }
                call_here(plain, instance, here, values)

        ranks.run(call)

    test.hypothesis.inner_test = inner
    try:
        test(**kwargs)
    finally:
        test.hypothesis.inner_test = plain


class _Drawn:
    """A drawn value, of which each rank but the first gets a copy."""

    def __init__(self, value: object, ranks: Ranks) -> None:
        self._value = value
        self._ranks = ranks
        self._log: list[_Drawn | BaseException] = []

    def here(self) -> Any:
        """Return the value on the running rank."""
        if callable(getattr(self._value, "draw", None)):
            return _Data(self._value, self._log, self._ranks)
        if self._ranks.running == 0:
            return self._value
        try:
            return copy.deepcopy(self._value)
        except Exception:  # noqa: BLE001 - what cannot be copied is common to all ranks
            return self._value


class _Data:
    """``st.data()`` on a rank: the first rank draws, the other ones get the same."""

    def __init__(self, data: Any, log: list[_Drawn | BaseException], ranks: Ranks) -> None:
        self._data = data
        self._log = log
        self._ranks = ranks
        self._drawn = 0

    def draw(self, strategy: Any, label: Any = None) -> Any:
        """Draw a value."""
        if self._drawn == len(self._log):
            self._log.append(self._draw(lambda: self._data.draw(strategy, label)))
        drawn = self._log[self._drawn]
        self._drawn += 1
        if isinstance(drawn, BaseException):
            raise drawn
        return drawn.here()

    def _draw(self, draw: Callable[[], object]) -> _Drawn | BaseException:
        try:
            return _Drawn(draw(), self._ranks)
        except BaseException as error:  # noqa: BLE001 - raised on all ranks
            return error
