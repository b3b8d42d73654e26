"""Write XDMF files: text that describes the grids and times of an HDF5 file to ParaView and VisIt.

The axes of fields are listed as they are stored, slowest first; ParaView calls the last axis x.
Each component becomes a scalar, because components are stored first, and these programs want them
last. Planes, lines and decimated fields have grids of their own. Left out are complex, boolean and
compound fields, which XDMF does not have, and those that do not have two or three dimensions.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np

from pencils.comm.agree import agreed
from pencils.io.commit import made
from pencils.io.file_access import on_root, reading
from pencils.io.file_info import RESERVED, TIME
from pencils.io.meshes import Axis, Field, find_fields
from pencils.io.options import read_path
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

# Endings that ".xdmf" replaces.
_ENDINGS = (".h5", ".hdf5")
# Names of XDMF for types of numbers.
_NUMBERS = {"f": "Float", "i": "Int", "u": "UInt"}
# By number of dimensions: topology and geometry for equal spacings, and for other ones.
_MESHES = {
    2: ("2DCoRectMesh", "ORIGIN_DXDY", "2DRectMesh", "VXVY"),
    3: ("3DCoRectMesh", "ORIGIN_DXDYDZ", "3DRectMesh", "VXVYVZ"),
}


def write_xdmf(path: str | os.PathLike[str], comm: MPI.Intracomm | None = None) -> str:
    """Write an XDMF file next to an HDF5 file, for old versions of ParaView. *Collective*.

    New ones open the HDF5 file itself; it shows them one grid, and the XDMF file all.

    Parameters
    ----------
    path : str or path-like
        A file by `save`, or a `TimeSeries`; coordinates come from their ``grid``.
    comm : mpi4py.MPI.Intracomm, optional
        The processes that call. Default: all.

    Returns
    -------
    str
        The file: `path` with the ending ``.xdmf``, which replaces ``.h5`` or ``.hdf5`` and follows
        other endings. It refers to the HDF5 file in the same folder.

    Raises
    ------
    CheckpointError
        On every rank, if `path` is not a complete HDF5 file.
    OSError
        On every rank, if a file cannot be read or written.
    ArgumentError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks.

    Examples
    --------
    >>> import os, tempfile, numpy as np, pencils
    >>> pencil = pencils.Pencil((4, 6))
    >>> grid = pencils.localgrid(pencil, (np.linspace(0, 1, 4), np.linspace(0, 2, 6)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pencils.save(f"{folder}/run.h5", {"u": pencils.ones(pencil)}, grid=grid, time=0.5)
    ...     os.path.basename(pencils.io.write_xdmf(f"{folder}/run.h5"))
    'run.xdmf'
    """
    private = Pencil(1, comm).topology.comm
    with agreed(private, "write_xdmf") as agree:
        given = read_path(path)
        agree(path=given)
    return on_root(private, "write_xdmf", lambda: write_sidecar(os.path.realpath(given)))


def write_sidecar(path: str, count: int | None = None) -> str:
    """Write the XDMF file of an HDF5 file, on one rank; of a series, list `count` snapshots."""
    from pencils.io import hdf5, hdf5_file  # of all ranks, only this one needs h5py

    source = Path(path)
    # Other endings stay, because numbers after a dot can be parts of names.
    target = source.with_suffix(".xdmf") if source.suffix in _ENDINGS else Path(f"{path}.xdmf")
    with reading(path), hdf5.opened(path) as file:
        root = _describe(file, source.name, hdf5_file.list_datasets(file), count)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode", xml_declaration=True)
    with made(target) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    return str(target)


def _describe(file: Any, name: str, datasets: list[str], count: int | None) -> ET.Element:
    """Describe an open file: one grid, or collection of grids in time, for each set of axes."""
    from pencils.io.unpack import read_checked

    root = ET.Element("Xdmf", Version="3.0")
    domain = _add(root, "Domain")
    times = None
    if RESERVED + "series" in file.attrs and TIME in file:
        times = read_checked(file[TIME], slice(count))
    fields = list(find_fields(file, datasets, None if times is None else len(times)))
    left_out = sorted(field.name for field in fields if not field.is_shown)
    if left_out:
        _add(domain, "Information", Name="left out", Value=", ".join(left_out))
    shown = [field for field in fields if field.is_shown]
    for axes in dict.fromkeys(field.axes for field in shown):
        here = [field for field in shown if field.axes == axes]
        title, parent = " ".join(axis.name for axis in axes), domain
        moments: list[tuple[tuple[int, ...], Any]] = [((), file.attrs.get(RESERVED + "time"))]
        if times is not None:
            form = {"GridType": "Collection", "CollectionType": "Temporal"}
            parent = _add(domain, "Grid", Name=title, **form)
            moments = [((number,), time) for number, time in enumerate(times)]
        mesh = _make_mesh(name, axes)
        for snapshot, time in moments:
            grid = _add(parent, "Grid", Name=title, GridType="Uniform")
            grid.extend(mesh)
            if time is not None:
                _add(grid, "Time", Value=repr(float(time)))
            _add_fields(grid, name, here, snapshot)
    return root


def _add_fields(
    grid: ET.Element, file: str, fields: Sequence[Field], snapshot: tuple[int, ...]
) -> None:
    """Add all components of fields at one time, as separate scalars."""
    taken = {field.name for field in fields if not field.components}
    for field in fields:
        space, ndim = [axis.points for axis in field.axes], len(field.shape)
        for index in product(*map(range, field.components)):
            name = "_".join([field.name, *map(str, index)])
            while index and name in taken:
                name += "_"
            taken.add(name)
            attribute = _add(grid, "Attribute", Name=name, AttributeType="Scalar", Center="Node")
            at, ones = [*snapshot, *index], [1] * ndim
            rows = [at + [0] * len(space), ones, ones[: len(at)] + space]
            slab = _add(attribute, "DataItem", ItemType="HyperSlab", Dimensions=_join(space))
            form = {"Dimensions": f"3 {ndim}", "Format": "XML", "NumberType": "Int"}
            _add(slab, "DataItem", "  ".join(map(_join, rows)), **form)
            _add_dataset(slab, file, field.dataset, field.shape)


def _make_mesh(file: str, axes: Sequence[Axis]) -> list[ET.Element]:
    """Make the topology and geometry, which all snapshots share."""
    even, origin_and_steps, uneven, coordinates = _MESHES[len(axes)]
    spacings = [axis.spacing for axis in axes]
    is_even = None not in spacings
    dimensions = _join(axis.points for axis in axes)
    topology = ET.Element(
        "Topology", TopologyType=even if is_even else uneven, Dimensions=dimensions
    )
    geometry = ET.Element("Geometry", GeometryType=origin_and_steps if is_even else coordinates)
    if is_even:
        for numbers in ([float(axis.coordinates[0]) for axis in axes], spacings):
            _add_numbers(geometry, numbers, "Float")
        return [topology, geometry]
    for axis in reversed(axes):  # XDMF wants the fastest first
        if axis.scale is None:
            _add_numbers(geometry, axis.coordinates.tolist(), "Int")
        else:
            _add_dataset(geometry, file, axis.scale, (axis.points,))
    return [topology, geometry]


def _add_dataset(parent: ET.Element, file: str, dataset: Any, shape: Sequence[int]) -> None:
    form = {"Dimensions": _join(shape), "Format": "HDF", **_format(dataset.dtype)}
    _add(parent, "DataItem", f"{file}:{dataset.name}", **form)


def _add_numbers(parent: ET.Element, numbers: Sequence[Any], kind: str) -> None:
    form = {"Dimensions": str(len(numbers)), "Format": "XML", "NumberType": kind, "Precision": "8"}
    _add(parent, "DataItem", " ".join(map(repr, numbers)), **form)


def _add(parent: ET.Element, tag: str, text: str | None = None, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = text
    return element


def _format(dtype: np.dtype[Any]) -> dict[str, str]:
    """Return the attributes of XDMF for a type of numbers."""
    name = _NUMBERS[dtype.kind]
    if dtype.itemsize == 1:
        name = {"Int": "Char", "UInt": "UChar"}[name]
    order = "Big" if dtype.str.startswith(">") else "Little"
    return {"NumberType": name, "Precision": str(dtype.itemsize), "Endian": order}


def _join(numbers: Any) -> str:
    return " ".join(map(str, numbers))
