"""The base of plans that solve systems along lines, and of verbs that keep such plans.

`LinePlan` chooses a method; a call then agrees, binds the method to its fields, and runs it.
`LineVerb` finds the plan of a verb by its equations, and does the same under the verb's agreement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pencils.array.allocation import as_components, as_dtype, as_singletons
from pencils.array.operands import FieldSpec, check_out, check_source, check_type, topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO, Handle
from pencils.comm.memory import same_view
from pencils.comm.pack import no_op
from pencils.comm.progress import poll, under_way
from pencils.comm.recording import makes_plan
from pencils.errors import ArgumentError
from pencils.layout.integers import as_dim
from pencils.lines.methods import (
    LOCAL,
    REDUCED,
    SHARED,
    TRANSPOSED,
    Bound,
    LineMethod,
    Lines,
    Run,
    SharedLines,
    Solver,
    local,
    transposed,
)
from pencils.lines.reduced import Reduced
from pencils.lines.reduction import ReducedSystem
from pencils.lines.system import SingularError, System, WholeLines
from pencils.pencil import Pencil
from pencils.plans import Agreement, KeptVerb, Plan, PlanKey, kept_agreement, prepare_together
from pencils.transposition.plan import unset_ghosts
from pencils.transposition.transpose import transpose

METHODS = (AUTO, LOCAL, SHARED, REDUCED, TRANSPOSED)
_WHY_NOT = {
    LOCAL: "takes lines that are whole on each rank",
    SHARED: (
        "takes a dimension whose processes are on one node, no singletons, and a pencil whole() "
        "that differs in this dimension only"
    ),
    REDUCED: (
        "takes equations that are the same for all lines, and blocks of more than twice as many "
        "points as there are diagonals below the main one, with well conditioned matrices"
    ),
}

Method: TypeAlias = "LineMethod | Reduced | SharedLines"
# A prepared call: the solve, and the field that it fills.
Prepared: TypeAlias = "tuple[Bound, PencilArray]"


@dataclass
class LineCall:
    """A call of a plan: its fields, and what ranks have found out about them."""

    b: PencilArray
    out: PencilArray | None
    made: PencilArray | None = None  # instead of `out`
    read: bool = False  # whether the fields were looked at
    decided: bool = False  # whether all ranks know if all fields are shared
    prepare: Run = no_op  # prepares to solve in shared memory, or raises; local

    @property
    def target(self) -> PencilArray | None:
        """The field to fill."""
        return self.made if self.out is None else self.out


class Equations(NamedTuple):
    """Equations along lines, the same on all ranks or different for each line.

    The text describes them: others have other texts, unless they differ in fields only. Unknowns
    and given points of an equation are at most `width` and `reach` away from its own point.
    """

    text: str
    periodic: bool  # whether lines close to rings
    width: int
    reach: int
    # Returns the equations of given lines, for which the fields have been moved; by their identity.
    system: Callable[[Lines, Mapping[int, PencilArray]], System]
    fields: Sequence[PencilArray] = ()  # that differ between lines


def check_method(method: object) -> None:
    """Raise if there is no such method."""
    if method not in METHODS:
        raise ArgumentError(f"method {method!r} is none of {', '.join(METHODS)}")


def lines_of(pencil: Any, axis: Any, dtype: Any, components: Any, dims: Any) -> Lines:
    """Check the arguments of a plan that select its lines."""
    check_type("pencil", pencil, Pencil)
    dim = as_dim("axis", axis, pencil.ndim)
    singletons = as_singletons(pencil.ndim, dims)
    return as_lines(pencil, dim, FieldSpec(as_dtype(dtype), as_components(components), singletons))


def as_lines(pencil: Pencil, dim: int, spec: FieldSpec) -> Lines:
    """Check whether fields can have systems of equations along a dimension."""
    if spec.dtype.char not in "fdFD":
        raise TypeError(
            f"dtype must be float32, float64, complex64 or complex128, not {spec.dtype}; convert "
            "the field, as in u.astype(float)"
        )
    if dim in spec.singletons:
        raise ArgumentError(f"the fields do not vary along axis {dim}; name it in dims=")
    return Lines(pencil, dim, spec)


class LinePlan(Plan[Bound]):
    """Base class of plans for fields along one dimension. Making one is *Collective*.

    All ranks have agreed on the arguments. `source` is the name of the given field, as users call
    it; `pin` tells whether the last point is set to 0 where it is free. `method` is the one in use
    where fields are not in shared memory.
    """

    @makes_plan
    def __init__(
        self,
        lines: Lines,
        equations: Equations,
        method: str = AUTO,
        *,
        pin: bool = False,
        check: bool = True,
        source: str = "u",
    ) -> None:
        self._lines, self._equations, self._source = lines, equations, source
        self._shared: SharedLines | None = None
        self._use_shared = self._only_shared = False
        self._other: Method | None = None
        self._make_other: Callable[[], Method]
        whole = lines.whole
        reduction: ReducedSystem | None = None
        moved = {id(u): transpose(u, whole.pencil) for u in equations.fields}
        with agreed(lines.pencil.topology.comm, type(self).__name__) as agree:
            system = equations.system(whole, moved)
            solver = _solver(whole, system, pin=pin)
            if method in {AUTO, REDUCED} and not lines.are_whole:
                reduction = _reduction(lines, equations, system, solver)
            agree.flag(up=not SharedLines.fits(lines, whole))
            agree.defer(up=reduction is None)  # all ranks compute the same; processors may differ
        if lines.are_whole:
            self._other, self.method = local(lines, solver.prepare), LOCAL
        else:
            try:
                reduction = None if agree.deferred else reduction
                self._choose(method, solver.prepare, reduction, may_share=not agree.flagged)
            except BaseException:
                self._release()
                raise
        layout = lines.pencil.layout
        # Ranks without points do not know whether fields are shared.
        some_have_none = prod(split.filled for split in layout.splits) < layout.size
        check = check or (self._use_shared and some_have_none)
        super().__init__(lines.pencil.topology, check=check)

    def _choose(
        self, method: str, solver: Solver, reduction: ReducedSystem | None, *, may_share: bool
    ) -> None:
        """Choose between the methods for lines that are cut. *Collective*."""
        lines, whole, wraps = self._lines, self._lines.whole, self._equations.periodic
        if method in {AUTO, SHARED} and may_share:
            self._shared = SharedLines(lines, whole, solver)
            with agreed(lines.pencil.topology.comm, type(self).__name__) as agree:
                agree.flag(up=self._shared.table is None)
            if agree.flagged:
                self._shared.free()
                self._shared = None
        self._use_shared = self._shared is not None
        possible = {SHARED: self._use_shared, REDUCED: reduction is not None, LOCAL: False}
        if not possible.get(method, True):
            raise ArgumentError(f"method {method!r} {_WHY_NOT[method]}; use method='auto'")
        self._only_shared = method == SHARED
        if reduction is not None:
            known, self.method = reduction, REDUCED
            self._make_other = lambda: Reduced(lines, known, wraps=wraps)
        else:
            self.method = SHARED if self._only_shared else TRANSPOSED
            self._make_other = lambda: transposed(lines, whole, solver)
        if self._shared is None:
            self._other = self._make_other()

    def _run(self, b: PencilArray, out: PencilArray | None) -> PencilArray:
        """Do what a call of the plan does. *Collective*."""
        return run_prepared(self._prepare_fields("__call__", b, out))

    def _start(self, b: PencilArray, out: PencilArray | None) -> Handle[PencilArray]:
        bound, target = self._prepare_fields("start", b, out)
        unset_ghosts([target])
        return bound.start(target, b)

    def _prepare_fields(self, call: str, b: PencilArray, out: PencilArray | None) -> Prepared:
        """Agree on a call and prepare it. *Collective* if the plan checks."""
        line_call, agreement = LineCall(b, out), self._agreement(call)
        bind, set_up = partial(self.bind, line_call), partial(self.set_up, line_call, agreement)
        prepared = prepare_together(agreement, bind, set_up)
        if self.missed(line_call, agreement):
            set_up()
            prepared = prepare_together(agreement, bind, set_up)
        return prepared

    def bind(self, call: LineCall, agree: Agreement) -> Prepared | None:
        """Bind a method to the fields, as far as this rank can do so alone; local.

        It is the method of the last call, unless that takes shared fields, and these are private.
        """
        call.read = True
        self._check_open()
        call.prepare()
        self._check_fields(call.b, call.out)
        method, target = self._other, call.target
        shared: SharedLines | None = self._shared
        if shared is not None:
            are_shared = self._are_shared(call.b, target)
            agree.flag(up=not are_shared)
            shared.met = call.decided and self._use_shared
            if self._use_shared:  # ranks make shared fields together
                is_bound = (are_shared or call.decided) and target is not None
                method = shared if is_bound else None
        if method is None:
            return None
        if target is None:
            target = call.made = PencilArray.allocated(self._lines.pencil, *self._lines.spec)
        bound = self._bound(method, call.b, target)
        return (bound, target) if bound.ready or not self._check else None

    def missed(self, call: LineCall, agree: Agreement) -> bool:
        """Whether, as all ranks know now, all fields are shared, but another method was bound."""
        return not (self._shared is None or self._use_shared or call.decided or agree.flagged)

    def set_up(self, call: LineCall, agree: Agreement) -> None:
        """Make what is missing, now that all ranks know if all fields are shared. *Collective*."""
        shared = self._shared
        call.decided, self._use_shared = True, shared is not None and not agree.flagged
        if shared is None or not self._use_shared:
            self._other = self._other or self._make_other()
            return
        if self._topology.any_of([call.out is None])[0]:
            call.made = PencilArray.allocated(self._lines.pencil, *self._lines.spec, shared=True)
        call.prepare = shared.meet(partial(self._reached, shared, call.b, call.target))

    def _reached(self, shared: SharedLines, b: PencilArray, out: Any) -> Bound | None:
        """Bind the shared method to two fields, if other ranks reach them; local."""
        return self._bound(shared, b, out) if shared.reaches(b) and shared.reaches(out) else None

    def _check_fields(self, b: Any, out: Any) -> None:
        """Check the fields of a call."""
        name = self._source
        check_source(b, self._lines.pencil, self._lines.spec, name)
        check_out(out, self._lines.pencil, self._lines.spec)
        apart = out is None or same_view(b.local, out.local)
        if not apart and np.may_share_memory(b.local, out.local):
            raise ArgumentError(
                f"out shares memory with {name}, but is not {name} itself; pass out={name}"
            )

    def _are_shared(self, *fields: PencilArray | None) -> bool:
        """Whether other ranks of the node reach all fields; raise if they must."""
        if self._shared is None or all(u is None or self._shared.reaches(u) for u in fields):
            return True
        if self._only_shared:
            raise ArgumentError(
                "method 'shared' takes fields in shared memory, like zeros(pencil, shared=True), "
                f"for {self._source} and for out"
            )
        return False

    def _bound(self, method: Method, b: PencilArray, out: PencilArray) -> Bound:
        """Find the solve of these fields, or bind it, and allocate what it needs; local."""
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
        text += f" along dimension {lines.dim}, {equations.text}, by method {self.method!r}"
        return f"{text}\n  on {lines.pencil!r}>"

    def _release(self) -> None:
        for method in (self._shared, self._other):
            if method is not None:
                method.free()
        self._shared = self._other = None


def run_prepared(prepared: Prepared) -> PencilArray:
    """Run a prepared call. *Collective*."""
    bound, target = prepared
    unset_ghosts([target])
    if under_way.on:
        poll()
    bound.run()
    return target


class LineVerb(KeptVerb[LinePlan, Prepared]):
    """A call of a verb that keeps its plans, which are found by the lines and the equations.

    `source` is the name of the field `u`, as users call it; `read` checks the arguments that are
    not named here, and returns the equations of given lines.
    """

    def __init__(  # noqa: PLR0917
        self,
        name: str,
        source: str,
        u: PencilArray,
        out: PencilArray | None,
        axis: int,
        read: Callable[[Lines], Equations],
    ) -> None:
        if type(u) is PencilArray:
            self._spec = spec = FieldSpec.of(u)
            prepared = kept_agreement(u.pencil, name, spec, spec.signature)
            super().__init__(name, u.pencil.topology, prepared.block())
        else:  # an error on all ranks
            super().__init__(name, topology_among(u, out))
        self._arguments = name, source, u, axis, read
        self.call = LineCall(u, out)
        self.lines: Lines
        self.equations: Equations
        self._plan: LinePlan

    def signature(self, agree: Agreement) -> PlanKey:
        """Check the arguments, and record what ranks must agree on."""
        name, source, u, axis, read = self._arguments
        check_type(source, u, PencilArray)
        self._spec = FieldSpec.of(u)
        number, lead = as_dim("axis", axis, u.ndim), len(self._spec.components)
        if number < lead:
            raise ArgumentError(
                f"axis {number} of shape {u.shape} numbers components; axes of space are {lead} to "
                f"{u.ndim - 1}"
            )
        self.lines = as_lines(u.pencil, number - lead, self._spec)
        self.equations = read(self.lines)
        agree(axis=self.lines.dim, equations=self.equations.text)
        return PlanKey((name, *self.lines, self.equations.text))

    def make(self) -> LinePlan:
        """Make the plan. *Collective*."""
        return LinePlan(self.lines, self.equations, source=self._arguments[1])

    def bind(self, plan: LinePlan) -> Prepared | None:
        """Bind the plan to the fields, as far as this rank can do so alone."""
        self._plan = plan
        return plan.bind(self.call, self.agree)

    def set_up(self, plan: LinePlan) -> None:
        """Make what the plan lacks. *Collective*."""
        if not self.call.read:  # a new plan does not know yet whether all fields are shared
            with self.agree:
                self.bind(plan)
        plan.set_up(self.call, self.agree)

    def run(self) -> PencilArray:
        """Agree, prepare and run. *Collective*."""
        prepared = self.prepare()
        if self._plan.missed(self.call, self.agree):
            self.set_up(self._plan)
            prepared = self.prepare()
        return run_prepared(prepared)


def _reduction(
    lines: Lines, equations: Equations, system: System, solver: WholeLines
) -> ReducedSystem | None:
    """Reduce a system, if it is the same for all lines and all methods find one solution."""
    split = lines.split
    if equations.fields or solver.left_out not in {None, system.points - 1}:
        return None
    if solver.left_out is not None:
        system = system.pinned()
    cuts = [split.bounds(part)[0] for part in range(split.parts)]
    width = max(1, equations.width)  # blocks of one diagonal, too, have tips
    return ReducedSystem.of(system, [*cuts, system.points], width, equations.reach)


@np.errstate(all="ignore")
def _solver(lines: Lines, system: System, *, pin: bool) -> WholeLines:
    """Make the solver of whole lines, and check it; local."""
    infinite = system.infinite()
    if infinite is not None:
        row, line = infinite
        raise ArgumentError(
            f"the matrix has entries that are not finite in row {row}{_line_text(lines, line)}"
        )
    try:
        solver = WholeLines(system, lines.spec.dtype, pin=pin)
    except SingularError as error:
        hint = "" if pin else "; singular='pin' sets the last point to 0 where only it is free"
        raise ArgumentError(
            f"the matrix is singular: the pivot of row {error.row} vanishes"
            f"{_line_text(lines, error.line)}{hint}"
        ) from None
    bad = solver.unstable_line(system)
    if bad is not None and not solver.lines_differ:
        raise ArgumentError(
            "elimination is not accurate: the entries of the matrix differ too much in magnitude"
        )
    if bad is not None:
        raise ArgumentError(
            f"elimination without interchanges of rows is not stable{_line_text(lines, bad)}; "
            "fields as diagonals need a main diagonal that is large enough"
        )
    return solver


def _line_text(lines: Lines, line: int | None) -> str:
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
