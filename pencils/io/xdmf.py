"""XDMF: a text file beside an HDF5 file, by which ParaView and VisIt find grids and times in it.

The axes of fields are listed as they are stored, slowest first; ParaView calls the fastest, which
is the last one, its x. Vectors and tensors become one scalar for each component: the components
are stored first, where these programs want them last. Planes, lines within planes and decimated
fields have grids of their own. Complex, boolean and compound fields are left out, because XDMF has
no such numbers, and so are fields of other than two or three dimensions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree as ET

import numpy as np

from pencils.array.allocation import Array
from pencils.comm.agree import agreed
from pencils.io.commit import made
from pencils.io.file_info import RESERVED
from pencils.io.hdf5_errors import reading
from pencils.io.options import read_path
from pencils.io.root_io import on_root
from pencils.pencil import Pencil

if TYPE_CHECKING:
    from pencils.comm.mpi import MPI

_TIME = "time"
# Endings of HDF5 files, which that of the XDMF file replaces.
_ENDINGS = (".h5", ".hdf5")
# Kind and size of numbers, as XDMF calls the former.
_NUMBERS = {"f": "Float", "i": "Int", "u": "UInt"}
_SIZES = {"f": (4, 8), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8)}
# Number of dimensions: topology on equal and on other spacings, geometry of both.
_MESHES = {
    2: ("2DCoRectMesh", "ORIGIN_DXDY", "2DRectMesh", "VXVY"),
    3: ("3DCoRectMesh", "ORIGIN_DXDYDZ", "3DRectMesh", "VXVYVZ"),
}
# How far steps of equal size may be apart, compared with the step.
_TOLERANCE = 1e-6


def write_xdmf(path: str | os.PathLike[str], comm: MPI.Intracomm | None = None) -> str:
    """Write an XDMF file beside an HDF5 file, for ParaView. *Collective*.

    Parameters
    ----------
    path : str or path-like
        A file by `save`, or a `TimeSeries`; coordinates come from their ``grid``.
    comm : mpi4py.MPI.Intracomm, optional
        The processes that call. Default: all.

    Returns
    -------
    str
        The file: `path` with the ending ``.xdmf``, in place of ``.h5`` or ``.hdf5`` and after
        all others. It finds the HDF5 file in its own folder.

    Raises
    ------
    CheckpointError
        On every rank, if `path` is not a whole HDF5 file.
    OSError
        On every rank, if a file cannot be read or written.
    ArgumentError, RankDisagreementError, TypeError
        On every rank, if an argument is not allowed or differs between ranks.

    Examples
    --------
    >>> import os, tempfile, numpy as np, pencils
    >>> pen = pencils.Pencil((4, 6))
    >>> grid = pencils.localgrid(pen, (np.linspace(0, 1, 4), np.linspace(0, 2, 6)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pencils.save(f"{folder}/run.h5", {"u": pencils.ones(pen)}, grid=grid, time=0.5)
    ...     os.path.basename(pencils.write_xdmf(f"{folder}/run.h5"))
    'run.xdmf'
    """
    private = Pencil(1, comm).topology.comm
    with agreed(private, "write_xdmf") as same:
        given = read_path(path)
        same(path=given)
    return on_root(private, "write_xdmf", lambda: write_sidecar(os.path.realpath(given)))


def write_sidecar(path: str, count: int | None = None) -> str:
    """Write the XDMF file of an HDF5 file, on one rank.

    Parameters
    ----------
    path : str
        The file.
    count : int, optional
        How many snapshots of a series to list. Default: all.
    """
    from pencils.io import hdf5  # of all ranks, only this one needs h5py

    target = _sidecar(Path(path))
    with reading(path), hdf5.opened(path) as file:
        root = _describe(file, Path(path).name, count)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode", xml_declaration=True)
    with made(target) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    return str(target)


def _sidecar(path: Path) -> Path:
    """Name the XDMF file; numbers after a dot tell files apart and stay."""
    return path.with_suffix(".xdmf") if path.suffix in _ENDINGS else Path(f"{path}.xdmf")


class _Stored(NamedTuple):
    """A dataset of a field: how much of it is shown, and what its axes are."""

    dataset: Any
    shape: tuple[int, ...]
    components: tuple[int, ...]
    axes: tuple[_Axis, ...]

    @property
    def name(self) -> str:
        return str(self.dataset.name).lstrip("/")


class _Axis(NamedTuple):
    """A dimension: its name, how many points it has, and where they are, if that is known."""

    name: str
    points: int
    scale: Any = None

    @property
    def coordinates(self) -> Array:
        return np.arange(self.points) if self.scale is None else self.scale[...]

    @property
    def spacing(self) -> float | None:
        """Step from each point to the next, if it is always the same."""
        points = self.coordinates.astype(float)
        steps = np.diff(points)
        if steps.size == 0:
            return 1.0
        step = float(steps.mean())
        even = np.isfinite(step) and np.all(np.abs(steps - step) <= _TOLERANCE * abs(step))
        return step if even else None


def _describe(file: Any, name: str, count: int | None) -> ET.Element:
    root = ET.Element("Xdmf", Version="3.0")
    domain = ET.SubElement(root, "Domain")
    times = file[_TIME][:count] if RESERVED + "series" in file.attrs and _TIME in file else None
    fields = list(_fields(file, None if times is None else len(times)))
    left_out = sorted(field.name for field in fields if not _is_shown(field))
    if left_out:
        ET.SubElement(domain, "Information", Name="left out", Value=", ".join(left_out))
    for axes in dict.fromkeys(field.axes for field in fields if _is_shown(field)):
        here = [field for field in fields if field.axes == axes and _is_shown(field)]
        title = " ".join(axis.name for axis in axes)
        mesh = _make_mesh(name, axes)
        if times is None:
            grid = _add_grid(domain, title, mesh)
            _add_fields(grid, name, here, None)
            _add_time(grid, file.attrs.get(RESERVED + "time"))
            continue
        collection = ET.SubElement(
            domain, "Grid", Name=title, GridType="Collection", CollectionType="Temporal"
        )
        for number, time in enumerate(times):
            grid = _add_grid(collection, title, mesh)
            _add_fields(grid, name, here, number)
            _add_time(grid, time)
    return root


def _add_time(grid: ET.Element, time: Any) -> None:
    if time is not None:
        ET.SubElement(grid, "Time", Value=repr(float(time)))


def _fields(file: Any, count: int | None) -> Iterator[_Stored]:
    """Find the datasets of fields; of a series, the first snapshots are shown."""
    found: list[Any] = []
    file.visititems(
        lambda _, thing: found.append(thing) if RESERVED + "components" in thing.attrs else None
    )
    timed = () if count is None else (count,)
    for dataset in found:
        lead = int(dataset.attrs[RESERVED + "components"])
        axes = (_axis(dataset, at) for at in range(lead, dataset.ndim))
        shape = timed + dataset.shape[len(timed) :]
        yield _Stored(dataset, shape, shape[len(timed) : lead], tuple(axes))


def _axis(dataset: Any, at: int) -> _Axis:
    scales = list(dataset.dims[at].values())
    points = dataset.shape[at]
    if not scales:
        return _Axis(f"dim{at}_{points}", points)
    name = str(scales[0].name).lstrip("/")
    known = RESERVED + "value" in scales[0].attrs and _format(scales[0].dtype)
    return _Axis(name, points, scales[0] if known else None)


def _is_shown(field: _Stored) -> bool:
    full = all(axis.points for axis in field.axes)
    return len(field.axes) in _MESHES and full and bool(_format(field.dataset.dtype))


def _format(dtype: np.dtype[Any]) -> dict[str, str]:
    """Say in words of XDMF what numbers are; nothing, if it has no such."""
    if dtype.itemsize not in _SIZES.get(dtype.kind, ()):
        return {}
    name = _NUMBERS[dtype.kind]
    if dtype.itemsize == 1:
        name = {"Int": "Char", "UInt": "UChar"}[name]
    order = "Big" if dtype.str.startswith(">") else "Little"
    return {"NumberType": name, "Precision": str(dtype.itemsize), "Endian": order}


def _add_grid(parent: ET.Element, title: str, mesh: Sequence[ET.Element]) -> ET.Element:
    grid = ET.SubElement(parent, "Grid", Name=title, GridType="Uniform")
    grid.extend(mesh)
    return grid


def _add_fields(grid: ET.Element, file: str, fields: Sequence[_Stored], number: int | None) -> None:
    """Describe the fields on a grid: those of a snapshot, or all that a checkpoint has."""
    taken = {field.name for field in fields if not field.components}
    for field in fields:
        for index in product(*map(range, field.components)):
            name = "_".join([field.name, *map(str, index)])
            while index and name in taken:
                name += "_"
            taken.add(name)
            attribute = ET.SubElement(
                grid, "Attribute", Name=name, AttributeType="Scalar", Center="Node"
            )
            at = index if number is None else (number, *index)
            _add_slab(attribute, file, field, at)


def _make_mesh(file: str, axes: Sequence[_Axis]) -> list[ET.Element]:
    """Describe topology and geometry, which all snapshots share."""
    even, origin_and_steps, uneven, coordinates = _MESHES[len(axes)]
    spacings = [axis.spacing for axis in axes]
    dimensions = _join(axis.points for axis in axes)
    if None not in spacings:
        topology = ET.Element("Topology", TopologyType=even, Dimensions=dimensions)
        geometry = ET.Element("Geometry", GeometryType=origin_and_steps)
        for numbers in ([float(axis.coordinates[0]) for axis in axes], spacings):
            _add_numbers(geometry, numbers, "Float")
        return [topology, geometry]
    topology = ET.Element("Topology", TopologyType=uneven, Dimensions=dimensions)
    geometry = ET.Element("Geometry", GeometryType=coordinates)
    for axis in reversed(axes):  # the fastest first
        if axis.scale is None:
            _add_numbers(geometry, axis.coordinates.tolist(), "Int")
        else:
            _add_dataset(geometry, file, axis.scale, (axis.points,))
    return [topology, geometry]


def _add_slab(parent: ET.Element, file: str, field: _Stored, at: Sequence[int]) -> None:
    """Take the points of one time and one component."""
    space = [axis.points for axis in field.axes]
    counts = [1] * len(at) + space
    slab = ET.SubElement(parent, "DataItem", ItemType="HyperSlab", Dimensions=_join(space))
    rows = [[*at, *(0 for _ in space)], [1] * len(field.shape), counts]
    item = ET.SubElement(
        slab, "DataItem", Dimensions=f"3 {len(field.shape)}", Format="XML", NumberType="Int"
    )
    item.text = "  ".join(map(_join, rows))
    _add_dataset(slab, file, field.dataset, field.shape)


def _add_dataset(parent: ET.Element, file: str, dataset: Any, shape: Sequence[int]) -> None:
    about = {"Dimensions": _join(shape), "Format": "HDF", **_format(dataset.dtype)}
    ET.SubElement(parent, "DataItem", about).text = f"{file}:{dataset.name}"


def _add_numbers(parent: ET.Element, numbers: Sequence[Any], kind: str) -> None:
    item = ET.SubElement(
        parent,
        "DataItem",
        Dimensions=str(len(numbers)),
        Format="XML",
        NumberType=kind,
        Precision="8",
    )
    item.text = " ".join(map(repr, numbers))


def _join(numbers: Any) -> str:
    return " ".join(map(str, numbers))
