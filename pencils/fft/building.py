"""String serial passes and transposes together for one direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from pencils.array.pencil_array import PencilArray
from pencils.array.spec import FieldSpec
from pencils.comm.agree import agreed
from pencils.comm.buffers import Buffers
from pencils.comm.exchange import AUTO
from pencils.fft.arguments import Wanted
from pencils.fft.backends import choose_backend, kernel_of
from pencils.fft.passes import Pass
from pencils.fft.program import Place, Program, Step
from pencils.fft.route import Leg, job_of
from pencils.transposition.plan import Transposition


def build_programs(
    wanted: Wanted, legs: Sequence[Leg], ends: tuple[Place, Place], backends: Sequence[str]
) -> tuple[Program, Program]:
    """Make the programs of both directions. *Collective*.

    Parameters
    ----------
    wanted : Wanted
        The transform.
    legs : sequence of Leg
        What happens between transposes, on the way forward.
    ends : (Place, Place)
        Where fields are in physical space, and where waves are.
    backends : sequence of str
        The library for each leg.
    """
    ways = [line.scales(wanted.normalize) for line in wanted.lines]
    buffers = Buffers()
    strands = []
    for forward in (True, False):
        # The last serial pass writes anyway, so it multiplies as well.
        factor = prod(way[not forward] for way in ways)
        along = list(zip(legs, backends, strict=True))[:: 1 if forward else -1]
        last = [leg for leg, _ in along if leg.lines][-1:]
        strand = _Strand(ends[not forward], wanted.components, buffers)
        for leg, backend in along:
            job = job_of(leg, wanted, forward=forward, factor=factor if [leg] == last else 1)
            start, end = (leg.start, leg.end) if forward else (leg.end, leg.start)
            strand.go_to(start)
            if leg.lines:
                run = Pass(job, leg.before.order, kernel_of(backend))
                strand.transform(run, end, in_place=start == end)
        strand.go_to(ends[forward])
        strands.append(strand)
    with agreed(wanted.pencil.topology.comm, "PencilFFT"):  # one rank may have no memory for it
        for strand in strands:
            strand.prepare()
    there, back = (strand.program() for strand in strands)
    return there, back


def backend_of(leg: Leg, wanted: Wanted) -> str:
    """Choose the library for a leg. *Collective*."""
    if not leg.lines:
        return wanted.backend
    jobs = (
        job_of(leg, wanted, forward=True, factor=1),
        job_of(leg, wanted, forward=False, factor=1),
    )
    key = repr((leg.before, leg.lines, leg.dtype, wanted.components, wanted.normalize))
    return choose_backend(wanted.backend, key, jobs, wanted.pencil.topology)


class _Strand:
    """A program in the making."""

    def __init__(self, start: Place, components: tuple[int, ...], buffers: Buffers) -> None:
        self._places = [start]
        self._steps: list[Step] = []
        self._moves: list[Transposition] = []
        self._passes: list[Pass] = []
        self._components = components
        self._buffers = buffers

    def go_to(self, place: Place) -> None:
        """Transpose, unless the values are there."""
        here = self._places[-1]
        if here == place:
            return
        kind = FieldSpec(place.dtype, self._components, frozenset())
        move = Transposition.for_spec(here.pencil, place.pencil, kind, AUTO, buffers=self._buffers)
        self._moves.append(move)
        self.add(move, place, in_place=False)

    def transform(self, run: Pass, place: Place, *, in_place: bool) -> None:
        """Pass over the blocks."""
        self._passes.append(run)
        self.add(_on_blocks(run), place, in_place=in_place)

    def prepare(self) -> None:
        """Make the kernels of all passes; local."""
        for run in self._passes:
            run.prepare()

    def add(
        self, run: Callable[[PencilArray, PencilArray], object], place: Place, *, in_place: bool
    ) -> None:
        self._steps.append(Step(run, in_place))
        self._places.append(place)

    def program(self) -> Program:
        if not self._steps:
            self.add(_copy, self._places[0], in_place=True)
        return Program(
            self._places,
            self._steps,
            self._moves,
            self._components,
            sum(p.nbytes for p in self._passes),
        )


def _on_blocks(run: Pass) -> Callable[[PencilArray, PencilArray], None]:
    return lambda source, target: run(source.local, target.local)


def _copy(source: PencilArray, target: PencilArray) -> None:
    if source is not target:
        np.copyto(target.local, source.local)
