"""Halos: ghost points filled by neighbours, and boundary points by rules."""

from pencils.halo.plan import HaloExchange
from pencils.halo.verbs import (
    accumulate_halo,
    exchange_halo,
    exchange_halos,
    start_halo_exchange,
)

__all__ = [
    "HaloExchange",
    "accumulate_halo",
    "exchange_halo",
    "exchange_halos",
    "start_halo_exchange",
]
