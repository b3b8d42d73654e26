"""Exports in words."""

import pytest
from dap_cases import block, cyclic, old, unstructured, wrap

from pencils.dap import describe


@pytest.mark.parametrize(
    ("export", "lines"),
    [
        (wrap(shape=()), []),
        (wrap({}), ["dimension 0: not distributed, 5 points"]),
        (
            wrap(block(1, 4, 10, padding=(1, 2)), shape=6),
            ["block 1 of 2, owns 5..9 of 10 points", "below: 1 ghost; above: 2 boundary"],
        ),
        (
            old(block(periodic=True, padding=(2, 0)), shape=7),
            ["0..4 of 10 points, period", "below: 2 ghosts"],
        ),
        (wrap(block(1, 10, 10), shape=0), ["block 1 of 2, owns nothing of 10 points"]),
        (wrap(cyclic(1)), ["cyclic part 1 of 2, owns 1, 3, 5, 7, 9 of 10 points"]),
        (
            wrap(cyclic(block_size=3, size=30), shape=15),
            ["cyclic in blocks of 3 part 0 of 2, owns 0, 1, 2, 6, 7, 8, 12, 13, ... (15 in all)"],
        ),
        (wrap(unstructured([7, -3]), shape=2), ["unstructured part 0 of 2, owns 7, -3 of"]),
        (
            wrap(block(padding=(0, 1)), shape=6),
            ["0..4 of 10", "above: 1 ghost", "! dimension 0: the"],
        ),
        (wrap(block(colour=1)), ["block 0 of 2", "! dimension 0, key 'colour': the key is"]),
    ],
)
def test_exports_are_described_in_words(export, lines):
    text = describe(export)
    version, shape = export["__version__"], export["buffer"].shape
    assert text.startswith(f"Distributed Array Protocol {version}: float64, local shape {shape}")
    for line in lines:
        assert line in text


def test_what_is_wrong_is_described_too():
    text = describe(wrap(block(start=-1, stop=20)))
    assert text.startswith("This is not a valid export:\n  ! dimension 0, key 'start': got -1")
    assert describe(None).count("\n") == 1
