"""Plain text tables and amounts, for people."""

from __future__ import annotations

from collections.abc import Sequence

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_STEP = 1000


def text_table(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> str:
    """Align the columns of a table: to the right, but those numbered in `left` to the left.

    Examples
    --------
    >>> print(text_table([("grid", "ms"), ("2 x 2", "1.5"), ("4 x 1", "12.0")]))
    grid     ms
    2 x 2   1.5
    4 x 1  12.0
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        texts = [
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(cells)
        ]
        lines.append("  ".join(texts).rstrip())
    return "\n".join(lines)


def text_bytes(nbytes: float) -> str:
    """Return a number of bytes with three digits and a unit.

    Examples
    --------
    >>> text_bytes(0), text_bytes(1536), text_bytes(2.5e9)
    ('0 B', '1.54 kB', '2.5 GB')
    """
    for unit in _UNITS[:-1]:
        if nbytes < _STEP:
            return f"{nbytes:.3g} {unit}"
        nbytes /= _STEP
    return f"{nbytes:.3g} {_UNITS[-1]}"


def text_seconds(seconds: float) -> str:
    """Return a time with three digits and a unit.

    Examples
    --------
    >>> text_seconds(0), text_seconds(2.5e-5), text_seconds(0.0123), text_seconds(90)
    ('0 us', '25 us', '12.3 ms', '90 s')
    """
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < _STEP:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
