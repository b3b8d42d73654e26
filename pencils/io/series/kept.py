"""What earlier steps of a series in one file have written that later ones still need."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pencils.io.manifest import (
    FIRST_PLACE,
    Extent,
    Listed,
    Manifest,
    Record,
    compose,
    digest,
    make_page,
    mask_head,
    naming,
    other_place,
)
from pencils.io.seal import aligned

# Extents of a page: so many, at most, are listed with every step.
_PAGE_EXTENTS = 64


class Kept:
    """Extents of a file that stay in use, with the sum of their digests.

    Each step's record lists some of them, and names a page for the others: what a step costs does
    not grow with the file.

    Parameters
    ----------
    record : Record or None
        The record of the file as it is; None if it has none.
    """

    def __init__(self, record: Record | None = None) -> None:
        self._extents: list[Extent] = []
        self._total = 0
        self._page = (0, 0, 0)
        self._number = 0 if record is None else record.number
        self._place = FIRST_PLACE if record is None else other_place(record.place)

    def add(self, offset: int, data: bytes) -> None:
        """Add bytes that lie at an offset of the file and stay there."""
        self._extents.append((offset, len(data)))
        self._total = (self._total + digest(offset, data)) % 2**64

    def write_pages(self, place: Callable[[bytes], int]) -> None:
        """Write full pages, by a function that finds a place for bytes and returns it."""
        while len(self._extents) >= _PAGE_EXTENTS:
            page = make_page(self._page, self._extents[:_PAGE_EXTENTS])
            offset = place(page)
            self._page = offset, len(page), digest(offset, page)
            del self._extents[:_PAGE_EXTENTS]

    def compose(
        self, datasets: Mapping[str, Listed], head: bytes, step: tuple[int, bytes], root: int
    ) -> tuple[int, bytes, tuple[bytes, int]]:
        """Make the next record.

        Parameters
        ----------
        datasets : mapping of str to Listed
            What the file is going to hold.
        head : bytes
            Its superblock.
        step : (int, bytes)
            Offset and bytes of all that this step writes but points of fields, up to the end.
        root : int
            Where the root group is going to be.

        Returns
        -------
        int, bytes, (bytes, int)
            Where the record goes, the record, and what names it where in the superblock.
        """
        offset, data = step
        end = offset + len(data)
        total = (self._total + digest(0, mask_head(head)) + digest(offset, data)) % 2**64
        covered = [*self._extents, (offset, len(data))]
        manifest = Manifest(datasets, covered, total, self._page)
        start, number = aligned(end), self._number + 1
        record = compose(manifest, start, end=end, root=root, number=number)
        return start, record, naming(self._place, start + len(record))

    def turn(self) -> None:
        """Go on to the next record, when the last one is in the file."""
        self._number += 1
        self._place = other_place(self._place)
