"""The Distributed Array Protocol, versions 0.10 and 0.9: share arrays without copying.

May import `array` and everything below it, not other verbs but `indexer`. Read `maps` first (the
points of one process along one dimension), then `exports` and `imports`. `validate` and
`collective` check exports rule by rule; `view` copies to other distributions.
"""

from pencils.dap.collective import iter_collective_issues, validate_collective, validate_on
from pencils.dap.distributions import GlobalDimMap, GlobalDist, LocalDist
from pencils.dap.exports import comm, export, export_as
from pencils.dap.findings import (
    CollectiveError,
    DAPError,
    DAPWarning,
    Finding,
    SemanticError,
    StructureError,
    UnsupportedError,
    VersionError,
)
from pencils.dap.imports import import_array
from pencils.dap.maps import VERSIONS, BlockMap, CyclicMap, DimMap, UnstructuredMap, emit
from pencils.dap.validate import (
    Metadata,
    describe,
    iter_issues,
    metadata,
    num_owned_indices,
    validate,
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
    "GlobalDimMap",
    "GlobalDist",
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
    "metadata",
    "num_owned_indices",
    "validate",
    "validate_collective",
    "validate_on",
]
