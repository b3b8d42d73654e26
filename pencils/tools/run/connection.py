"""Connections between the ranks of a job beside MPI, which the program may be waiting in."""

from __future__ import annotations

import fcntl
import json
import resource
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from struct import pack
from time import monotonic
from typing import Any

from mpi4py import MPI

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
