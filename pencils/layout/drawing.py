"""Cards for notebooks: tables about fields and plans, and small pictures of layouts as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import prod
from typing import NamedTuple

from pencils.layout.box import Box
from pencils.layout.layout import Extent, Layout
from pencils.tables import text_bytes

MOST_BLOCKS = 512  # more are not drawn: neither could they be seen
_FLAT, _SOLID = 2, 3  # dimensions of pictures; one dimension has a height of its own
_LONGEST, _SHORTEST = 150, 15  # pixels along a dimension
_DEPTH = (0.45, -0.3)  # pixels right and down for each pixel along the dimension that goes back
_OWN, _OTHER = ("#f4a261", "#d98035", "#fbc599"), ("#dbe4ee", "#b9c8d8", "#edf2f7")

# In any theme of a notebook: its colours, and lines of half their strength.
_CARD = "display:flex;flex-wrap:wrap;gap:0.8em 2em;align-items:center;margin:0.4em 0"
_TABLE = "border-collapse:collapse;margin:0;color:inherit;font-size:0.9em"
_ROW = "background:none;border-top:1px solid rgba(128,128,128,0.4)"
_CELL = "text-align:left;padding:0.15em 1.2em 0.15em 0;overflow-wrap:anywhere"

Point = tuple[float, float]
Row = tuple[str, ...]  # a name and values, of which the last one fills the row


class Blocks(NamedTuple):
    """Fields on a layout, for a card: the own block, components, and bytes of an element."""

    extent: Extent
    components: tuple[int, ...] = ()
    itemsize: int = 0

    @property
    def shapes(self) -> tuple[str, str]:
        """Shape of the whole, and of the own block."""
        extent, lead = self.extent, self.components
        return _product((*lead, *extent.shape)), _product((*lead, *extent.local_shape))

    @property
    def amounts(self) -> tuple[str, str]:
        """Bytes of the whole and of the own block."""
        each = prod(self.components) * self.itemsize
        sizes = (prod(self.extent.shape), self.extent.box.volume)
        return text_bytes(sizes[0] * each), text_bytes(sizes[1] * each)

    @property
    def indices(self) -> str:
        """Global indices of the own block."""
        return f"[{_ranges(self.extent.box)}]"

    @property
    def grid(self) -> str:
        """How many ranks cut which dimensions."""
        layout = self.extent.layout
        dims = ", ".join(map(str, layout.decomp))
        plural = "s" * (len(layout.decomp) > 1)
        return f"{_product(layout.grid.shape)} along dimension{plural} {dims}"


def card(title: str, rows: Sequence[Row], *pictures: str) -> str:
    """Return HTML with pictures beside a table."""
    head = f'<tr style="background:none"><th colspan="9" style="{_CELL}">{escape(title)}</th></tr>'
    lines = "".join(map(_line, rows))
    table = f'<table style="{_TABLE}"><tbody>{head}{lines}</tbody></table>'
    return f'<div style="{_CARD}">{"".join(pictures)}{table}</div>'


def _line(row: Row) -> str:
    name, *values = row
    spans = [1] * (len(values) - 1) + [9 - len(values)]
    cells = "".join(
        f'<td colspan="{span}" style="{_CELL}">{escape(value)}</td>'
        for span, value in zip(spans, values, strict=True)
    )
    return f'<tr style="{_ROW}"><td style="{_CELL};opacity:0.7">{escape(name)}</td>{cells}</tr>'


def _product(numbers: Sequence[int]) -> str:
    return " × ".join(map(str, numbers)) or "1"


def _ranges(box: Box) -> str:
    return ", ".join(f"{lo}:{hi}" for lo, hi in zip(box.start, box.stop, strict=True))


def svg(layout: Layout, rank: int) -> str:
    """Draw all blocks, and that of `rank` in another colour; nothing if it would be no picture.

    Dimension 0 goes right, dimension 1 up or, of three, back, and dimension 2 up. Thin grids are
    drawn thicker than they are.

    Examples
    --------
    >>> from pencils.layout.build import build_layout
    >>> picture = svg(build_layout((8, 6), 4, decomp=(0, 1)), 0)
    >>> picture.count("<polygon"), picture.count("<title>rank 3: 4:8, 3:6</title>")
    (4, 1)
    >>> svg(build_layout((8,) * 4, 1), 0)
    ''
    """
    if not 1 <= layout.ndim <= _SOLID or layout.size > MOST_BLOCKS or 0 in layout.shape:
        return ""
    longest = max(layout.shape)
    lengths = [max(_SHORTEST, _LONGEST * n / longest) for n in layout.shape]
    scales = [length / n for length, n in zip(lengths, layout.shape, strict=True)]
    blocks = [(each, layout.box(each)) for each in range(layout.size)]
    shown = sorted((_depth(box), each, box) for each, box in blocks if box.volume)
    polygons = [
        polygon
        for _, each, box in shown
        for polygon in _polygons(box, scales, each, _OWN if each == rank else _OTHER)
    ]
    return _framed(polygons, lengths)


def _depth(box: Box) -> tuple[int, ...]:
    """Order in which blocks are drawn: those behind others first."""
    x, *others = box.start
    if len(others) < _FLAT:
        return box.start
    y, z = others
    return -y, x, z


def _polygons(box: Box, scales: Sequence[float], rank: int, colors: Sequence[str]) -> Iterator[str]:
    """Draw a block: its front, and in three dimensions its right side and its top."""
    low = [n * scale for n, scale in zip(box.start, scales, strict=True)]
    high = [n * scale for n, scale in zip(box.stop, scales, strict=True)]
    for corners, color in zip(_faces(low, high), colors, strict=False):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        yield (
            f'<polygon points="{points}" fill="{color}" stroke="#4a5568" stroke-width="0.7">'
            f"<title>rank {rank}: {_ranges(box)}</title></polygon>"
        )


def _faces(low: Sequence[float], high: Sequence[float]) -> list[list[Point]]:
    """Return the corners of the visible faces: the front, the right side, the top."""
    around = (0, 0), (1, 0), (1, 1), (0, 1)
    ends = [*zip(low, high, strict=True)]
    if len(ends) < _SOLID:
        across, up = ends[0], ends[1] if len(ends) == _FLAT else (0.0, float(_SHORTEST))
        return [[(across[i], -up[j]) for i, j in around]]
    x, y, z = ends
    return [
        [_projected(x[i], y[0], z[j]) for i, j in around],
        [_projected(x[1], y[i], z[j]) for i, j in around],
        [_projected(x[i], y[j], z[1]) for i, j in around],
    ]


def _projected(x: float, y: float, z: float) -> Point:
    return x + _DEPTH[0] * y, -z + _DEPTH[1] * y


def _framed(polygons: Sequence[str], lengths: Sequence[float]) -> str:
    """Return a picture with room for a grid of these lengths."""
    corners = [point for face in _faces([0.0] * len(lengths), lengths) for point in face]
    left, right = min(x for x, _ in corners) - 2, max(x for x, _ in corners) + 2
    top, bottom = min(y for _, y in corners) - 2, max(y for _, y in corners) + 2
    width, height = right - left, bottom - top
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}">{"".join(polygons)}</svg>'
    )
