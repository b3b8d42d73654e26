"""Find out which way of exchanging halos is fastest here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from pencils.array.allocation import Array
from pencils.comm.exchange import AUTO
from pencils.comm.timing import time_in_turn
from pencils.comm.topology import Topology
from pencils.halo.arguments import HaloOptions
from pencils.halo.rounds import ROUTES, Rounds

SAMPLES = 7
CALLS = 5  # in a sample


def fastest(
    topology: Topology,
    options: HaloOptions,
    make: Callable[[str, str], Rounds],
    blocks: Sequence[Array],
) -> tuple[str, str]:
    """Time every route, by every method unless one is named. *Collective*.

    Parameters
    ----------
    topology : Topology
        The ranks.
    options : HaloOptions
        Without corners, all routes are the same.
    make : callable
        Makes the steps for a route and a method.
    blocks : sequence of numpy.ndarray
        Padded blocks to exchange, whose ghosts are filled.

    Returns
    -------
    route, method : str
        The same on all ranks.
    """
    reaching = "shared" if topology.nodes == 1 else "hybrid"
    methods = (AUTO, reaching, "messages") if options.method == AUTO else (options.method,)
    ways = list(product(ROUTES if options.corners else ["direct"], methods))
    made = [make(*way) for way in ways]
    bound = [rounds.bind(blocks) for rounds in made]
    seconds = time_in_turn(topology.comm, [_often(each.run) for each in bound], SAMPLES)
    for rounds in made:
        rounds.free()
    return ways[seconds.index(min(seconds))]


def _often(call: Callable[[], None]) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(CALLS):
            call()

    return calls
