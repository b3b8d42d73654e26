"""Replay a row of the process grid by a LogGP model: a message per rank pair, or per node pair.

    python benchmarks/node_routes.py
    python benchmarks/node_routes.py --plot routes.svg   # needs matplotlib

Each rank of the row has one piece for every other one, as in a transpose. Directly, every piece to
another node is a message. Gathered, all pieces from one node to another are one message: ranks pack
into shared memory, meet, one rank of the node sends, and after a second meeting all unpack. Many
messages are divided into stages: one is packed, or unpacked, while others travel. The table shows
how many times faster that is. Pieces within a node take the same time in both cases, and are left
out.

Messages leave a node through one adapter, which takes the gap of a message, or of its bytes, for
each. All nodes do the same, so one of them is replayed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

from pencils.comm.memory import ALONE, round_up
from pencils.comm.methods.gathered import in_stages

KIB = 1024


@dataclass(frozen=True)
class Machine:
    """Parameters of LogGP, in seconds.

    The overhead is what one rank needs to send a message of no bytes and to receive another one,
    and the same for each byte; the gaps are those of the adapters of a node.
    """

    name: str
    overhead: float
    overhead_per_byte: float
    gap: float
    gap_per_byte: float
    latency: float
    # Latency of shared memory: osu_latency of 8 bytes in github.com/ofiwg/libfabric/pull/8680.
    meeting: float = 0.24e-6
    # Python in this library for the meeting of one more stage: measured for a rank alone on a node.
    call: float = 1.4e-6
    # Packing, or unpacking, of a piece by this library, and of its bytes by a busy node; both
    # routes do the same.
    copy: float = 20e-9
    copy_per_byte: float = 1 / 4e9

    def copies(self, nbytes: int) -> float:
        """Return how long a rank packs, or unpacks, a piece."""
        return self.copy + self.copy_per_byte * nbytes

    def least(self, ranks: int, on_node: int, nbytes: int) -> float:
        """Return how long any route takes: bytes that leave a node, and one latency."""
        return on_node * (ranks - on_node) * nbytes * self.gap_per_byte + self.latency

    def direct_work(self, ranks: int, on_node: int, nbytes: int) -> Work:
        """Return what a node does with one message for each piece.

        Small buffers are packed as a whole, and unpacked when all has come.
        """
        far = ranks - on_node
        alone = far * round_up(nbytes) >= ALONE
        stages = [on_node] * far if alone else [on_node * far]
        return Work(on_node, stages, nbytes, self.copies(nbytes) / on_node)

    def gathered_work(self, ranks: int, on_node: int, nbytes: int) -> Work:
        """Return what a node does with one message from each node to each other one."""
        bundle, others = on_node**2 * nbytes, ranks // on_node - 1
        stages = [len(stage) for stage in in_stages(range(others), others * bundle)]
        meeting = ceil(log2(on_node)) * self.meeting
        meetings = [meeting] + [meeting + self.call] * (len(stages) - 1)
        return Work(on_node, stages, bundle, on_node * self.copies(nbytes), meetings)

    def direct(self, ranks: int, on_node: int, nbytes: int) -> float:
        """Return how long a row takes with one message for each piece."""
        return self.direct_work(ranks, on_node, nbytes).seconds(self)

    def gathered(self, ranks: int, on_node: int, nbytes: int) -> float:
        """Return how long it takes with one message from each node to each other one."""
        return self.gathered_work(ranks, on_node, nbytes).seconds(self)

    def gain(self, ranks: int, on_node: int, nbytes: int) -> float:
        """Return how many times faster gathered pieces are."""
        return self.direct(ranks, on_node, nbytes) / self.gathered(ranks, on_node, nbytes)

    def most(self, ranks: int, on_node: int, nbytes: int) -> float:
        """Return how many times faster than direct messages any route is at most."""
        return self.direct(ranks, on_node, nbytes) / self.least(ranks, on_node, nbytes)


@dataclass(frozen=True)
class Work:
    """What the ranks of a node do.

    In each stage they pack, meet, and send a number of messages; later they wait for as many, meet,
    and unpack. Ranks take turns as senders. Each packs, and unpacks, for `copies` seconds for each
    message of the node. Meetings take the given times; without any, ranks do not meet.
    """

    ranks: int
    stages: Sequence[int]
    nbytes: int
    copies: float
    meetings: Sequence[float] = ()

    def seconds(self, machine: Machine) -> float:
        """Replay the work."""
        busy, posted = self._send(machine)
        step = max(machine.gap, machine.gap_per_byte * self.nbytes)
        adapter = 0.0
        for stage, count in enumerate(self.stages):
            for ready in sorted(posted[stage]):
                adapter = max(adapter, ready) + step
            busy = [max(until, adapter + machine.latency) for until in busy]
            busy = [until + count * self.copies for until in self._met(busy, stage)]
        return max(busy)

    def _send(self, machine: Machine) -> tuple[list[float], list[list[float]]]:
        """Return when each rank has sent all, and when the messages of each stage can leave.

        Messages that are not eager leave when their receiver, which has begun to receive them,
        calls MPI again: after it has packed the next stage.
        """
        overhead = machine.overhead + machine.overhead_per_byte * min(self.nbytes, EAGER)
        busy = [0.0] * self.ranks
        posted: list[list[float]] = []
        sender = 0
        for stage, count in enumerate(self.stages):
            busy = [until + count * self.copies for until in busy]
            if stage and self.nbytes > EAGER:
                posted[-1] = [max(busy)] * len(posted[-1])
            busy = self._met(busy, stage)
            posted.append([])
            for _ in range(count):
                busy[sender] += overhead
                posted[-1].append(busy[sender])
                sender = (sender + 1) % self.ranks
        return busy, posted

    def _met(self, busy: list[float], stage: int) -> list[float]:
        """Until when ranks are busy after they have met."""
        return [max(busy) + self.meetings[stage]] * self.ranks if self.meetings else busy


# Bytes of larger messages are not copied by the sender.
EAGER = 8 * KIB

MACHINES = [
    # github.com/bienz2/BenchPress (Bienz, Olson, Gropp, Lockhart: Modeling Data Movement
    # Performance on Heterogeneous Architectures, arXiv 2010.10378), files in benchmarks/:
    # summit/10_18_20/mult_pong.350012.out, from 1 to 40 messages of a rank: 1.95 to 45.9 us for 8
    # bytes, 4.23 to 96.5 us for 1 KiB; lassen/04_14_21/maxrate.2427559.out: 255 us for 64 KiB of
    # each of 40 ranks. Two adapters of 150 million messages/s (see the next one).
    Machine("Summit, Lassen: two EDR InfiniBand", 1.13e-6, 1.21e-9, 1 / 300e6, 1 / 10.3e9, 0.8e-6),
    # osu_bibw in github.com/open-mpi/ompi/issues/3216: 2.60 MB/s for 1 byte, 1897 for 1 KiB, 24700
    # for 4 MiB, in both directions together. 150 million messages/s: O. Olusanya, M. Hussain,
    # Comparing FDR and EDR InfiniBand, Dell, 2016. The latency is of no influence.
    Machine("ConnectX-5: EDR InfiniBand", 0.77e-6, 0.30e-9, 1 / 150e6, 1 / 12.35e9, 0.8e-6),
    # osu_bibw on a BullSequana XH2000, github.com/openucx/ucx/issues/7245: 5.95 MB/s for 1 byte,
    # 3316 for 1 KiB, 24610 for 4 MiB. Messages per second and latency as before.
    Machine("ConnectX-6: HDR100 InfiniBand", 0.336e-6, 0.275e-9, 1 / 150e6, 1 / 12.3e9, 0.8e-6),
]
ON_NODE = [8, 32]
RANKS = [64, 256, 1024, 4096]
PIECES = [8, 64, 256, KIB, 4 * KIB, 64 * KIB]


def print_table() -> None:
    """Print the gain for each machine, ranks of the row and on each node, and bytes of a piece."""
    print("gain: time of a message per rank pair / time of a message per node pair;")
    print("in brackets that of the fastest route possible: a node's bytes, and one latency")
    for machine in MACHINES:
        print(f"\n{machine.name}\non node  ranks" + "".join(f"{size:>13} B" for size in PIECES))
        for on_node in ON_NODE:
            for ranks in RANKS:
                cases = [(ranks, on_node, nbytes) for nbytes in PIECES]
                cells = [
                    f"{machine.gain(*case):7.2f} ({machine.most(*case):5.1f})" for case in cases
                ]
                print(f"{on_node:7} {ranks:6} " + " ".join(cells))


def plot(path: str) -> None:
    """Draw the gain over the size of a piece, for rows of 1024 ranks."""
    from matplotlib import pyplot as plt

    sizes = [2**power for power in range(3, 17)]
    plt.rcParams["svg.fonttype"] = "none"  # text, not outlines of letters
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for number, machine in enumerate(MACHINES):
        for on_node, style in zip(ON_NODE, ("-", "--"), strict=True):
            gains = [machine.gain(1024, on_node, nbytes) for nbytes in sizes]
            label = f"{machine.name}, {on_node} ranks on a node"
            axes.semilogx(sizes, gains, style, color=f"C{number}", label=label, base=2)
    axes.axhline(1, color="gray", linewidth=0.8)
    axes.set_ylim(0, None)
    axes.set_xlabel("bytes of a piece")
    axes.set_ylabel("gain of one message for each pair of nodes")
    axes.legend(fontsize="small")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plot", metavar="FILE", help="also draw rows of 1024 ranks")
    arguments = parser.parse_args()
    print_table()
    if arguments.plot:
        plot(arguments.plot)


if __name__ == "__main__":
    main()
