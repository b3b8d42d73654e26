"""Several hosts of one machine: the script `hosts.py`, where it can make them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HOSTS = Path(__file__).with_name("hosts.py")

PLACES = """
from mpi4py import MPI
from pencils.comm.topology import topology_of
comm = MPI.COMM_WORLD
topology = topology_of(comm)
comm.Bcast(bytearray(10**6))
for place in comm.gather((topology.node.rank, topology.nodes, MPI.Get_processor_name())) or ():
    print(*place)
"""


ENV = os.environ | {"PENCILS_HOSTS": str(100 + os.getpid() % 100)}  # that no other run uses


def command(*words):
    return [sys.executable, HOSTS, *map(str, words)]


def hosts(*words):
    return subprocess.run(
        command(*words), env=ENV, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def two_hosts():
    if not Path(sys.executable).with_name("mpiexec").exists():
        pytest.skip("needs an MPI library that was installed as a wheel")
    missing = hosts("check")
    if missing.returncode:
        pytest.skip(missing.stderr.strip())
    assert hosts("up", 2).returncode == 0
    yield
    assert hosts("down").returncode == 0


@pytest.mark.usefixtures("two_hosts")
def test_ranks_of_two_hosts(tmp_path):
    program = tmp_path / "places.py"
    program.write_text(PLACES)
    done = hosts("run", "-n", 4, "--per-host", 2, sys.executable, program)
    assert done.returncode == 0, done.stderr
    ranks, nodes, names = zip(*map(str.split, done.stdout.splitlines()), strict=True)
    assert ranks == ("0", "1", "0", "1")
    assert nodes == ("2",) * 4
    assert names[0] == names[1] != names[2] == names[3]
    sent = [int(line.split()[4]) for line in hosts("bytes").stdout.splitlines()]
    assert 10**6 < max(sent) < 2 * 10**6
    assert min(sent) < 10**5
    # A job that is ended leaves no process.
    begun = tmp_path / "begun"
    program = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(60)"
    job = subprocess.Popen(command("run", "-n", 2, sys.executable, "-c", program), env=ENV)
    while not begun.exists():
        time.sleep(0.05)
    assert hosts("cut", 2).returncode == 0  # mpiexec would wait for it
    job.terminate()
    assert job.wait(60) == 128 + signal.SIGTERM
    for host in 1, 2:
        name = f"pencils{ENV['PENCILS_HOSTS']}-{host}"
        left = subprocess.run(["ip", "netns", "pids", name], capture_output=True, check=True)
        assert not left.stdout
