"""Time transposes and halos between hosts against the least time that their links need.

    make bench-hosts                # hosts that root makes of this machine; MPI=openmpi
    mpiexec -n 4 python -m mpi4py benchmarks/hosts.py --rate 500 --megabytes 1 10 100

The rate is what the link of each host moves each way, in Mbit/s. The least time is that of the
bytes that a host must send, or receive, over this link: both directions at once. A sample is the
time of the slowest rank. The table has the medians of the samples, divided by the least time: of
`pencils`, and of bare sockets which move the same bytes between the same ranks, in turn with it.
Sockets need more than the least time, too: each packet of 1448 bytes has headers of 66, and the
system needs time for it. The goal is 1.1, or 1.05 times as long as sockets where that is more.
The cores are those that this program uses on average, with its part of the system, of all ranks.
"""

import argparse
import fcntl
import selectors
import socket
import struct
from functools import partial
from importlib import import_module
from itertools import product
from statistics import median
from time import perf_counter, process_time

import numpy as np
from mpi4py import MPI

import pencils

timing = import_module("timing")
COMM = timing.COMM
print_on_root, slowest = timing.print_on_root, timing.slowest
ITEM = 8  # bytes of a point
GOAL, OVER_SOCKETS = 1.1, 1.05
SIOCGIFADDR = 0x8915  # of Linux: the address of an interface


def bytes_between_hosts(moved):
    """Most bytes that a host sends, or receives, if ``moved(source, target)`` points do."""
    names = COMM.allgather(MPI.Get_processor_name())
    sent, received = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for source, target in product(range(COMM.size), repeat=2):
        here, there = names[source], names[target]
        if here != there:
            sent[here] += ITEM * moved(source, target)
            received[there] += ITEM * moved(source, target)
    return max(*sent.values(), *received.values())


def transposition(nbytes):
    """Return a transpose of which a host sends about `nbytes`, and how many it sends."""
    rows = COMM.size * round((nbytes * 4 / ITEM) ** 0.5 / COMM.size)
    source = pencils.Pencil((rows, rows), decomp=0)
    target = source.with_(decomp=1)

    def moved(rank, peer):
        return (source.box(rank) & target.box(peer)).volume

    plan = pencils.Transposition(source, target, check=False)
    return plan, (pencils.ones(source), pencils.empty(target)), moved


def halo(nbytes):
    """Return a halo exchange of which a host sends about `nbytes`, and how many it sends."""
    points = round(nbytes / 2 / ITEM)
    pencil = pencils.Pencil((2 * COMM.size, points), decomp=0, periodic=True)
    u = pencils.ones(pencil, halo=[(1, 1), (0, 0)])

    def moved(rank, peer):
        return points * sum((rank + step) % COMM.size == peer for step in (-1, 1))

    return pencils.HaloExchange(u, check=False), (u,), moved


class Sockets:
    """The same bytes between hosts, by a connection for each pair of ranks. *Collective*."""

    def __init__(self, moved, interface):
        names = COMM.allgather(MPI.Get_processor_name())
        far = [rank for rank in range(COMM.size) if names[rank] != names[COMM.rank]]
        listener = socket.create_server(("", 0), backlog=COMM.size)
        ports = COMM.allgather((address_of(interface), listener.getsockname()[1]))
        connections = {}
        for peer in (peer for peer in far if peer > COMM.rank):
            connections[peer] = socket.create_connection(ports[peer])
            connections[peer].sendall(bytes([COMM.rank]))
        for _ in (peer for peer in far if peer < COMM.rank):
            connection, _ = listener.accept()
            connections[connection.recv(1)[0]] = connection
        listener.close()
        self.links = []
        for peer, connection in connections.items():
            connection.settimeout(0)
            sent = np.ones(ITEM * moved(COMM.rank, peer), np.uint8)
            self.links.append((connection, sent, np.ones(ITEM * moved(peer, COMM.rank), np.uint8)))

    def __call__(self):
        with selectors.DefaultSelector() as selector:
            both = selectors.EVENT_READ, selectors.EVENT_WRITE
            for connection, sent, received in self.links:
                selector.register(connection, sum(both), [received.data, sent.data])
            while selector.get_map():
                for key, events in selector.select(0):  # as MPI libraries do
                    move(key.fileobj, key.data, events)
                    wanted = sum(way for way, left in zip(both, key.data, strict=True) if left)
                    if not wanted:
                        selector.unregister(key.fileobj)
                    elif wanted != key.events:
                        selector.modify(key.fileobj, wanted, key.data)

    def close(self):
        for connection, *_ in self.links:
            connection.close()


def move(connection, left, events):
    """Receive into what is left of one array, and send what is left of another one."""
    received, sent = left
    if received and events & selectors.EVENT_READ:
        left[0] = received[connection.recv_into(received) :]
    if sent and events & selectors.EVENT_WRITE:
        left[1] = sent[connection.send(sent) :]


def address_of(interface):
    """Return the address of an interface of this host."""
    request = struct.pack("256s", interface.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        found = fcntl.ioctl(any_socket.fileno(), SIOCGIFADDR, request)
    return socket.inet_ntoa(found[20:24])


VERBS = {"transpose": transposition, "halo": halo}


def measure(verb, nbytes, options):
    """Print a row of the table. *Collective*."""
    plan, fields, moved = VERBS[verb](nbytes)
    call, sockets = partial(plan, *fields), Sockets(moved, options.interface)
    least = bytes_between_hosts(moved) * 8 / (1e6 * options.rate)
    call()  # allocates
    sockets()
    repeat = max(3, min(options.repeat, round(options.seconds / least)))
    samples = [(slowest(call), slowest(sockets)) for _ in range(repeat)]
    begin, busy = perf_counter(), process_time()
    call()
    cores = COMM.allreduce(process_time() - busy) / (perf_counter() - begin)
    sockets.close()
    plan.free()
    ours, bare = (median(times) / least for times in zip(*samples, strict=True))
    text = "yes" if ours <= GOAL else "as sockets" if ours <= OVER_SOCKETS * bare else "no"
    print_on_root(
        f"{verb:10} {nbytes / 1e6:6g} {1e3 * least:9.1f} {ours:8.2f} {bare:8.2f} "
        f"{ours / bare:6.2f} {cores:6.2f}  {text}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=1000, help="Mbit/s of each link, each way")
    parser.add_argument(
        "--megabytes", type=float, nargs="*", default=[1, 10, 100], help="of each host"
    )
    parser.add_argument("--repeat", type=int, default=9, help="most samples of each case")
    parser.add_argument("--seconds", type=float, default=4, help="for more than three samples")
    parser.add_argument("--interface", default="eth0", help="of the sockets")
    options = parser.parse_args()
    library = MPI.Get_library_version().split(",")[0].splitlines()[0]
    hosts = len(set(COMM.allgather(MPI.Get_processor_name())))
    print_on_root(f"{COMM.size} ranks on {hosts} hosts, {options.rate:g} Mbit/s, {library}")
    if hosts == 1:
        print_on_root("nothing to measure: all ranks are on one host")
        return
    print_on_root(
        f"{'verb':10} {'MB':>6} {'least ms':>9} {'pencils':>8} {'sockets':>8} "
        f"{'ratio':>6} {'cores':>6}  goal met"
    )
    for megabytes, verb in product(options.megabytes, VERBS):
        measure(verb, 1e6 * megabytes, options)


if __name__ == "__main__":
    main()
