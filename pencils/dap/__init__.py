"""The Distributed Array Protocol, versions 0.10 and 0.9: to share arrays without copying them."""

from pencils.dap.describe import describe
from pencils.dap.dist import GlobalDist, LocalDist
from pencils.dap.emit import VERSIONS, emit
from pencils.dap.errors import (
    CollectiveError,
    DAPError,
    DAPWarning,
    Finding,
    SemanticError,
    StructureError,
    UnsupportedError,
    VersionError,
)
from pencils.dap.exporting import comm, export
from pencils.dap.exporting_as import export_as
from pencils.dap.global_maps import (
    GlobalBlockMap,
    GlobalCyclicMap,
    GlobalDimMap,
    GlobalUnstructuredMap,
    make_global,
)
from pencils.dap.importing import import_array
from pencils.dap.maps import BlockMap, CyclicMap, DimMap, UnstructuredMap
from pencils.dap.meeting import validate_on
from pencils.dap.validate import (
    Metadata,
    iter_collective_issues,
    iter_issues,
    metadata,
    validate,
    validate_collective,
)
from pencils.dap.view import DistributedView

__all__ = [
    "VERSIONS",
    "BlockMap",
    "CollectiveError",
    "CyclicMap",
    "DAPError",
    "DAPWarning",
    "DimMap",
    "DistributedView",
    "Finding",
    "GlobalBlockMap",
    "GlobalCyclicMap",
    "GlobalDimMap",
    "GlobalDist",
    "GlobalUnstructuredMap",
    "LocalDist",
    "Metadata",
    "SemanticError",
    "StructureError",
    "UnstructuredMap",
    "UnsupportedError",
    "VersionError",
    "comm",
    "describe",
    "emit",
    "export",
    "export_as",
    "import_array",
    "iter_collective_issues",
    "iter_issues",
    "make_global",
    "metadata",
    "validate",
    "validate_collective",
    "validate_on",
]
