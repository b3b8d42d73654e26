"""Errors of simulated ranks."""

from __future__ import annotations


class SimulationError(RuntimeError):
    """Simulated ranks cannot go on. If a `seed` was given, the text names it."""

    def __init__(self, text: str, seed: int | None = None) -> None:
        first, end, rest = text.partition("\n")
        super().__init__(text if seed is None else f"{first} (seed={seed}){end}{rest}")
        self.seed = seed


class DeadlockError(SimulationError):
    """All ranks wait for each other, or for one that has ended."""


class MismatchError(SimulationError):
    """Ranks called different collectives, or with different roots, counts or types."""


class UsageError(SimulationError):
    """MPI was used in a way that the standard forbids, though most libraries do not notice it."""


class StepLimitError(SimulationError):
    """The ranks made more calls of MPI than ``max_steps=`` allows."""


class RankKilledError(SimulationError):
    """A rank was killed by a fault, and all other ranks have returned."""
