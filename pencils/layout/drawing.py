"""Small pictures of layouts as SVG, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from pencils.layout.box import Box
from pencils.layout.layout import Layout

MOST_BLOCKS = 512  # more are not drawn: neither could they be seen
_FLAT, _SOLID = 2, 3  # dimensions of pictures; one dimension has a height of its own
_LONGEST, _SHORTEST = 150, 15  # pixels along a dimension
_DEPTH = (0.45, -0.3)  # pixels right and down for each pixel along the dimension that goes back
_OWN, _OTHER = ("#f4a261", "#d98035", "#fbc599"), ("#dbe4ee", "#b9c8d8", "#edf2f7")

Point = tuple[float, float]


def card(text: str, *pictures: str) -> str:
    """Return HTML with pictures beside a text."""
    style = "display:flex;gap:1.5em;align-items:center;flex-wrap:wrap"
    return f'<div style="{style}">{"".join(pictures)}<pre>{escape(text)}</pre></div>'


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
    ranges = ", ".join(f"{lo}:{hi}" for lo, hi in zip(box.start, box.stop, strict=True))
    low = [n * scale for n, scale in zip(box.start, scales, strict=True)]
    high = [n * scale for n, scale in zip(box.stop, scales, strict=True)]
    for corners, color in zip(_faces(low, high), colors, strict=False):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        yield (
            f'<polygon points="{points}" fill="{color}" stroke="#4a5568" stroke-width="0.7">'
            f"<title>rank {rank}: {ranges}</title></polygon>"
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
