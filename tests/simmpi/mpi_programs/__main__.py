"""Run programs on the ranks of a job: ``python -m mpi_programs FOLDER LENGTH SEED...``.

Each rank writes its results to a file in the folder, as JSON: seed to list of text and result.
"""

import faulthandler
import json
import sys
from pathlib import Path

from mpi4py import MPI

from . import execute, program

SECONDS = 100  # after which a job that hangs prints where each rank is


def main(folder, length, *seeds):
    """Run the programs, and write what was done also when one fails."""
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    results = {}
    try:
        for seed in seeds:
            execute(program(int(seed), int(length)), results.setdefault(seed, []))
    finally:
        path = Path(folder, f"{MPI.COMM_WORLD.Get_rank()}.json")
        path.write_text(json.dumps(results), encoding="utf-8")


main(*sys.argv[1:])
