"""Any layout of a given shape over a given number of ranks, for hypothesis tests."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from pencils.layout import build_layout


def prime_factors(number):
    """Return the primes whose product is `number`."""
    for prime in range(2, number + 1):
        if number % prime == 0:
            return [prime, *prime_factors(number // prime)]
    return []


def any_grid(draw, ranks, axes):
    """Draw `axes` factors of `ranks`."""
    grid = [1] * axes
    for prime in prime_factors(ranks):
        grid[draw(st.integers(0, axes - 1))] *= prime
    return grid


def any_split(draw, points, parts):
    """Draw a rule or explicit bounds; these leave blocks empty as often as not."""
    rules = st.sampled_from(["first", "last", "floor", "ceil"])
    cuts = st.lists(st.integers(0, points), min_size=parts - 1, max_size=parts - 1)
    return draw(rules | cuts.map(lambda inner: (0, *sorted(inner), points)))


@pytest.fixture(scope="session")
def any_layout():
    """Draw a layout, which may be a section: ``any_layout(data.draw, shape, ranks)``."""

    def build(draw, shape, ranks):
        dims = range(len(shape))
        most = draw(st.sampled_from([0, 0, 3]))  # points left out between two, and at the ends
        first, step, behind = (
            draw(st.tuples(*[st.integers(few, few + most) for _ in dims])) for few in (0, 1, 0)
        )
        kept = [range(lo, lo + n * by, by) for lo, by, n in zip(first, step, shape, strict=True)]
        whole = [one.stop + more for one, more in zip(kept, behind, strict=True)]
        decomp = draw(st.permutations(dims))[: draw(st.integers(1, len(shape)))]
        grid = any_grid(draw, ranks, len(decomp))
        parts = dict(zip(decomp, grid, strict=True))
        periodic = draw(st.tuples(*[st.booleans() for _ in dims]))
        layout = build_layout(
            whole,
            ranks,
            decomp=decomp,
            grid=grid,
            order=draw(st.permutations(dims)),
            splits=[any_split(draw, n, parts.get(dim, 1)) for dim, n in enumerate(whole)],
        )
        return replace(layout.section(kept), periodic=periodic)

    return build
