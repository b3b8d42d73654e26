"""Halos: ghost points filled with copies of other ranks' points, and boundary points by rules.

Imports fields (`pencils.array`), the base of plans and what is below. Begin with `exchange`: the
plan `HaloExchange`. `schedule` lists its steps and runs them, and `kept` has the verbs that keep
plans. `boundary` fills the points outside the domain, without communication.
"""

from pencils.halo.exchange import HaloExchange
from pencils.halo.kept import exchange_halos

__all__ = ["HaloExchange", "exchange_halos"]
