"""Keep ratios to other codes in a file, for `plots.py`: a line of JSON for each.

A script that runs alone keeps nothing; ``make bench`` names the file, which grows with each script.
"""

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pencils

VARIABLE = "PENCILS_RESULTS"


def keep(case, peer, ratio):
    """Append the time of a peer divided by that of pencils: above 1, pencils is faster."""
    file = os.environ.get(VARIABLE)
    if file is None or MPI.COMM_WORLD.rank != 0:
        return
    row = {"script": Path(sys.argv[0]).stem, "case": case, "peer": peer, "ratio": float(ratio)}
    with Path(file).open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(row | circumstances()) + "\n")


def circumstances():
    """Return what the ratios depend on."""
    library = MPI.Get_library_version().splitlines()[0].split(",")[0]
    return {
        "pencils": pencils.__version__,
        "numpy": np.__version__,
        "mpi": " ".join(library.replace("Version:", "").split()),
        "ranks": MPI.COMM_WORLD.size,
        "cores": os.cpu_count(),
        "processor": processor(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def processor():
    """Return the name of the processor, where Linux has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown processor"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown processor")
