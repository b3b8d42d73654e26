"""Fill ghosts, and add them back, by plans that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pencils.array.operands import topology_among
from pencils.array.pencil_array import PencilArray
from pencils.comm.agree import agreed
from pencils.comm.exchange import AUTO, Handle
from pencils.halo.arguments import (
    HaloOptions,
    are_private,
    check_additive,
    check_halos,
    facts,
    read_fields,
    read_kinds,
)
from pencils.halo.plan import HaloExchange, way_key
from pencils.plan import kept_plan

if TYPE_CHECKING:
    from pencils.comm.topology import Topology
    from pencils.halo.block import HaloKind


def exchange_halos(fields: Sequence[PencilArray], *, corners: bool = True) -> None:
    """Fill the ghosts of several fields at once. *Collective*.

    What goes to a neighbour travels in one message, whatever the dtypes and widths; only pieces of
    a quarter of a MiB and more have their own. Plans are kept and found again, so calling this in a
    loop is fine; `HaloExchange` gives control over route, method and checks.

    Parameters
    ----------
    fields : sequence of PencilArray
        Fields with the same blocks; dtypes, components, singletons and widths may differ.
    corners : bool, optional
        Whether to fill ghosts that lie beyond several dimensions.

    Raises
    ------
    PencilMismatchError, ArgumentError, TypeError
        On every rank, if the fields do not fit each other, none has a halo, or their communicator
        was freed.
    RankDisagreementError
        On every rank, if ranks passed fields of different kinds.

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((8, 6), periodic=True)
    >>> u, v = pencils.ones(pen, halo=1), pencils.ones(pen, dtype=complex, halo=(2, 0))
    >>> exchange_halos([u, v])
    """
    # As for a plan, a field alone will do, which cannot be unpacked.
    given = [fields] if isinstance(fields, PencilArray) else fields
    _kept_plan("exchange_halos", given, corners=corners)(*given)


def exchange_halo(field: PencilArray, *, corners: bool = True) -> None:
    """Fill the ghosts: see `PencilArray.exchange_halo`. *Collective*."""
    _kept_plan("exchange_halo", [field], corners=corners)(field)


def start_halo_exchange(field: PencilArray, *, corners: bool = True) -> Handle[None]:
    """Start to fill the ghosts: see `PencilArray.start_halo_exchange`. *Collective*."""
    return _kept_plan("start_halo_exchange", [field], corners=corners).start(field)


def accumulate_halo(field: PencilArray, *, corners: bool = True) -> None:
    """Add ghosts to the owned points: see `PencilArray.accumulate_halo`. *Collective*."""
    _kept_plan("accumulate_halo", [field], corners=corners, add=True).accumulate(field)


def _kept_plan(
    call: str, fields: Sequence[PencilArray], *, corners: bool, add: bool = False
) -> HaloExchange:
    """Agree on the fields, and find the plan for their kinds. *Collective*."""
    topology = topology_among(fields)
    with agreed(topology.comm, call) as agree:
        given = read_fields(fields)
        kinds = read_kinds(given)
        if add:
            check_additive(kinds)
        options = HaloOptions(bool(corners), AUTO, AUTO, check=False)
        agree(**facts(given), corners=options.corners)
        check_halos(given)
        private = are_private(given)
        agree.flag(up=private)
        known = topology.plans.get(_key(topology, kinds, corners=corners, private=private))
        ready = known is not None and known.prepared(given, backwards=add) is not None
        agree.defer(up=not ready)
    private = agree.flagged
    topology = given[0].pencil.topology
    found: HaloExchange = kept_plan(
        topology,
        _key(topology, kinds, corners=corners, private=private),
        lambda: HaloExchange.for_fields(given, options, buffers=topology.buffers, private=private),
    )
    if agree.deferred:
        found.make_steps(backwards=add)
        with agreed(topology.comm, call):
            found.prepared(given, backwards=add)
    return found


def _key(
    topology: Topology, kinds: Sequence[HaloKind], *, corners: bool, private: bool
) -> tuple[object, object]:
    """Name a kept plan."""
    key = way_key(kinds, corners=bool(corners), private=private)
    return key, topology.methods.get(key)
