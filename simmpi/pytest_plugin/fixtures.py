"""Fixtures of pytest of which each simulated rank has its own."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from simmpi.process import owner
from simmpi.pytest_plugin.patches import RankMonkeyPatch


@pytest.fixture(name="monkeypatch")
def _monkeypatch() -> Iterator[pytest.MonkeyPatch]:
    """Patch for this rank."""
    patch = RankMonkeyPatch()
    yield patch
    patch.undo()


class Captured(NamedTuple):
    """What was printed since the last call."""

    out: str
    err: str


class Capture:
    """What one rank prints, with the methods of `pytest.CaptureFixture`."""

    def __init__(self) -> None:
        self._patch = RankMonkeyPatch()
        self._out, self._err = io.StringIO(), io.StringIO()
        self.start()

    def start(self) -> None:
        """Capture from now on."""
        self._patch.setattr(sys, "stdout", self._out)
        self._patch.setattr(sys, "stderr", self._err)

    def stop(self) -> None:
        """Print as before."""
        self._patch.undo()

    def readouterr(self) -> Captured:
        """Return what was printed since the last call."""
        found = Captured(self._out.getvalue(), self._err.getvalue())
        for stream in (self._out, self._err):
            stream.seek(0)
            stream.truncate()
        return found

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Print as before in the block."""
        self.stop()
        yield
        self.start()


@pytest.fixture(name="capsys")
def _capsys() -> Iterator[Capture]:
    """Capture what this rank prints."""
    capture = Capture()
    yield capture
    capture.stop()


class RankLog(pytest.LogCaptureFixture):  # type: ignore[misc]  # only for typing final
    """The log of one rank."""

    def __init__(self, item: pytest.Item) -> None:
        super().__init__(item, _ispytest=True)
        self._rank = owner()
        self._handler: logging.Handler = type(super().handler)()
        self._handler.addFilter(lambda _: owner() is self._rank)

    @property
    def handler(self) -> Any:
        """The handler that keeps the records of this rank."""
        return self._handler


@pytest.fixture(name="caplog")
def _caplog(request: pytest.FixtureRequest) -> Iterator[RankLog]:
    """Keep what this rank logs."""
    log = RankLog(request.node)
    logging.getLogger().addHandler(log.handler)
    yield log
    logging.getLogger().removeHandler(log.handler)
    log._finalize()


@pytest.fixture(name="tmp_path")
def _tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder for this rank."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(name)
