"""Fields lent to other programs and borrowed from them, as methods of fields: see `pencils.dap`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pencils.array.pencil_array import PencilArray
    from pencils.pencil import Pencil


def export(self: PencilArray) -> dict[str, Any]:
    """Export by the Distributed Array Protocol 0.10: see `pencils.dap.export`."""
    from pencils import dap  # which stands on fields

    return dap.export(self)


def from_distarray(
    cls: type[PencilArray],  # noqa: ARG001 - fields have no subclasses
    pencil: Pencil,
    obj: object,
    *,
    halo: Literal["keep", "drop", "wrap"] = "keep",
    lenient: bool = False,
) -> PencilArray:
    """Import an array by the Distributed Array Protocol onto a pencil. *Collective*.

    It must have the blocks of the pencil; then it mixes with the other fields there. What
    is periodic is a matter of the pencil. Dimensions before its own become components, dimensions
    of extent 1 singletons.
    `pencils.dap.import_array` makes the pencil that fits.

    Parameters
    ----------
    pencil : Pencil
        Where the points live.
    obj, halo, lenient
        As in `pencils.dap.import_array`. The exports of all processes are taken in the row-major
        order of their coordinates: see `pencils.dap.comm`.

    Returns
    -------
    PencilArray
        A field on the memory of the exporter.

    Raises
    ------
    PencilMismatchError
        On every rank, if the array has other blocks.
    DAPError, RankDisagreementError, ArgumentError, TypeError
        As `pencils.dap.import_array`.

    Examples
    --------
    >>> import pencils
    >>> pen = pencils.Pencil((4, 6))
    >>> u = pencils.ones(pen)
    >>> v = pencils.PencilArray.from_distarray(pen, u.__distarray__())
    >>> (u + v).sum()
    np.float64(48.0)
    """
    from pencils.dap.importing import import_onto  # which stands on fields

    return import_onto(pencil, obj, halo=halo, lenient=lenient)
