"""Pictures of layouts for notebooks: well-formed, with every block at its place."""

from xml.etree import ElementTree as ET

import pytest

from pencils.layout import build_layout
from pencils.layout.drawing import MOST_BLOCKS, card, svg

SVG = "{http://www.w3.org/2000/svg}"


def polygons(picture):
    """Return the title and the corners of each polygon, all inside of the picture."""
    root = ET.fromstring(picture)
    left, top, width, height = map(float, root.get("viewBox").split())
    found = []
    for polygon in root.iter(f"{SVG}polygon"):
        points = [tuple(map(float, p.split(","))) for p in polygon.get("points").split()]
        assert all(left <= x <= left + width and top <= y <= top + height for x, y in points)
        found.append((polygon.find(f"{SVG}title").text, points, polygon.get("fill")))
    return found


@pytest.mark.parametrize(
    ("shape", "size", "decomp"),
    [
        ((7,), 3, 0),
        ((3,), 5, 0),
        ((8, 6), 6, (0, 1)),
        ((8, 6, 5), 12, (0, 1, 2)),
        ((4, 1000), 2, 1),
    ],
)
def test_every_block_has_its_faces(shape, size, decomp):
    layout = build_layout(shape, size, decomp=decomp)
    found = polygons(svg(layout, 1))
    titles = [title for title, _, _ in found]
    for rank in range(size):
        box = layout.box(rank)
        ranges = ", ".join(f"{lo}:{hi}" for lo, hi in zip(box.start, box.stop, strict=True))
        faces = (3 if len(shape) == 3 else 1) * bool(box.volume)
        assert titles.count(f"rank {rank}: {ranges}") == faces
    own = {color for title, _, color in found if title.startswith("rank 1:")}
    assert own.isdisjoint(color for title, _, color in found if not title.startswith("rank 1:"))


def test_blocks_lie_side_by_side_and_in_front():
    (_, one, _), (_, other, _) = polygons(svg(build_layout((8, 8), 2), 0))
    assert max(x for x, _ in one) == min(x for x, _ in other) == 75
    assert {y for _, y in one} == {0, -150}
    layout = build_layout((4, 4, 4), 8, decomp=(0, 1, 2))
    titles = [title for title, _, _ in polygons(svg(layout, 0))]  # those in front are drawn last
    back, front = titles.index("rank 2: 0:2, 2:4, 0:2"), titles.index("rank 0: 0:2, 0:2, 0:2")
    assert back < front < titles.index("rank 1: 0:2, 0:2, 2:4")
    for shape in [(2, 2, 2, 2), (MOST_BLOCKS + 1,), (0, 4)]:  # no picture
        assert svg(build_layout(shape, MOST_BLOCKS + 1 if len(shape) == 1 else 1), 0) == ""


def test_a_card_has_a_row_for_each_fact():
    html = card("a <b>", [("", "x", "y"), ("one & two", "3", "4"), ("5", "6")], "<svg></svg>")
    rows = [list(row) for row in ET.fromstring(html).iter("tr")]
    cells = [["".join(cell.itertext()) for cell in row] for row in rows]
    assert cells == [["a <b>"], ["", "x", "y"], ["one & two", "3", "4"], ["5", "6"]]
    assert {sum(int(cell.get("colspan", 1)) for cell in row) for row in rows} == {9}
