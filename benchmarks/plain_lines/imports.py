"""``import pencils`` in a new Python, on one rank, against its dependencies alone."""

import os
import subprocess
import sys

from .line import Calls, Line

# mpiexec speaks to its ranks by these; a Python that they start is none of them.
LAUNCHERS = ("PMI", "PMIX", "OMPI", "PRTE", "MPI", "HYDRA")
DEPENDENCIES = "import mpi4py; mpi4py.rc.initialize = False; import numpy, h5py, mpi4py.MPI"


def run(code):
    kept = {name: text for name, text in os.environ.items() if not name.startswith(LAUNCHERS)}
    subprocess.run([sys.executable, "-c", code], check=True, env=kept)


def fresh_python(comm):
    def call(code):
        if comm.rank == 0:
            run(code)

    return Calls(lambda: call(DEPENDENCIES), lambda: call(DEPENDENCIES + "; import pencils"))


LINES = [Line("import pencils", "numpy, mpi4py, h5py", fresh_python, 0.7)]
