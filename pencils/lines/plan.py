"""The base of plans that solve systems along lines: which method, and how it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from pencils.array.operands import check_out, check_source
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import Handle
from pencils.comm.memory import same_view
from pencils.comm.pack import no_op
from pencils.comm.progress import poll, under_way
from pencils.errors import ArgumentError
from pencils.lines.elimination import SingularError
from pencils.lines.methods import Bound, LineMethod, Lines, Local, Solve, Transposed
from pencils.lines.reduced import Reduced
from pencils.lines.reduction import Reduction
from pencils.lines.shared import Shared, is_ready
from pencils.lines.system import System, WholeLines
from pencils.plans import Agreement, Plan
from pencils.transposition.plan import unset_ghosts
from pencils.transposition.transpose import transpose

AUTO = "auto"
METHODS = (AUTO, Local.name, Shared.name, Reduced.name, Transposed.name)


def check_method(method: object) -> None:
    """Raise if there is no such method."""
    if method not in METHODS:
        raise ArgumentError(f"method {method!r} is none of {', '.join(METHODS)}")


class Equations(Protocol):
    """Equations along lines, the same on all ranks or different for each line.

    Attributes
    ----------
    periodic : bool
        Whether the lines close to rings.
    width, reach : int
        How far unknowns and given points of an equation may be away from its own point.
    """

    periodic: bool
    width: int
    reach: int

    @property
    def fields(self) -> Sequence[PencilArray]:
        """What differs between lines."""

    def system(self, lines: Lines, moved: Mapping[int, PencilArray]) -> System:
        """Return the equations of own lines; `moved` has the fields there, by identity."""


class Trial(NamedTuple):
    """A call that one rank has prepared, if it can do so alone, until all agree."""

    b: PencilArray
    out: PencilArray | None
    target: PencilArray | None
    found: Bound | None


class Solved(NamedTuple):
    """What all ranks know of equations before they choose a method.

    The agreement in which it was made is flagged if some rank cannot use shared memory, and
    deferred if on some rank the system cannot be reduced.
    """

    agree: agreed
    whole: Lines
    solver: WholeLines
    reduction: Reduction | None

    @classmethod
    def within(
        cls,
        agree: agreed,
        lines: Lines,
        equations: Equations,
        method: str,
        *,
        pin: bool = False,
        moved: Mapping[int, PencilArray] = MappingProxyType({}),
    ) -> Solved:
        """Solve the equations, and check them, within an agreement; local.

        `moved` has the fields of the equations where lines are whole, by identity.
        """
        whole = lines.whole
        system = equations.system(whole, moved)
        solver = _solver(whole, system, pin=pin)
        reduction = None
        if method in {AUTO, Reduced.name} and not lines.are_whole:
            reduction = _reduction(lines, equations, system, solver)
        agree.flag(up=not Shared.fits(lines, whole))
        agree.defer(up=reduction is None)  # all ranks compute the same; processors may differ
        return cls(agree, whole, solver, reduction)


class LinePlan(Plan[Bound]):
    """Base class of plans for fields along one dimension. Making one is *Collective*.

    Parameters
    ----------
    lines : Lines
        The lines.
    equations : Equations
        What is solved.
    method : str
        One of `METHODS`, as all ranks have agreed.
    pin : bool
        Whether the last point is set to 0 where the equations determine it up to a constant.
    check : bool
        Whether all ranks agree on every call.
    solved : Solved, optional
        The equations, if they were solved in the agreement about the arguments.

    Attributes
    ----------
    method : str
        The method in use. If "auto" was asked for, fields in shared memory are solved by "shared"
        instead, where the ranks of all lines are on one node.
    """

    source_name = "b"  # of the given field, as users call it

    def __init__(
        self,
        lines: Lines,
        equations: Equations,
        method: str,
        *,
        pin: bool,
        check: bool,
        solved: Solved | None = None,
    ) -> None:
        self._lines, self._equations = lines, equations
        self._shared: Shared | None = None
        self._use_shared = self._only_shared = False
        self._other: LineMethod | None = None
        if solved is None:
            whole = lines.whole
            moved = {id(u): transpose(u, whole.pencil) for u in equations.fields}
            with agreed(lines.pencil.topology.comm, type(self).__name__) as agree:
                solved = Solved.within(agree, lines, equations, method, pin=pin, moved=moved)
        self._make_other: Callable[[], LineMethod]
        if lines.are_whole:
            self._other = Local(lines, solved.solver)
            self.method = Local.name
        else:
            try:
                self._choose(method, solved)
            except BaseException:
                self._release()
                raise
        super().__init__(lines.pencil.topology, check=check or self._some_have_nothing)

    @classmethod
    def kept(cls, lines: Lines, equations: Equations) -> Self:
        """Make the plan of a verb, of arguments on which all ranks have agreed. *Collective*."""
        plan = cls.__new__(cls)
        LinePlan.__init__(plan, lines, equations, AUTO, pin=False, check=True)
        return plan

    def _choose(self, method: str, solved: Solved) -> None:
        """Choose between the methods for lines that are cut. *Collective*."""
        lines, equations, whole, solver = self._lines, self._equations, solved.whole, solved.solver
        if method in {AUTO, Shared.name} and not solved.agree.flagged:
            self._shared = Shared(lines, whole, solver)
            with agreed(lines.pencil.topology.comm, type(self).__name__) as agree:
                agree.flag(up=self._shared.table is None)
            if agree.flagged:
                self._shared.free()
                self._shared = None
        self._use_shared = self._shared is not None
        reduction = None if solved.agree.deferred else solved.reduction
        possible = {
            Shared.name: self._shared is not None,
            Reduced.name: reduction is not None,
            Transposed.name: True,
            AUTO: True,
        }
        if not possible.get(method):
            raise ArgumentError(f"method {method!r} {_WHY_NOT[method]}; use method='auto'")
        if reduction is not None:
            wraps, known = equations.periodic, reduction
            self._make_other = lambda: Reduced(lines, known, wraps=wraps)
            self.method = Reduced.name
        else:
            self._make_other = lambda: Transposed(lines, whole, solver)
            self.method = Transposed.name
        if self._shared is None:
            self._other = self._make_other()
        self._only_shared = method == Shared.name
        if self._only_shared:
            self.method = Shared.name

    @property
    def _some_have_nothing(self) -> bool:
        """Whether some ranks have no points: there it is not known whether fields are shared."""
        layout = self._lines.pencil.layout
        return self._shared is not None and prod(s.filled for s in layout.splits) < layout.size

    def run(self, b: PencilArray, out: PencilArray | None) -> PencilArray:
        """Do what a call of the plan does. *Collective*."""
        return self._moved(*self._prepared("__call__", b, out))

    def complete(self, agree: Agreement, trial: Trial) -> PencilArray:
        """Complete a call, after the agreement about it. *Collective*."""
        return self._moved(*self._settled("__call__", agree, trial))

    def _moved(self, bound: Bound, target: PencilArray) -> PencilArray:
        unset_ghosts([target])
        if under_way.on:
            poll()
        bound.run()
        return target

    def _start(self, b: PencilArray, out: PencilArray | None) -> Handle[PencilArray]:
        bound, target = self._prepared("start", b, out)
        unset_ghosts([target])
        return bound.start(target, b)

    def _prepared(self, call: str, b: Any, out: Any) -> tuple[Bound, PencilArray]:
        """Check and prepare a call. *Collective* if the plan checks."""
        with self._agreement(call) as agree:
            trial = self.trial(agree, b, out, out)
        return self._settled(call, agree, trial)

    def trial(self, agree: Agreement, b: Any, out: Any, target: Any) -> Trial:
        """Check and prepare a call as far as this rank can do so alone, within an agreement."""
        lines = self._lines
        self._check_open()
        if self._shared is not None:
            self._shared.met = False
        self._check_fields(b, target)
        shared = self._are_shared(b, target)
        agree.flag(up=not shared)
        method = self._shared if self._use_shared and shared else self._other
        found = None
        if target is None and method is not self._shared:
            target = PencilArray.allocated(lines.pencil, *lines.spec)
        if target is not None and method is not None:
            found = self._bound(method, b, target)
        agree.defer(up=found is None or (self._check and not is_ready(found)))
        return Trial(b, out, target, found)

    def _settled(self, call: str, met: Agreement, trial: Trial) -> tuple[Bound, PencilArray]:
        """Make what is missing for a call, after the agreement about it. *Collective*."""
        lines, shared = self._lines, self._shared
        have_met = False
        while True:
            b, out, target, found = trial
            prepare: Solve = no_op
            if shared is not None and met.flagged == self._use_shared:
                self._use_shared, have_met = not met.flagged, False
                target = out
            elif found is not None and not met.deferred:
                assert target is not None
                if shared is not None:
                    shared.met = have_met
                return found, target
            elif shared is not None and self._use_shared:
                if self._topology.any_of([target is None])[0]:
                    new = PencilArray.allocated(lines.pencil, *lines.spec, shared=True)
                    target = new if target is None else target
                assert target is not None
                prepare, have_met = shared.meet(b, target, self._bound), True
            else:
                self._other = self._make_other()
            with self._agreement(call) as again:
                prepare()
                trial = self.trial(again, b, out, target)
            met = again

    def _check_fields(self, b: Any, out: Any) -> None:
        """Check the fields of a call."""
        check_source(b, self._lines.pencil, self._lines.spec, self.source_name)
        check_out(out, self._lines.pencil, self._lines.spec)
        apart = out is None or same_view(b.local, out.local)
        if not apart and np.may_share_memory(b.local, out.local):
            name = self.source_name
            raise ArgumentError(
                f"out shares memory with {name}, but is not {name} itself; pass out={name}"
            )

    def _are_shared(self, *fields: PencilArray | None) -> bool:
        """Whether other ranks of the node reach all fields; raise if they must."""
        if self._shared is None:
            return False
        if all(u is None or self._shared.reaches(u) for u in fields):
            return True
        if self._only_shared:
            raise ArgumentError(
                "method 'shared' takes fields in shared memory, like zeros(pencil, shared=True), "
                f"for {self.source_name} and for out"
            )
        return False

    def _bound(self, method: LineMethod, b: PencilArray, out: PencilArray) -> Bound:
        key = id(b), id(out), method.name
        found = self._found(key)
        if found is None:
            found = method.bind(b, out)
            self._remembered.add(key, found, [b, out], [out.local])
        found.reserve()
        return found

    def _describe(self) -> str:
        lines, equations = self._lines, self._equations
        dtype, components, singletons = lines.spec
        text = f"<{type(self).__name__} of {dtype}"
        text += f", components={components}" if components else ""
        text += f", singleton along {sorted(singletons)}" if singletons else ""
        text += f" along dimension {lines.dim}, {equations}, by method {self.method!r}"
        return f"{text}\n  on {lines.pencil!r}>"

    def _release(self) -> None:
        for method in (self._shared, self._other):
            if method is not None:
                method.free()
        self._shared = self._other = None


_WHY_NOT = {
    Local.name: "takes lines that are whole on each rank",
    Shared.name: (
        "takes a dimension whose processes are on one node, no singletons, and a pencil whole() "
        "that differs in this dimension only"
    ),
    Reduced.name: (
        "takes equations that are the same for all lines, and blocks of more than twice as many "
        "points as there are diagonals below the main one, with well conditioned matrices"
    ),
}


def _reduction(
    lines: Lines, equations: Equations, system: System, solver: WholeLines
) -> Reduction | None:
    """Reduce a system, if it is the same for all lines and all methods find one solution."""
    split = lines.split
    if equations.fields or solver.left_out not in {None, system.points - 1}:
        return None
    if solver.left_out is not None:
        system = system.pinned()
    cuts = [split.bounds(part)[0] for part in range(split.parts)]
    width = max(1, equations.width)  # blocks of one diagonal, too, have tips
    return Reduction.of(system, [*cuts, system.points], width, equations.reach)


@np.errstate(all="ignore")
def _solver(lines: Lines, system: System, *, pin: bool) -> WholeLines:
    """Make the solver of whole lines, and check it; local."""
    infinite = system.infinite()
    if infinite is not None:
        row, line = infinite
        raise ArgumentError(
            f"the matrix has entries that are not finite in row {row}{_place(lines, line)}"
        )
    try:
        solver = WholeLines(system, lines.spec.dtype, pin=pin)
    except SingularError as error:
        hint = "" if pin else "; singular='pin' sets the last point to 0 where only it is free"
        raise ArgumentError(
            f"the matrix is singular: the pivot of row {error.row} vanishes"
            f"{_place(lines, error.line)}{hint}"
        ) from None
    bad = solver.unstable_line(system)
    if bad is not None and not solver.lines_differ:
        raise ArgumentError("elimination is not accurate: entries are of too different sizes")
    if bad is not None:
        raise ArgumentError(
            f"elimination without interchanges of rows is not stable{_place(lines, bad)}: with "
            "diagonals that are fields, the main one must be large enough"
        )
    return solver


def _place(lines: Lines, line: int | None) -> str:
    """Describe where a line lies, by global indices; nothing if all lines are alike."""
    if line is None:
        return ""
    at = [int(i) for i in np.unravel_index(line, lines.shape(1))]
    lead, order = len(lines.spec.components), lines.pencil.order
    names = [str(i) for i in at[:lead]]
    start = lines.extent.box.start
    by_dim = dict(zip(order, at[lead:], strict=True))
    names += [":" if dim == lines.dim else str(by_dim[dim] + start[dim]) for dim in sorted(by_dim)]
    return f" in line [{', '.join(names)}]"
