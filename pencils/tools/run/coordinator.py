"""How ranks end together: each reports to a coordinator, which decides and prints for all."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import resource
import secrets
import select
import selectors
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from struct import pack
from time import monotonic, sleep
from typing import Any, Literal, NoReturn

from mpi4py import MPI

from pencils.tools.run import report
from pencils.tools.run.report import CodePosition, RankEnding
from pencils.tools.run.watch import Watch
from simmpi.ending import INTERRUPTED

Message = dict[str, Any]
_AT_ONCE = 2**16
_CONNECT = 10.0  # seconds in which all ranks have to be connected
_GREETING = 1.0  # seconds in which a process that has connected has to send its rank
_LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915  # of Linux


class Channel:
    """A connected socket that carries lines of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()  # two threads of a process send
        self._incomplete = b""
        self.open = True

    def fileno(self) -> int:
        """Descriptor to wait for."""
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message; whether the connection is closed is found out when receiving."""
        with self._lock, suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[Message]:
        """Wait for messages and return them; `open` becomes False if the connection is closed."""
        try:
            data = self._socket.recv(_AT_ONCE)
        except OSError:
            data = b""
        self.open = bool(data)
        *lines, self._incomplete = (self._incomplete + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def connect(*, one_host: bool | None = None) -> tuple[Channel, dict[int, Channel]]:
    """Connect all ranks with rank 0. *Collective*.

    Returns a channel to the coordinator of this rank, and those of a coordinator on this rank: on
    rank 0 to all ranks, on others none. Where ranks cannot connect, for example because of a
    firewall between hosts, each rank has a coordinator for itself alone.
    """
    world = MPI.COMM_WORLD
    pair = socket.socketpair()
    own, channels = Channel(pair[0]), {world.rank: Channel(pair[1])}
    if world.size > 1:
        one_host = _on_one_host(world) if one_host is None else one_host
        others = _listen(world, one_host=one_host) if world.rank == 0 else _connect_to_root(world)
        if world.allreduce(others is not None, op=MPI.LAND) and others is not None:
            if world.rank > 0:
                return others[0], {}
            channels |= others
    return own, channels


def _on_one_host(world: MPI.Intracomm) -> bool:
    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    size = node.size
    node.Free()
    return size == world.size


def _listen(world: MPI.Intracomm, *, one_host: bool) -> dict[int, Channel] | None:
    """Send the address of rank 0 to the other ranks, and accept them; None if some do not come."""
    token = secrets.token_hex()
    _allow_connections(world.size)
    try:
        listener = socket.create_server((_LOOPBACK if one_host else "", 0), backlog=world.size)
    except OSError:
        world.bcast(None)
        return None
    with listener:
        hosts = [_LOOPBACK] if one_host else _addresses()
        world.bcast((hosts, listener.getsockname()[1], token))
        return _accept(listener, token, world.size)


def _allow_connections(number: int) -> None:
    """Raise the limit of open files, as far as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        most = soft + number if hard == resource.RLIM_INFINITY else min(soft + number, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _addresses() -> list[str]:
    """Names and addresses by which other hosts may reach this one."""
    name = socket.gethostname()
    found = {name: None, socket.getfqdn(name): None}
    with suppress(OSError):
        found |= dict.fromkeys(socket.gethostbyname_ex(name)[2])
    return list(found | dict.fromkeys(_numeric()))  # other hosts may not know the names


def _numeric() -> Iterator[str]:
    """Yield the IPv4 addresses of the network of this host, on Linux."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has none
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, pack("256s", name.encode()))
                address = socket.inet_ntoa(answer[20:24])
                if not address.startswith("127."):
                    yield address


def _accept(listener: socket.socket, token: str, size: int) -> dict[int, Channel] | None:
    deadline = monotonic() + _CONNECT
    found: dict[int, Channel] = {}
    with suppress(OSError):  # no rank connects any more
        while len(found) < size - 1:
            listener.settimeout(max(0.001, deadline - monotonic()))
            connection = listener.accept()[0]
            connection.settimeout(_GREETING)
            channel = Channel(connection)
            rank = _greeting(channel, token)
            connection.settimeout(None)
            if rank in range(1, size):
                found[rank] = channel
            else:
                channel.close()
    return found if len(found) == size - 1 else None


def _greeting(channel: Channel, token: str) -> int:
    """Return the rank that has connected; 0 if it is none of this job."""
    try:
        greeting = channel.receive()[0]
        known = secrets.compare_digest(str(greeting["token"]), token)
        return int(greeting["rank"]) if known else 0
    except (ValueError, LookupError, TypeError):
        return 0


def _connect_to_root(world: MPI.Intracomm) -> dict[int, Channel] | None:
    """Connect with rank 0."""
    address: tuple[list[str], int, str] | None = world.bcast(None)
    if address is None:
        return None
    hosts, port, token = address
    for host in hosts:
        with suppress(OSError):
            connection = socket.create_connection((host, port), _CONNECT / len(hosts))
            connection.settimeout(None)
            channel = Channel(connection)
            channel.send({"rank": world.rank, "token": token})
            return {0: channel}
    return None


SILENCE = 30.0  # seconds after which waits are reported if they have no limit
PATIENCE = 2.0  # seconds in which other ranks can fail, too, before the job is ended
PATIENCE_IF_AGREED = 10.0  # if the library has raised on all of them
_ANSWERS = 15.0  # seconds in which a rank has to report its position, or the limit of waits
_SOON = 2.0  # if the limit is shorter
_GRACE = 5.0  # seconds after which a rank that waits ends the job without the coordinator
_END = 30.0  # seconds in which the job has to end
_VERDICT = PATIENCE_IF_AGREED + 20  # seconds after which a rank that failed decides by itself
_SOONEST, _LATEST = 0.001, 0.05  # seconds between two polls of a rank that has ended


def join(timeout: float | None, *, one_host: bool | None = None) -> Channel:
    """Connect this rank with its coordinator. *Collective*; parameters as of both."""
    own, channels = connect(one_host=one_host)
    if channels:
        Coordinator(channels, MPI.COMM_WORLD.size, timeout).start()
    return own


class Coordinator(threading.Thread):
    """Find out whether all ranks have failed, or some, or none, and print it once.

    The channel to the rank of this process comes first. If some of the `size` ranks have no
    channel, a failure has to end the job for them.
    """

    def __init__(self, channels: dict[int, Channel], size: int, timeout: float | None) -> None:
        super().__init__(name="coordinator of ranks", daemon=True)
        self._channels = channels
        self._endings: dict[int, RankEnding] = {}
        self._positions: dict[int, CodePosition | str] = dict.fromkeys(channels, report.SILENT)
        self._size = size
        self._timeout = timeout
        self._selector = selectors.DefaultSelector()
        for rank, channel in channels.items():
            self._selector.register(channel, selectors.EVENT_READ, rank)
        self._deadline: float | None = None  # of the next action
        self._asked = False  # for positions
        self._waits: dict[int, float] = {}  # since when ranks wait, if waits have no limit
        self._moved = monotonic()  # when a rank has ended
        self._silent: Literal["no", "asked", "told"] = "no"  # whether they were asked, or told of

    def run(self) -> None:
        """Receive reports until all ranks have ended, or the job has to be ended."""
        while running := [
            r for r, c in self._channels.items() if c.open and r not in self._endings
        ]:
            answered = self._asked and all(self._positions[r] != report.SILENT for r in running)
            if answered or (self._deadline is not None and monotonic() >= self._deadline):
                if self._asked:
                    self._end_job()
                    return
                # They flush what they print before they answer, sooner than ranks that wait end the
                # job themselves.
                self._asked = True
                self._deadline = monotonic() + _longest_answer(self._timeout)
                self._ask(running)
            deadline = self._deadline or self._silence(running)
            wait = None if deadline is None else max(0.0, deadline - monotonic())
            for key, _ in self._selector.select(wait):
                self._read(key.data)
        self._leave()

    def _read(self, rank: int) -> None:
        channel = self._channels[rank]
        for message in channel.receive():
            if "ended" in message:
                ending = self._endings[rank] = RankEnding(**message["ended"])
                self._moved, self._silent = monotonic(), "no"
                if ending.status:
                    self._hurry(PATIENCE_IF_AGREED if ending.agreed else PATIENCE)
            else:
                self._positions[rank] = CodePosition(**message["place"])
                self._waits.pop(rank, None)
                if message["stuck"] and self._timeout is not None:
                    self._hurry(0.0)
                elif message["stuck"]:
                    self._waits[rank] = monotonic() - message["waited"]
                else:
                    self._silent = "no"
        if not channel.open:
            self._selector.unregister(channel)

    def _hurry(self, seconds: float) -> None:
        """Ask for positions after some time, or as planned if that is earlier."""
        if not self._asked:
            deadline = monotonic() + seconds
            self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)

    def _ask(self, running: list[int]) -> None:
        """Ask ranks for their positions."""
        for rank in running:
            self._channels[rank].send({"where": True})

    def _silence(self, running: list[int]) -> float | None:
        """Print where ranks wait when none computes any more; return when to look again.

        They are asked before: one that has begun to compute may not have been able to report it.
        """
        if len(self._channels) < self._size or not all(rank in self._waits for rank in running):
            return None
        due = max(self._moved, *(self._waits[rank] for rank in running)) + SILENCE
        if monotonic() < due:
            return due
        if self._silent == "told":
            return None
        if self._silent == "asked":
            self._silent = "told"
            _print(report.hang(self._endings, self._places(), SILENCE, ended=False))
            return None
        self._silent = "asked"
        self._waits.clear()
        self._ask(running)
        return None

    def _leave(self) -> None:
        """Let all ranks leave, each with its own status."""
        failed = any(ending.status for ending in self._endings.values())
        if failed and len(self._channels) < self._size:
            self._end_job()
            return
        _print(report.endings(self._endings, self._size))
        # The rank in this process is the last one: when it leaves, this thread ends with it.
        for rank, channel in reversed(self._channels.items()):
            if rank in self._endings:
                channel.send({"leave": self._endings[rank].status})

    def _places(self) -> report.Positions:
        """Return the positions of the ranks that have not reported how they ended."""
        return {
            rank: self._positions[rank] if channel.open else report.LOST
            for rank, channel in self._channels.items()
            if rank not in self._endings
        }

    def _end_job(self) -> None:
        positions = self._places()
        failed = [rank for rank, ending in self._endings.items() if ending.status]
        if not failed:
            _print(report.hang(self._endings, positions, self._timeout or 0.0))
            if len(self._channels) < self._size:
                sleep(PATIENCE)  # ranks without a channel print their positions themselves
            abort(1)
        _print(report.unfinished(self._endings, positions, self._size))
        # The main thread of that rank calls MPI_Abort, which all MPI libraries allow.
        self._channels[failed[0]].send({"abort": self._endings[failed[0]].status})
        sleep(_END)  # the other ranks wait as long as they are connected


class Member:
    """A rank, which reports to its coordinator how it ends, or that it waits."""

    def __init__(self, channel: Channel, watch: Watch, timeout: float | None) -> None:
        self._watch = watch
        self._timeout = timeout
        # Of waits that are reported; earlier than all ranks may have waited for `SILENCE`.
        self._limit = SILENCE / 4 if timeout is None else timeout
        self._pid = os.getpid()
        self._rank = MPI.COMM_WORLD.rank
        self._decided = threading.Event()
        self._verdict: Message = {}
        self._channel = channel
        threading.Thread(target=self._listen, name="watch", daemon=True).start()

    def end(self, ending: RankEnding) -> int:
        """Report how the program has ended, wait for the other ranks, and return the status.

        This may end the job instead.
        """
        if os.getpid() != self._pid:  # forked: a process that is no rank
            sys.stderr.write(ending.text)
            return ending.status
        _flush()
        ended = dataclasses.asdict(ending) | {"collectives": self._watch.collectives}
        self._channel.send({"ended": ended})
        try:
            self._wait(_VERDICT if ending.status else float("inf"))
        except KeyboardInterrupt:
            abort(INTERRUPTED)
        if ending.status and "leave" not in self._verdict:
            if not self._verdict:  # the coordinator has ended, or cannot run
                sys.stderr.write(f"pencils run: {ending.kind} on rank {self._rank}:\n{ending.text}")
                _flush()
            abort(ending.status)
        return ending.status

    def _wait(self, longest: float) -> None:
        waited, pause = 0.0, _SOONEST
        while waited < longest and not self._decided.wait(pause):
            waited += pause
            pause = min(2 * pause, _LATEST)
            if not MPI.Is_finalized():  # MPI may not have sent all messages of this rank yet
                MPI.COMM_SELF.Iprobe()

    def _listen(self) -> None:
        interval = SILENCE / 8 if self._timeout is None else min(0.5, self._timeout / 8)
        stuck, latest = False, float("inf")  # when to end the job, though the coordinator has not
        while not self._decided.is_set() and monotonic() < latest:
            ready, _, _ = select.select([self._channel], [], [], interval)
            for message in self._channel.receive() if ready else ():
                if "where" in message:
                    _flush()
                    self._report()
                else:
                    self._verdict = message
                    self._decided.set()
            if not self._channel.open:
                self._decided.set()
            elif stuck != (self._watch.waited() >= self._limit):
                stuck = self._report()
                if stuck and self._timeout is not None:
                    latest = min(latest, monotonic() + _longest_answer(self._timeout) + _GRACE)
        if self._decided.is_set():
            return
        # The process of the coordinator was stopped, or its host is cut off.
        _print(report.hang({}, {0: report.SILENT, self._rank: self._watch.place()}, self._limit))
        sleep(PATIENCE)  # other ranks print theirs
        threading.Timer(_GRACE, os._exit, [1]).start()  # MPI may not reach anything, either
        abort(1)

    def _report(self) -> bool:
        """Report the position, and whether this rank waits for too long, which is returned."""
        place, waited = dataclasses.asdict(self._watch.place()), self._watch.waited()
        stuck = waited >= self._limit
        self._channel.send({"place": place, "stuck": stuck, "waited": waited})
        return stuck


def _longest_answer(limit: float | None) -> float:
    """Return the seconds in which ranks have to report their positions, by the limit of waits."""
    return _ANSWERS if limit is None else min(_ANSWERS, max(_SOON, limit))


def abort(status: int) -> NoReturn:
    """End the whole job."""
    if not MPI.Is_finalized():
        MPI.COMM_WORLD.Abort(status)
    os._exit(status)  # some MPI libraries return from Abort in a thread that is not the main one


def _print(text: str) -> None:
    if text and sys.__stderr__ is not None:
        with suppress(OSError, ValueError):
            sys.__stderr__.write(text)
            sys.__stderr__.flush()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # none, broken, closed
            stream.flush()
