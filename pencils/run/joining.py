"""How the ranks of a job come to hear of each other beside MPI."""

from __future__ import annotations

import resource
import secrets
import socket
from contextlib import suppress
from time import monotonic

from mpi4py import MPI

from pencils.run.channel import Channel
from pencils.run.coordinator import Coordinator

_CONNECT = 10.0  # seconds in which all ranks have to be connected
_GREETING = 1.0  # seconds in which one that has connected has to name itself
_LOOPBACK = "127.0.0.1"


def join(timeout: float | None, *, one_host: bool | None = None) -> Channel:
    """Connect this rank with the coordinator, which lives on rank 0. *Collective*.

    Where ranks cannot connect, for example because of a firewall between hosts, each has a
    coordinator of its own, which does not hear of the others.

    Parameters
    ----------
    timeout : float or None
        After how many seconds ranks report that they wait.
    one_host : bool, optional
        Whether all ranks are on one host; default: look.
    """
    world = MPI.COMM_WORLD
    ends = socket.socketpair()
    own, channels = Channel(ends[0]), {world.rank: Channel(ends[1])}
    if world.size > 1:
        one_host = _on_one_host(world) if one_host is None else one_host
        others = _invite(world, one_host=one_host) if world.rank == 0 else _connect(world)
        if world.allreduce(others is not None, op=MPI.LAND) and others is not None:
            if world.rank > 0:
                return others[0]
            channels |= others
    Coordinator(channels, world.size, timeout).start()
    return own


def _on_one_host(world: MPI.Intracomm) -> bool:
    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    size = node.size
    node.Free()
    return size == world.size


def _invite(world: MPI.Intracomm, *, one_host: bool) -> dict[int, Channel] | None:
    """Tell the other ranks where to connect, and wait for them; None if some do not."""
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
    """Names and numbers under which other hosts may know this one."""
    name = socket.gethostname()
    found = {name: None, socket.getfqdn(name): None}
    with suppress(OSError):
        found |= dict.fromkeys(socket.gethostbyname_ex(name)[2])
    return list(found)


def _accept(listener: socket.socket, token: str, size: int) -> dict[int, Channel] | None:
    deadline = monotonic() + _CONNECT
    found: dict[int, Channel] = {}
    with suppress(OSError):  # nobody comes any more
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


def _connect(world: MPI.Intracomm) -> dict[int, Channel] | None:
    """Connect with rank 0."""
    invitation: tuple[list[str], int, str] | None = world.bcast(None)
    if invitation is None:
        return None
    hosts, port, token = invitation
    for host in hosts:
        with suppress(OSError):
            connection = socket.create_connection((host, port), _CONNECT / len(hosts))
            connection.settimeout(None)
            channel = Channel(connection)
            channel.send({"rank": world.rank, "token": token})
            return {0: channel}
    return None
