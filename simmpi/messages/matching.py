"""Point-to-point messages: sends and receives that wait for each other, and how they match."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from simmpi.constants import ANY_SOURCE, ANY_TAG, PROC_NULL
from simmpi.errors import MismatchError, UsageError
from simmpi.exceptions import ERR_TRUNCATE, MPIError
from simmpi.messages.operation import Operation, Status
from simmpi.ranks import Waiting
from simmpi.scheduler import Scheduler

if TYPE_CHECKING:
    from simmpi.types.buffers import Buffer
    from simmpi.types.memory import Bytes
    from simmpi.world import Context

# Without a seed, sends of at most this many bytes complete before they are received.
EAGER_BYTES = 2**16
STANDARD, SYNCHRONOUS, BUFFERED, READY = "standard", "synchronous", "buffered", "ready"

_order = count()


class Sending(Operation):
    """A send: of a buffer, or of bytes."""

    def __init__(
        self,
        call: str,
        context: Context,
        dest: int,
        tag: int,
        content: Buffer | bytes,
        mode: str = STANDARD,
        types: Buffer | None = None,  # that bytes have, if they are no object
    ) -> None:
        world = context.world
        super().__init__(world, call)
        self.context = context
        self.source = context.number_of(self.rank)
        self.dest, self.tag = dest, tag
        self.buffer = None if isinstance(content, bytes) else content
        self.types = self.buffer or types
        self.data: Bytes = (
            np.frombuffer(content, np.uint8) if isinstance(content, bytes) else content.pack()
        )
        self.order = next(_order)
        self.matched = dest == PROC_NULL
        self.eager = mode == BUFFERED or (
            mode == STANDARD and _is_eager(world.scheduler, self.data)
        )
        if not self.matched:
            box = mailbox_of(context, dest)
            if mode == READY and box.receive_for(self) is None:
                world.scheduler.fail_with(
                    UsageError,
                    f"{call} to rank {dest} with tag {tag}: a ready send needs a receive that "
                    "has been posted; use a standard send",
                )
            box.deliver(self)

    def done(self) -> bool:
        """Whether the buffer may be used again."""
        return self.matched or self.eager

    def waiting(self) -> Waiting:
        """Describe what is waited for."""
        return Waiting(self.call, self.text, lambda: [self.context.ranks[self.dest]])

    def text(self) -> str:
        """Describe the message."""
        return f"to rank {self.dest} with tag {self.tag} on {self.context.name}"

    def finish(self, status: Status | None) -> None:
        """Check that the buffer has not changed."""
        buffer = self.buffer if self.world.strict else None
        if buffer is not None and not np.array_equal(buffer.pack(), self.data):
            self.world.scheduler.fail_with(
                UsageError,
                f"{self.call} ({self.text()}): the program changed the buffer before the send "
                "was complete; wait for it first, or send a copy",
            )
        if status is not None:
            self.describe(status)

    def cancel(self) -> None:
        """Remove the message, if it was not received."""
        if not self.matched and mailbox_of(self.context, self.dest).remove(self):
            self.matched = self.cancelled = True


class Receiving(Operation):
    """A receive in a buffer, or of bytes of any number: then `buffer` is None."""

    def __init__(
        self, call: str, context: Context, source: int, tag: int, buffer: Buffer | None
    ) -> None:
        super().__init__(context.world, call)
        self.context = context
        self.source, self.tag = source, tag
        self.buffer = buffer
        self.order = next(_order)
        self.message: Sending | None = None
        self.matched = source == PROC_NULL
        self.before: Bytes | None = None
        if buffer is not None and self.world.strict and not self.matched:
            self.before = buffer.pack()
            buffer.poison()
        if not self.matched:
            mailbox_of(context, context.number_of(self.rank)).post(self)

    def done(self) -> bool:
        """Whether a message has arrived."""
        return self.matched

    def waiting(self) -> Waiting:
        """Describe what is waited for."""
        return Waiting(self.call, self.text, self._missing)

    def text(self) -> str:
        """Describe the message."""
        source = "any rank" if self.source == ANY_SOURCE else f"rank {self.source}"
        tag = "any tag" if self.tag == ANY_TAG else f"tag {self.tag}"
        return f"from {source} with {tag} on {self.context.name}"

    def _missing(self) -> list[int]:
        if self.source != ANY_SOURCE:
            return [self.context.ranks[self.source]]
        return [rank for rank in self.context.ranks if rank != self.rank.number]

    def match(self, message: Sending) -> None:
        """Take a message; both sides can continue."""
        self.message = message
        self.matched = message.matched = True
        for side in (self, message):
            if side.detached:
                side.complete()
        self.world.scheduler.wake(self.rank.number)
        self.world.scheduler.wake(message.rank.number)

    def finish(self, status: Status | None) -> None:
        """Write the data to the buffer."""
        message, buffer = self.message, self.buffer
        if buffer is not None and self.before is not None and not buffer.is_poisoned():
            self.world.scheduler.fail_with(
                UsageError,
                f"{self.call} ({self.text()}): the program changed the buffer before the "
                "receive was complete; wait for it first",
            )
        if status is not None:
            self.describe(status)
        if message is None:  # from PROC_NULL, or cancelled
            if buffer is not None and self.before is not None:
                buffer.unpack(self.before)
            return
        data = message.data
        self._check_types(message)
        if buffer is None:
            self.result = data
            return
        if len(data) > buffer.nbytes:
            if self.before is not None:
                buffer.unpack(self.before)
            raise MPIError(
                ERR_TRUNCATE,
                f"{self.call} ({self.text()}): the message from rank {message.source} with tag "
                f"{message.tag} has {len(data)} bytes, the buffer {buffer.nbytes}; pass a buffer "
                "that is as long as the message, or longer",
            )
        if self.before is not None and len(data) < buffer.nbytes:
            data = np.concatenate([data, self.before[len(data) :]])
        buffer.unpack(data)

    def describe(self, status: Status) -> None:
        """Set source, tag and number of bytes."""
        if self.message is not None:
            status.set(self.message.source, self.message.tag, len(self.message.data))
        else:
            status.set(PROC_NULL, ANY_TAG, 0, cancelled=self.cancelled)

    def _check_types(self, message: Sending) -> None:
        if not self.world.strict or same_types(message.types, self.buffer):
            return
        rule = "both must have the same types"
        if message.types is None or self.buffer is None:
            rule = "uppercase methods transfer memory, lowercase ones objects: use one of the two"
        self.world.scheduler.fail_with(
            MismatchError,
            f"rank {message.source} sends {_kind_of(message.types)} by {message.call}, rank "
            f"{self.context.number_of(self.rank)} receives {_kind_of(self.buffer)} by "
            f"{self.call} ({self.text()}); {rule}",
        )

    def cancel(self) -> None:
        """Give up, if no message was matched."""
        if not self.matched:
            mailbox_of(self.context, self.context.number_of(self.rank)).withdraw(self)
            self.matched = self.cancelled = True


class Exchange(Operation):
    """A send and a receive that one request completes."""

    def __init__(self, call: str, send: Sending, receive: Receiving) -> None:
        super().__init__(send.world, call)
        self.send, self.receive = send, receive
        for part in (send, receive):
            self.rank.operations.pop(part, None)

    def done(self) -> bool:
        """Whether both are done."""
        return self.send.done() and self.receive.done()

    def waiting(self) -> Waiting:
        """Describe what is waited for."""
        return (self.send if self.receive.done() else self.receive).waiting()

    def text(self) -> str:
        """Describe both messages."""
        return f"{self.send.text()}, {self.receive.text()}"

    def finish(self, status: Status | None) -> None:
        """Complete both."""
        self.send.complete()
        self.receive.complete(status)

    def detach(self) -> None:
        """Let both complete by themselves."""
        self.rank.operations.pop(self, None)
        self.send.detach()
        self.receive.detach()

    def describe(self, status: Status) -> None:
        """Set the status of the receive."""
        self.receive.describe(status)


class Mailbox:
    """Messages to one rank that no receive has matched, and receives that no message has."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.probing = False  # whether the rank waits for any message
        self._arrived: dict[tuple[int, int], deque[Sending]] = {}
        self._posted: dict[tuple[int, int], deque[Receiving]] = {}
        self._taken: dict[Sending, None] = {}  # by `Mprobe`, and not received yet

    def deliver(self, message: Sending) -> None:
        """Match a message with the receive that was posted first, or keep it."""
        receive = self.receive_for(message)
        if receive is None:
            self._arrived.setdefault((message.source, message.tag), deque()).append(message)
            if self.probing:
                self._scheduler.wake(message.context.ranks[message.dest])
            return
        self.withdraw(receive)
        receive.match(message)

    def post(self, receive: Receiving) -> None:
        """Match a receive with a message, or keep it."""
        message = self.find(receive.source, receive.tag)
        if message is None:
            self._posted.setdefault((receive.source, receive.tag), deque()).append(receive)
            return
        self.remove(message)
        receive.match(message)

    def find(self, source: int, tag: int) -> Sending | None:
        """Find a message: the first of its source; the seed chooses the source."""
        if source != ANY_SOURCE and tag != ANY_TAG:
            queue = self._arrived.get((source, tag))
            return queue[0] if queue else None
        first: dict[int, Sending] = {}
        for (sender, number), queue in self._arrived.items():
            if source in (ANY_SOURCE, sender) and tag in (ANY_TAG, number):
                known = first.get(sender)
                if known is None or queue[0].order < known.order:
                    first[sender] = queue[0]
        found = sorted(first.values(), key=lambda message: message.order)
        return found[self._scheduler.choose(len(found))] if found else None

    def receive_for(self, message: Sending) -> Receiving | None:
        """Find the receive that waits for such a message: the one that was posted first."""
        source, tag = message.source, message.tag
        keys = (source, tag), (source, ANY_TAG), (ANY_SOURCE, tag), (ANY_SOURCE, ANY_TAG)
        queues = [self._posted[key] for key in keys if key in self._posted]
        return min((queue[0] for queue in queues), key=lambda each: each.order, default=None)

    def remove(self, message: Sending) -> bool:
        """Remove a message that was not received; return whether it was there."""
        return _remove(self._arrived, (message.source, message.tag), message)

    def withdraw(self, receive: Receiving) -> bool:
        """Remove a receive that was not matched; return whether it was there."""
        return _remove(self._posted, (receive.source, receive.tag), receive)

    def take(self, message: Sending) -> None:
        """Keep a message for the receive that names it."""
        self.remove(message)
        self._taken[message] = None

    def give(self, message: Sending) -> None:
        """Forget a message that was taken, and that is received now."""
        self._taken.pop(message, None)

    def unread(self) -> list[Sending]:
        """List the messages that no receive has matched."""
        return [*(each for queue in self._arrived.values() for each in queue), *self._taken]


def mailbox_of(context: Context, number: int) -> Mailbox:
    """Return the messages to rank `number`."""
    found: Mailbox | None = context.mailboxes.get(number)
    if found is None:
        found = context.mailboxes[number] = Mailbox(context.world.scheduler)
    return found


def _remove(queues: dict[tuple[int, int], deque[Any]], key: tuple[int, int], each: object) -> bool:
    queue = queues.get(key)
    if queue is None or each not in queue:
        return False
    queue.remove(each)
    if not queue:
        del queues[key]
    return True


def same_types(sent: Buffer | None, received: Buffer | None) -> bool:
    """Whether elements of basic types are the same; bytes may be any, and derived types are.

    None is an object, which travels as bytes. Arrays of uint8, which mpi4py takes as unsigned
    characters, often hold bytes of other types.
    """
    kinds = [buffer.datatype for buffer in (sent, received) if buffer is not None]
    if not all(kind and kind.is_predefined for kind in kinds):
        return True
    codes = {kind.kind.typemap.signature[0][0] for kind in kinds}
    if codes & {"byte", "packed", "u1"}:
        return True
    objects = None in {sent, received}
    return len(codes) <= 1 and not (objects and kinds)


def _kind_of(buffer: Buffer | None) -> str:
    return "an object" if buffer is None else buffer.datatype.name


def _is_eager(scheduler: Scheduler, data: Bytes) -> bool:
    if scheduler.random is None:
        return len(data) <= EAGER_BYTES
    return scheduler.random.random() < 0.5  # noqa: PLR2004 - a coin
