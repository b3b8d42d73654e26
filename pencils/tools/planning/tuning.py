"""The function `tune`: measure which method and process grid are fastest on this machine."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import DTypeLike

from pencils.array.allocation import as_components, as_dtype, as_singletons
from pencils.array.operands import FieldSpec, as_pencils, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.bars import shown
from pencils.comm.agree import agreed
from pencils.comm.methods import METHODS
from pencils.comm.topology import Topology, time_in_turn
from pencils.errors import ArgumentError, PencilMismatchError
from pencils.layout.build import factorizations
from pencils.layout.integers import as_int
from pencils.pencil import Pencil
from pencils.plans import set_fastest
from pencils.tables import text_table
from pencils.tools.machine import describe_machine
from pencils.transposition.plan import Transposition, method_key


class Row(NamedTuple):
    """One measurement: from pencil number `step` to the next one, on a process grid."""

    grid: tuple[int, ...]
    step: int
    method: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result of `tune`; ``print`` shows a table of all measurements.

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
        chosen = {
            (pencil.grid, step, method)
            for step, (pencil, method) in enumerate(zip(self.pencils, self.methods, strict=False))
        }
        return _table(self.rows, [row for row in self.rows if row[:3] in chosen])


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
    """Measure the fastest method from each pencil to the next. *Collective*.

    Afterwards `transpose`, and plans made with ``method="auto"``, use the fastest method for the
    same pencils, dtype, components and singletons on the same communicator.

    Parameters
    ----------
    pencils : sequence of Pencil
        Two or more pencils of the same global shape and processes, in the order of the transposes.
    dtype : dtype, optional
        Element type.
    components : int or sequence of int, optional
        Shape of the component axes.
    dims : int or sequence of int, optional
        Dimensions along which the fields vary; they are singletons along the others.
    shared : bool, optional
        Whether the fields will be in shared memory.
    grids : bool, optional
        Whether to measure all process grids; all pencils must then decompose the same number of
        dimensions. Use the pencils of the result.
    repeat : int, optional
        Samples of each case; the smallest median wins.
    file : path, optional
        JSON file of results, by arguments, number of nodes and MPI library. If it has the result,
        nothing is measured; otherwise the result is added.
    show : bool, optional
        Whether rank 0 prints the table. On a terminal, it shows the progress in any case.

    Returns
    -------
    Tuning
        The same on every rank.

    Raises
    ------
    ArgumentError, PencilMismatchError, TypeError, OSError
        On every rank, if an argument is not allowed or the file cannot be read or written.

    Notes
    -----
    On simulated ranks times mean nothing: all are one second, and the first method wins.

    Examples
    --------
    >>> import pencils
    >>> rows = pencils.Pencil((16, 16), decomp=0)
    >>> found = pencils.tune([rows, rows.with_(decomp=1)], show=False)
    >>> found.methods[0] in ("shared", "messages", "alltoallw")
    True
    """
    topology = topology_among(pencils)
    with agreed(topology.comm, "tune") as agree:
        given = _checked(pencils, grids=grids)
        singletons = as_singletons(given[0].ndim, dims)
        spec = FieldSpec(as_dtype(dtype), as_components(components), singletons)
        samples = as_int("repeat", repeat, least=1)
        path = None if file is None else Path(file)
        agree(
            pencils=given,
            **spec.signature,
            options=(shared, grids, samples, show),
            file=path is not None,
        )
    chains = [given]
    if grids:
        shapes = factorizations(given[0].size, (0,) * len(given[0].grid))
        chains = [[pencil.with_(grid=shape) for pencil in given] for shape in shapes]
    key = _key(given, spec, shared=shared, grids=grids)
    known = None if path is None else _recall(path, key, chains, topology)
    rows = known or list(_measure(chains, spec, samples, shared=shared))
    tuning = _decide(chains, rows)
    for (source, target), method in zip(pairwise(tuning.pencils), tuning.methods, strict=True):
        set_fastest(topology, method_key(source.layout, target.layout, spec), method)
    if show and topology.rank == 0:
        print(tuning)  # noqa: T201 - the user has asked for it
    if path is not None and known is None:
        _store(path, key, rows, topology)
    return tuning


def describe_results(path: str | PathLike[str]) -> str:
    """Describe a file of results of `tune`, with a table for each; local.

    Raises
    ------
    ArgumentError, OSError
        If `tune` did not write the file, or it cannot be read.

    Examples
    --------
    >>> import pencils
    >>> rows = pencils.Pencil((16, 16), decomp=0)
    >>> found = pencils.tune([rows, rows.with_(decomp=1)], file="tuned.json", show=False)
    >>> print(describe_results("tuned.json").splitlines()[0])
    tuned.json: what tune() has measured, 1 case
    """
    where = Path(path)
    known = _read_file(where)
    lines = [f"{path}: what tune() has measured, {len(known)} case{'s' * (len(known) != 1)}"]
    try:
        for key, entry in known.items():
            case = json.loads(key)
            rows = [Row(tuple(grid), step, method, t) for grid, step, method, t in entry]
            lines += [f"  {name}: {case[name]}" for name in ("dtype", "components", "nodes", "mpi")]
            lines += [f"  {number}: {text}" for number, text in enumerate(case["pencils"])]
            lines += [f"  {line}" for line in _table(rows, _best(rows).values()).splitlines()]
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(_NOT_OURS.format(path)) from error
    return "\n".join(lines)


def _table(rows: Sequence[Row], marked: Collection[Row]) -> str:
    """Return a table of measurements, some of which are marked."""
    cells = [("grid", "from", "to", "method", "ms", "")]
    cells += [
        (
            " x ".join(map(str, row.grid)),
            str(row.step),
            str(row.step + 1),
            row.method,
            f"{1e3 * row.seconds:.4f}",
            "<" * (row in marked),
        )
        for row in rows
    ]
    return text_table(cells, left=(0, 3, 5))


def _best(rows: Sequence[Row]) -> dict[tuple[tuple[int, ...], int], Row]:
    """Find the fastest method of each step on each grid; the first one of equal ones."""
    best: dict[tuple[tuple[int, ...], int], Row] = {}
    for row in rows:
        if row.seconds < best.setdefault((row.grid, row.step), row).seconds:
            best[row.grid, row.step] = row
    return best


def _checked(pencils: Sequence[Pencil], *, grids: bool) -> list[Pencil]:
    given = as_pencils(pencils)
    if len(given) == 1:
        raise ArgumentError("tune() needs two pencils or more to move fields between, not 1")
    for pencil in given:
        if pencil.shape != given[0].shape:
            raise PencilMismatchError(
                f"all pencils must have the same global shape:\n{pencil!r}\n{given[0]!r}"
            )
        if grids and len(pencil.grid) != len(given[0].grid):
            raise ArgumentError(
                "grids=True needs pencils that all decompose the same number of dimensions"
            )
    return given


def _key(pencils: Sequence[Pencil], spec: FieldSpec, *, shared: bool, grids: bool) -> str:
    """Everything a result depends on. *Collective*."""
    machine = describe_machine(pencils[0].comm)
    values = {
        "pencils": list(map(repr, pencils)),
        **spec.signature,
        "shared": shared,
        "grids": grids,
        "nodes": machine.nodes,
        "mpi": machine.library,
    }
    return json.dumps(values, sort_keys=True, default=str)


def _measure(
    chains: Sequence[Sequence[Pencil]], spec: FieldSpec, repeat: int, *, shared: bool
) -> Iterator[Row]:
    """Time every method on every step of every chain. *Collective*."""
    topology = chains[0][0].topology
    near = ["shared"] if topology.nodes == 1 else ["hybrid", "gathered"]
    names = [*near, "messages", "alltoallw"]
    steps = [(*pair, step) for chain in chains for step, pair in enumerate(pairwise(chain))]
    with shown("tune", len(steps), rank=topology.rank, unit="step") as done:
        for source, target, step in steps:
            u, out = _fields(source, target, spec, shared=shared)
            plans = [Transposition.for_spec(source, target, spec, name) for name in names]
            with agreed(topology.comm, "tune"):  # one rank may have no memory
                for plan in plans:
                    plan.prepared_one(u, out)
            calls = [partial(plan, u, out) for plan in plans]
            times = time_in_turn(topology.comm, calls, repeat)
            for plan, seconds in zip(plans, times, strict=True):
                yield Row(source.grid, step, plan.method, seconds)
                plan.free()
            done(1)


def _fields(
    source: Pencil, target: Pencil, spec: FieldSpec, *, shared: bool
) -> tuple[PencilArray, PencilArray]:
    """Make the fields to move between; all ranks raise if one has no memory. *Collective*."""
    make = partial(PencilArray.allocated, zero=True, shared=shared)
    if shared:
        return make(source, *spec), make(target, *spec)
    with agreed(source.topology.comm, "tune"):
        return make(source, *spec), make(target, *spec)


def _decide(chains: Sequence[Sequence[Pencil]], rows: Sequence[Row]) -> Tuning:
    """Choose the fastest method for each step, and the chain with the smallest total time."""
    best = _best(rows)

    def steps_of(chain: Sequence[Pencil]) -> list[Row]:
        return [best[source.grid, step] for step, source in enumerate(chain[:-1])]

    chain = min(chains, key=lambda chain: sum(row.seconds for row in steps_of(chain)))
    return Tuning(tuple(chain), tuple(row.method for row in steps_of(chain)), tuple(rows))


def _recall(
    path: Path, key: str, chains: Sequence[Sequence[Pencil]], topology: Topology
) -> list[Row] | None:
    """Read a result on rank 0, if the file has it. *Collective*."""
    found: list[Row] | None = None
    with agreed(topology.comm, "tune"):
        if topology.rank == 0 and path.exists():
            known = _read_file(path)
            found = _as_rows(path, known[key], chains) if key in known else None
    rows: list[Row] | None = topology.comm.bcast(found)
    return rows


def _as_rows(path: Path, entry: Any, chains: Sequence[Sequence[Pencil]]) -> list[Row]:
    """Check that an entry of the file has the rows that `_measure` would yield."""
    try:
        rows = [Row(tuple(grid), int(step), method, float(t)) for grid, step, method, t in entry]
    except (TypeError, ValueError) as error:
        raise ArgumentError(_NOT_OURS.format(path)) from error
    rows = [row for row in rows if row.method != "alltoallv"]  # of older versions
    steps = [(chain[step].grid, step) for chain in chains for step in range(len(chain) - 1)]
    each = len(rows) // len(steps)
    expected = [step for step in steps for _ in range(each)]
    known = all(row.method in [*METHODS] for row in rows)
    if not rows or not known or [row[:2] for row in rows] != expected:
        raise ArgumentError(_NOT_OURS.format(path))
    return rows


def _store(path: Path, key: str, rows: Sequence[Row], topology: Topology) -> None:
    """Add a result to the file, which is replaced as a whole. *Collective*."""
    with agreed(topology.comm, "tune"):
        if topology.rank == 0:
            known = _read_file(path) if path.exists() else {}
            fresh = path.with_name(f"{path.name}.new")
            fresh.write_text(json.dumps({**known, key: rows}, indent=1))
            fresh.replace(path)


_NOT_OURS = "{} is not a file that tune() wrote; remove it, or name another one"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        known: object = json.loads(path.read_text())
    except ValueError as error:
        raise ArgumentError(_NOT_OURS.format(path)) from error
    if not isinstance(known, dict):
        raise ArgumentError(_NOT_OURS.format(path))
    return known
