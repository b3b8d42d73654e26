"""Compare the model of `node_routes.py` with another simulator, SimGrid.

    python benchmarks/simgrid/routes.py      # apt-get install simgrid libsimgrid-dev

A C program does what the ranks of both routes do, and SimGrid simulates it with the parameters of
each machine: the overhead of a rank for each message, and links from each node to a switch, which
moves any number of messages at once, each of which gets its share. Ranks sleep while they would
pack or unpack, and meet in barriers of the simulator. The table has how many times faster one
message for each pair of nodes is, by the model and by SimGrid.
"""

import runpy
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="row" prefix="node-" suffix="" radical="0-{last}" speed="1Gf" core="{on_node}"
           bw="{bandwidth}Bps" lat="{latency}s" sharing_policy="SPLITDUPLEX"/>
</platform>
"""
FLUID = {  # links share their bandwidth, and nothing else: no corrections for clusters with TCP
    "network/model": "CM02",
    "network/crosstraffic": "0",
    "network/TCP-gamma": "0",
    "network/weight-S": "0",
    "smpi/simulate-computation": "no",
    "smpi/async-small-thresh": "8193",  # bytes of the smallest message that is not eager
    "smpi/send-is-detached-thresh": "8193",
}
ON_NODE = 8
# Ranks of a row, and for how many of the machines: others take many minutes.
ROWS = {64: 3, 128: 3, 256: 1}
PIECES = [8, 64, 256, 1024]


class Simulator:
    """Times of messages by SimGrid, for one machine and one size of a row."""

    def __init__(self, folder, machine, ranks, on_node):
        self.folder, self.ranks, self.on_node = Path(folder), ranks, on_node
        names = "\n".join(f"node-{rank // on_node}" for rank in range(ranks))
        (self.folder / "hosts").write_text(names + "\n")
        half = machine.latency / 2  # of each of the two links
        text = {"last": ranks // on_node - 1, "on_node": on_node, "latency": half}
        text["bandwidth"] = 1 / machine.gap_per_byte
        (self.folder / "platform.xml").write_text(PLATFORM.format(**text))
        most = 8 * 1024
        each, byte = machine.overhead, machine.overhead_per_byte
        overhead = f"0:{each}:{byte};{most}:{each + byte * most}:0"
        self.settings = FLUID | {"smpi/ois": overhead}

    def seconds(self, route, work):
        settings = [f"--cfg={name}:{value}" for name, value in self.settings.items()]
        files = ["-hostfile", "hosts", "-platform", "platform.xml"]
        command = ["smpirun", "-np", str(self.ranks), *files, *settings, "--log=root.thres:error"]
        meetings = work.meetings or [0]
        pauses = meetings[0], meetings[-1]  # of the first stage, and of each later one
        numbers = self.on_node, work.nbytes, work.copies, *pauses, *work.stages
        program = [str(self.folder / "routes"), route, *map(str, numbers)]
        done = subprocess.run(
            command + program, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{' '.join(command + program)}\n{done.stderr}")
        return float(done.stdout.split()[-1])

    def gain(self, machine, nbytes):
        """Return how many times faster gathered pieces are."""
        case = self.ranks, self.on_node, nbytes
        direct = self.seconds("direct", machine.direct_work(*case))
        return direct / self.seconds("gathered", machine.gathered_work(*case))


@contextmanager
def prepared(machine, ranks, on_node):
    """Compile the program, and yield the simulator of a row."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = ["smpicc", "-O1", str(HERE / "routes.c"), "-o", "routes"]
        subprocess.run(compiled, cwd=folder, check=True)
        yield Simulator(folder, machine, ranks, on_node)


def main():
    missing = [name for name in ("smpicc", "smpirun") if shutil.which(name) is None]
    if missing:
        print(f"nothing is compared: no {missing[0]}; apt-get install simgrid libsimgrid-dev")
        return
    machines = runpy.run_path(str(HERE.with_name("node_routes.py")))["MACHINES"]
    print("gain by the model / gain by SimGrid; bytes of a piece")
    print("ranks" + "".join(f"{nbytes:>14}" for nbytes in PIECES))
    rows = [(machine, ranks) for ranks, most in ROWS.items() for machine in machines[:most]]
    for machine, ranks in rows:
        with prepared(machine, ranks, ON_NODE) as simulator:
            gains = [
                (machine.gain(ranks, ON_NODE, nbytes), simulator.gain(machine, nbytes))
                for nbytes in PIECES
            ]
        cells = [f"{model:7.2f} /{simulated:5.2f}" for model, simulated in gains]
        print(f"{ranks:5}{''.join(cells)}  {machine.name}", flush=True)


if __name__ == "__main__":
    main()
