"""The guide for contributors names the files that a call enters."""

import re
from pathlib import Path

import pytest
from mpi_helpers import on_nodes
from tracing import trace

import pencils
from pencils.comm.mpi import MPI

GUIDE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
_, _, AFTER = GUIDE.partition("## How data flow")
FLOWS = dict(re.findall(r"^`([^`]+)`\n\n(1\. .*?)\n\n(?=`|#)", AFTER, re.MULTILINE | re.DOTALL))

pytestmark = pytest.mark.parallel([2, 3, 4, 6])


def transpose(_):
    """On one node, and between nodes by messages."""
    for nodes in ("real nodes", "even and odd"):
        comm = on_nodes(nodes)
        source, target = (pencils.Pencil((40, 8 * comm.size, 9), comm, decomp=d) for d in (0, 1))
        u = pencils.ones(source)
        pencils.transpose(u, target)
        pencils.transpose(u, target)


def save(folder):
    """Contiguous datasets, of short runs and of long ones, and chunked ones."""
    pencil = pencils.Pencil((16, 8 * MPI.COMM_WORLD.size), decomp=1)
    fields = {"u": pencils.ones(pencil)}
    pencils.save(folder / "contiguous.h5", fields)
    pencils.save(folder / "chunked.h5", fields, compression="gzip")


def take(_):
    """On one node and between nodes."""
    for nodes in ("real nodes", "even and odd"):
        comm = on_nodes(nodes)
        u = pencils.ones(pencils.Pencil((4, 5 * comm.size), comm, decomp=1))
        for _ in range(2):
            u.take_points([[0, 1], [2, 3]])


CALLS = {"transpose": transpose, "save": save, "take": take}


def test_flows_are_found():
    assert len(FLOWS) == len(CALLS)


@pytest.mark.parametrize("heading", FLOWS)
def test_a_call_enters_the_files_that_its_flow_names(comm, mpi_tmp_path, heading):
    verb = re.search(r"(\w+?)(?:_points)?\(", heading)[1]
    named = re.findall(r"`(pencils/[\w./]+\.py)", FLOWS[heading])
    mine, _ = trace(lambda: CALLS[verb](mpi_tmp_path))
    entered = set().union(*comm.allgather(mine))
    assert named
    assert [path for path in named if path not in entered] == []
