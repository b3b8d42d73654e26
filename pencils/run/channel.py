"""Messages between the processes of a job beside MPI, which may be what they wait in."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from typing import Any

Message = dict[str, Any]
_AT_ONCE = 2**16


class Channel:
    """One end of a connection that carries lines of JSON.

    Parameters
    ----------
    connection : socket.socket
        Connected to the other end.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()  # two threads of a process send
        self._begun = b""
        self.open = True

    def fileno(self) -> int:
        """Descriptor to wait for."""
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message; if there is no other end any more, that is noticed when receiving."""
        with self._lock, suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[Message]:
        """Receive what is there, once there is something; at the end `open` becomes False."""
        try:
            data = self._socket.recv(_AT_ONCE)
        except OSError:
            data = b""
        self.open = bool(data)
        *lines, self._begun = (self._begun + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
