"""The function that runs programs on simulated ranks, and the simulation behind it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from simmpi import process
from simmpi.arguments import check_program, faults_of_ranks, integer, nodes_of_ranks, positive
from simmpi.communicators import COMM_SELF, COMM_WORLD
from simmpi.errors import DeadlockError, RankKilledError, SimulationError, UsageError
from simmpi.module import MODULE, names_replaced
from simmpi.ranks import KILLED, RAISED, RETURNED, Fault, Rank
from simmpi.report import advice, numbered, text_of_error, where
from simmpi.scheduler import Scheduler
from simmpi.world import World, activate, active, deactivate

T = TypeVar("T")

_MOST_SHOWN = 10  # things that were left, in one text


class Simulation:
    """Simulated ranks, on which functions run one after the other.

    Parameters are those of `simulate`; `max_steps` holds for each run. What ranks make in one run,
    such as communicators, is there in the next one.

    Attributes
    ----------
    calls : list of list of str
        For each rank, the calls of MPI so far, and `point` among them.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> simulation = Simulation(3)
    >>> with simulation.installed():
    ...     simulation.run(lambda: MPI.COMM_WORLD.allreduce(1))
    ...     simulation.close()
    [3, 3, 3]
    >>> simulation.calls[0]
    ['allreduce']
    """

    def __init__(
        self,
        nranks: int,
        *,
        seed: int | None = None,
        nodes: int | Sequence[int] | None = None,
        faults: Iterable[Fault] | None = None,
        max_steps: int | None = None,
        strict: bool = True,
    ) -> None:
        size = positive(nranks, "nranks")
        self.scheduler = Scheduler(
            size,
            seed=None if seed is None else integer(seed, "seed"),
            faults=faults_of_ranks(faults, size),
            max_steps=None if max_steps is None else positive(max_steps, "max_steps"),
            where=where,
        )
        self.world = World(self.scheduler, nodes_of_ranks(nodes, size), strict=strict)

    @property
    def calls(self) -> list[list[str]]:
        """Names of the calls of each rank."""
        return [rank.calls for rank in self.scheduler.ranks]

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the names of ``mpi4py.MPI`` by those of this simulation, in the block."""
        _check_no_rank_runs()
        import_mpi()
        activate(self.world)
        outside = process.exchange(self.scheduler.ranks[0].values)
        try:
            with names_replaced():
                yield
        finally:
            process.exchange(outside)
            deactivate(self.world)

    def run(self, function: Callable[..., T], *args: object) -> list[T]:
        """Call a function on all ranks; return its results by rank."""
        scheduler = self.scheduler
        if scheduler.ended:
            raise SimulationError("the simulation has ended; make another one", scheduler.seed)
        _check_no_rank_runs()
        if active() is not self.world:
            raise SimulationError("run and close need the names: call them in `with installed()`")
        deadlock = None
        try:
            with _on_one_core(), process.warnings_apart():
                scheduler.run([partial(function, *args)] * scheduler.size)
        except DeadlockError as error:
            deadlock = error
        if deadlock is not None:  # outside of the clause: not the context of the other error
            self._raise_error_of_rank(str(deadlock))
            deadlock.args = ("\n".join([str(deadlock), *self._unread(), *advice(scheduler.ranks)]),)
            raise deadlock
        self._end_if_killed()
        self._raise_error_of_rank()
        return [rank.result for rank in scheduler.ranks]

    def close(self) -> None:
        """End the simulation; report what the program has left, if it is strict."""
        if self.scheduler.ended:
            return
        self.run(_drop_attributes)
        self.world.finalized = self.scheduler.ended = True
        if not self.world.strict:
            return
        left = self.left()
        if left:
            raise UsageError(
                f"at the end: {_listed(left)}. Complete every request "
                "with wait or test, and receive every message; strict=False omits this check",
                self.scheduler.seed,
            )
        kept = [
            f"{each.name}, made at {each.place}"
            for each in self.world.contexts
            if not self.world.permanent(each)
        ]
        kept += [window.name for window in self.world.windows]
        if kept:
            text = f"never freed: {_listed(sorted(kept))}; call Free when it is not needed any more"
            warnings.warn(text, ResourceWarning, stacklevel=3)

    def left(self, *, done: bool = True) -> list[str]:
        """List requests that were not completed and messages that were not received.

        Without `done`, requests are left out that could be completed without waiting.
        """
        found = [
            f"rank {rank.number} has not completed {operation.call} ({operation.text()})"
            for rank in self.scheduler.ranks
            for operation in rank.operations
            if done or not operation.done()
        ]
        return found + self._unread()

    def _unread(self) -> list[str]:
        """List messages that were not received, but those of requests that are not complete."""
        return [
            f"rank {number} has not received a message from rank {message.source} with tag "
            f"{message.tag} on {context.name} ({message.call} of {len(message.data)} bytes)"
            for context in self.world.contexts
            for number, mailbox in context.mailboxes.items()
            for message in mailbox.unread()
            if message not in message.rank.operations
        ]

    def _end_if_killed(self) -> None:
        scheduler = self.scheduler
        killed = [rank.number for rank in scheduler.ranks if rank.status is KILLED]
        if not killed:
            return
        text = "\n".join(where(scheduler.ranks))
        scheduler.before_unwinding()
        scheduler.release_killed()
        self._raise_error_of_rank(text)
        raise RankKilledError(
            f"{numbered(killed)} killed by a fault, all other ranks returned\n{text}",
            scheduler.seed,
        )

    def _raise_error_of_rank(self, text: str = "") -> None:
        """Raise the error of the lowest rank that has one, with a note where the others are."""
        ranks = self.scheduler.ranks
        for rank in ranks:
            if rank.status is RAISED and not _is_normal_exit(rank):
                assert rank.error is not None
                told = text_of_error(rank.error)
                alike = [
                    each
                    for each in ranks
                    if each.error is not None and text_of_error(each.error) == told
                ]
                those = numbered(each.number for each in alike)
                # The text ends without a new line.
                rest = f"{text}\n".replace(f"{those} {RAISED} {told}\n", "").rstrip() or "\n".join(
                    where(each for each in ranks if each not in alike)
                )
                seed = "" if self.scheduler.seed is None else f" (seed={self.scheduler.seed})"
                every = len(alike) == len(ranks) > 1
                who = f"all {len(ranks)} ranks" if every else f"{those} of {len(ranks)}"
                note = f"{who} raised this{seed}"
                rank.error.add_note("\n".join([note, rest] if rest else [note]))
                raise rank.error


def simulate(
    nranks: int,
    function: Callable[..., T],
    *args: object,
    seed: int | None = None,
    nodes: int | Sequence[int] | None = None,
    faults: Iterable[Fault] | None = None,
    max_steps: int | None = None,
    strict: bool = True,
) -> list[T]:
    """Run a function on simulated ranks of MPI, in this process.

    The function is an MPI program as it is: inside it, ``from mpi4py import MPI`` and libraries
    that use it see `nranks` ranks. Each rank is a thread; one runs at a time, and at every call of
    MPI the next one is chosen. The same seed gives the same run.

    Parameters
    ----------
    nranks : int
        Number of ranks.
    function : callable
        What each rank runs. Communicators have to be taken from ``MPI`` inside it.
    *args : object
        Its arguments. All ranks get the same objects.
    seed : int, optional
        Chooses the order of the ranks, which sends wait for their receive, and the order in which
        messages arrive. By default ranks run in turn, each until it has to wait, and sends of up to
        64 KiB do not wait.
    nodes : int or sequence of int, optional
        Number of nodes, over which ranks are distributed in blocks, or the node of each rank; by
        default one. Ranks of a node share memory.
    faults : iterable of Fault, optional
        What goes wrong.
    max_steps : int, optional
        Calls of MPI of all ranks after which the simulation ends.
    strict : bool, default True
        Also report what most MPI libraries do not notice: buffers that change while they are sent
        or received, other types at both sides of a message, requests that are never completed,
        messages that are never received; and, as `ResourceWarning`, communicators and windows that
        are never freed.

    Returns
    -------
    list
        What the function has returned, by rank.

    Raises
    ------
    Exception
        What a rank has raised: of the lowest such rank, with a note about the others.
    DeadlockError
        If ranks wait for each other or for one that has ended; with the place of each.
    MismatchError
        If ranks call different collectives, or with different roots, counts or types.
    UsageError
        What `strict` reports.
    StepLimitError
        If `max_steps` is exceeded.
    RankKilledError
        If `faults` has killed a rank, and all others have returned.

    Notes
    -----
    Simulated ranks share one address space and the interpreter: data races in shared memory, bugs
    of MPI libraries, and C libraries that call MPI themselves need a run with mpiexec.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> def total():
    ...     comm = MPI.COMM_WORLD
    ...     return comm.rank, comm.allreduce(comm.rank)
    >>> simulate(3, total)
    [(0, 3), (1, 3), (2, 3)]
    """
    if not callable(function):
        raise TypeError(f"function must be callable, not {function!r}")
    check_program(function, args)
    simulation = Simulation(
        nranks, seed=seed, nodes=nodes, faults=faults, max_steps=max_steps, strict=strict
    )
    with simulation.installed():
        results = simulation.run(function, *args)
        simulation.close()
    return results


def point(name: str) -> None:
    """Count as a call of MPI of the running rank, at which a `Fault` can happen; local.

    Nothing happens outside of simulated ranks.
    """
    world = active()
    if world is not None and world.scheduler.current is not None:
        world.scheduler.step(name)


def import_mpi() -> ModuleType:
    """Import ``mpi4py.MPI``; without mpi4py or an MPI library, the simulated MPI of one rank."""
    try:
        return import_module("mpi4py.MPI")
    except (ImportError, RuntimeError):  # mpi4py is not installed, or finds no library
        return stand_in()


def stand_in() -> ModuleType:
    """Have ``from mpi4py import MPI`` import the simulated MPI, with this process as its rank."""
    package: Any = sys.modules.get("mpi4py") or ModuleType("mpi4py")
    sys.modules["mpi4py"] = package
    package.MPI = sys.modules["mpi4py.MPI"] = alone()
    return MODULE


def alone() -> ModuleType:
    """Return the simulated MPI, with this process as its only rank."""
    simulation = Simulation(1, strict=False)
    scheduler = simulation.scheduler
    scheduler.alone = True
    scheduler.current = scheduler.ranks[0]
    activate(simulation.world)
    return MODULE


def _check_no_rank_runs() -> None:
    """Raise in a simulated rank, and in other threads while ranks run."""
    world = active()
    if world is not None and world.scheduler.current and not world.scheduler.alone:
        raise SimulationError(
            "a simulation is running; start another one after it, and not on a simulated rank"
        )


def _drop_attributes() -> None:
    """Do at the end of a rank what a process does: values of attributes are dropped."""
    process.end()
    for comm in (COMM_SELF, COMM_WORLD):
        comm._drop_attributes()


def _is_normal_exit(rank: Rank) -> bool:
    """Whether a rank has ended by ``sys.exit()``, which is no error."""
    if isinstance(rank.error, SystemExit) and rank.error.code in (None, 0):
        rank.status = RETURNED
        return True
    return False


def _listed(texts: Sequence[str]) -> str:
    more = [f"and {len(texts) - _MOST_SHOWN} more"] if len(texts) > _MOST_SHOWN else []
    return "; ".join([*texts[:_MOST_SHOWN], *more])


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Keep threads that the block starts on one core: they run in turn, and change faster so."""
    try:
        cores = os.sched_getaffinity(0)
        one = {_core()}
        os.sched_setaffinity(0, one)
    except (AttributeError, OSError, IndexError, ValueError):  # not on this system
        yield
        return
    try:
        yield
    finally:  # also for threads of libraries that began in the block
        for task in Path("/proc/self/task").iterdir():
            number = int(task.name)
            with suppress(OSError):  # the thread has ended
                if os.sched_getaffinity(number) == one:
                    os.sched_setaffinity(number, cores)


def _core() -> int:
    """Return the core that runs this thread now; other programs run on other ones."""
    fields = Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()
    return int(fields[36])
