"""Measure which method, and which process grid, moves fields fastest on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

from numpy.typing import DTypeLike

from pencils.array.allocation import as_components, as_dtype, as_singletons
from pencils.array.operands import FieldSpec, as_pencils, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.machine import describe_machine, time_in_turn
from pencils.comm.methods import METHODS
from pencils.comm.topology import Topology
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout.build import factorizations
from pencils.layout.integers import to_int
from pencils.pencil import Pencil
from pencils.plan import set_fastest
from pencils.transposition.plan import Transposition
from pencils.transposition.sides import method_key


class Row(NamedTuple):
    """One measurement: the way from pencil number `step` to the next one, on a process grid."""

    grid: tuple[int, ...]
    step: int
    method: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """What `tune` found; ``print`` shows the table it decided from.

    Parameters
    ----------
    pencils : tuple of Pencil
        The given pencils, on the fastest process grid.
    methods : tuple of str
        Fastest method from each pencil to the next one.
    rows : tuple of Row
        All measurements.
    """

    pencils: tuple[Pencil, ...]
    methods: tuple[str, ...]
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        lines = [f"{'from':>4} {'to':>4}  {'grid':12} {'method':10} {'ms':>10}"]
        chosen = {
            (pen.grid, step, method)
            for step, (pen, method) in enumerate(zip(self.pencils, self.methods, strict=False))
        }
        for row in self.rows:
            mark = " <" if row[:3] in chosen else ""
            grid = " x ".join(map(str, row.grid))
            lines.append(
                f"{row.step:4} {row.step + 1:4}  {grid:12} {row.method:10} "
                f"{1e3 * row.seconds:10.4f}{mark}"
            )
        return "\n".join(lines)


def tune(
    pencils: Sequence[Pencil],
    dtype: DTypeLike = float,
    *,
    components: int | Sequence[int] = (),
    dims: Sequence[int] | int | None = None,
    shared: bool = False,
    grids: bool = False,
    repeat: int = 5,
    file: str | PathLike[str] | None = None,
    show: bool = True,
) -> Tuning:
    """Measure how fields move fastest from each pencil to the next. *Collective*.

    Afterwards `transpose`, and plans made with ``method="auto"``, use the fastest method for the
    same pencils, dtype, components and singletons on the same communicator.

    Parameters
    ----------
    pencils : sequence of Pencil
        Two or more pencils of the same global shape and processes, in the order in which fields
        pass through them.
    dtype : dtype, optional
        Element type.
    components : int or sequence of int, optional
        Shape of the component axes.
    dims : int or sequence of int, optional
        Dimensions along which the fields vary; they are singletons along the others.
    shared : bool, optional
        Whether the fields will lie in shared memory.
    grids : bool, optional
        Whether to try all process grids as well; all pencils must then decompose the same number
        of dimensions. Take the pencils of the result.
    repeat : int, optional
        Samples of each case; medians decide.
    file : path, optional
        JSON file that remembers results: what it knows for these arguments, hosts and MPI library
        is not measured again; what it does not know is added.
    show : bool, optional
        Whether rank 0 prints the table.

    Returns
    -------
    Tuning
        The same on every rank.

    Raises
    ------
    ArgumentError, PencilMismatchError, TypeError, OSError
        On every rank, if an argument is not allowed or the file cannot be read or written.

    Examples
    --------
    >>> import pencils
    >>> rows = pencils.Pencil((16, 16), decomp=0)
    >>> found = pencils.tune([rows, rows.with_(decomp=1)], show=False)
    >>> found.methods[0] in ("shared", "messages", "alltoallv", "alltoallw")
    True
    """
    topology = topology_among(pencils)
    with agreed(topology.comm, "tune") as agree:
        given = _read_pencils(pencils, grids=grids)
        spec = FieldSpec(
            as_dtype(dtype), as_components(components), as_singletons(given[0].ndim, dims)
        )
        samples = _read_repeat(repeat)
        path = None if file is None else Path(file)
        agree(
            pencils=given,
            **spec.signature,
            options=(shared, grids, samples, show),
            file=path is not None,
        )
    key = _key(given, spec, shared=shared, grids=grids)
    chains = _chains(given, grids=grids)
    known = None if path is None else _recall(path, key, chains, topology)
    rows = known or list(_measure(chains, spec, samples, shared=shared))
    tuning = _decide(chains, rows)
    for (source, target), method in zip(pairwise(tuning.pencils), tuning.methods, strict=True):
        set_fastest(topology, method_key(source.layout, target.layout, spec), method)
    if show and topology.rank == 0:
        print(tuning)  # noqa: T201 - what it was asked for
    if path is not None and known is None:
        _store(path, key, rows, topology)
    return tuning


def _chains(pencils: Sequence[Pencil], *, grids: bool) -> list[list[Pencil]]:
    """List the pencils as they are, or on every process grid. *Collective*."""
    if not grids:
        return [list(pencils)]
    shapes = factorizations(pencils[0].size, (0,) * len(pencils[0].grid))
    return [[pen.with_(grid=shape) for pen in pencils] for shape in shapes]


def _measure(
    chains: Sequence[Sequence[Pencil]], spec: FieldSpec, repeat: int, *, shared: bool
) -> Iterator[Row]:
    """Time every method on every step of every chain. *Collective*."""
    topology = chains[0][0].topology
    names = ["shared" if topology.nodes == 1 else "hybrid", "messages", "alltoallv", "alltoallw"]
    for chain in chains:
        for step, (source, target) in enumerate(pairwise(chain)):
            u, out = (
                PencilArray.allocated(pen, *spec, zero=True, shared=shared)
                for pen in (source, target)
            )
            plans = [Transposition.for_spec(source, target, spec, name) for name in names]
            calls = [partial(plan, u, out) for plan in plans]
            times = time_in_turn(topology.comm, calls, repeat)
            for plan, seconds in zip(plans, times, strict=True):
                yield Row(source.grid, step, plan.method, seconds)
                plan.free()


def _decide(chains: Sequence[Sequence[Pencil]], rows: Sequence[Row]) -> Tuning:
    """Take the fastest method for each step, and the chain whose steps add up to least."""
    each = len(rows) // len(chains)
    best: list[tuple[float, Sequence[Pencil], list[Row]]] = []
    for chain, start in zip(chains, range(0, len(rows), each), strict=True):
        steps = [
            min((row for row in rows[start : start + each] if row.step == step), key=_seconds)
            for step in range(len(chain) - 1)
        ]
        best.append((sum(map(_seconds, steps)), chain, steps))
    _, chain, steps = min(best, key=itemgetter(0))
    return Tuning(tuple(chain), tuple(row.method for row in steps), tuple(rows))


def _seconds(row: Row) -> float:
    return row.seconds


def _key(pencils: Sequence[Pencil], spec: FieldSpec, *, shared: bool, grids: bool) -> str:
    """Everything a result depends on. *Collective*."""
    machine = describe_machine(pencils[0].comm)
    facts = {
        "pencils": list(map(repr, pencils)),
        **spec.signature,
        "shared": shared,
        "grids": grids,
        "nodes": machine.nodes,
        "mpi": machine.library,
    }
    return json.dumps(facts, sort_keys=True, default=str)


def _recall(
    path: Path, key: str, chains: Sequence[Sequence[Pencil]], topology: Topology
) -> list[Row] | None:
    """Look up a result that rank 0 finds in the file. *Collective*."""
    found: list[Row] | None = None
    with agreed(topology.comm, "tune"):
        if topology.rank == 0 and path.exists():
            entry = _read_file(path).get(key)
            found = None if entry is None else _read_rows(path, entry, chains)
    rows: list[Row] | None = topology.comm.bcast(found)
    return rows


def _read_rows(path: Path, entry: object, chains: Sequence[Sequence[Pencil]]) -> list[Row]:
    """Check that an entry of the file holds what `_measure` would have found out."""
    try:
        rows = [
            Row(tuple(grid), int(step), str(method), float(seconds))
            for grid, step, method, seconds in cast("list[Any]", entry)
        ]
    except (TypeError, ValueError) as error:
        raise ArgumentError(_not_ours(path)) from error
    steps = [(chain[step].grid, step) for chain in chains for step in range(len(chain) - 1)]
    each = len(rows) // len(steps)
    expected = [place for place in steps for _ in range(each)]
    if (
        not rows
        or [row[:2] for row in rows] != expected
        or {row.method for row in rows} - {*METHODS}
    ):
        raise ArgumentError(_not_ours(path))
    return rows


def _store(path: Path, key: str, rows: Sequence[Row], topology: Topology) -> None:
    """Add a result to the file, which is replaced as a whole. *Collective*."""
    with agreed(topology.comm, "tune"):
        if topology.rank == 0:
            known = _read_file(path) if path.exists() else {}
            known[key] = list(rows)
            fresh = path.with_name(f"{path.name}.new")
            fresh.write_text(json.dumps(known, indent=1))
            fresh.replace(path)


def _read_file(path: Path) -> dict[str, object]:
    try:
        known: object = json.loads(path.read_text())
    except ValueError as error:
        raise ArgumentError(_not_ours(path)) from error
    if not isinstance(known, dict):
        raise ArgumentError(_not_ours(path))
    return known


def _not_ours(path: Path) -> str:
    return f"{path} is not a file that tune() wrote; remove it, or name another one"


def _read_pencils(pencils: Sequence[Pencil], *, grids: bool) -> list[Pencil]:
    given = as_pencils(pencils)
    if len(given) < 2:  # noqa: PLR2004
        msg = f"tune() needs two pencils or more to move between, not {len(given)}"
        raise ArgumentError(msg)
    for pen in given:
        if pen.shape != given[0].shape:
            msg = f"all pencils must have the same global shape:\n{pen!r}\n{given[0]!r}"
            raise PencilMismatchError(msg)
        if grids and len(pen.grid) != len(given[0].grid):
            msg = "grids=True needs pencils that all decompose the same number of dimensions"
            raise ArgumentError(msg)
    return given


def _read_repeat(repeat: int) -> int:
    number = to_int(repeat)
    if number is None or number < 1:
        msg = f"repeat={repeat!r} must be a number of samples, at least 1"
        raise ArgumentError(msg)
    return number
