"""All ranks agree before a collective starts, or all of them raise the same error.

Every agreement is the same collective with rows of 64 bytes of the same form (of many ranks, with
digests of them only), so that ranks that call different verbs meet in it, too, and find that they
differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from hashlib import blake2b
from struct import Struct
from types import NoneType, TracebackType
from typing import Any, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from pencils.comm.canonical import encoded, encoded_call
from pencils.comm.failure import Fault, shown
from pencils.comm.mpi import MPI, OTHER_MPI, is_foreign
from pencils.comm.recording import current, timed
from pencils.errors import ArgumentError, RankDisagreementError, TypeDisagreementError

T = TypeVar("T")

# Up to this many ranks gather their rows; more combine them, without values, so that what each rank
# receives does not grow with their number.
MOST_GATHERED = 64
# Bytes of a row; of its head: whether this rank has failed, a digest of what must be equal, one of
# the element type, and flags; and of the rest: a value of the rank.
ROW, HEAD, VALUES = 64, 32, 32
_NUMBERS = Struct("=4q")
# Numbers that more than `MOST_GATHERED` ranks add up: whether a rank has failed, each flag, whether
# it has an element type, four digits of each digest, and their squares. Room for values follows.
_NUMBERS_ADDED, _VALUES_ADDED = 20, 8
_HALF = 2**32 - 1
_SOUND = bytes(8)  # begins a row of a rank that has not failed
# Number and text of a value, as other ranks can compare and show it.
_Described = tuple[int, str]
# Values, element type and error of one rank, exchanged after a disagreement.
_Report = tuple[dict[str, _Described], _Described | None, Fault | None]
# Flags of a row.
FLAGGED, DEFERRED = 1, 2
# Types of values that are equal only if they are equal for `pencils.comm.canonical`, and how many
# digests of further values a row remembers.
_EXACT = frozenset({int, str, NoneType})
_MOST_DIGESTS = 64
_FREED = "the communicator was freed; make a new pencil with another communicator"


class agreed:  # noqa: N801 - reads as a phrase: ``with agreed(comm, "gather"):``
    """Run checks that may fail on some ranks only, then continue on all ranks or on none.

    The body does not communicate. If it raises on any rank, every rank raises an error of that type
    which names the rank. Values recorded by calling the object must be equal on all ranks, as must
    `call`, the name of what is called. `comm` is a private communicator. Leaving the block is
    *Collective*: one small collective. What happens often is prepared as a `PreparedAgreement`.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> with agreed(MPI.COMM_SELF, "gather") as agree:
    ...     agree(root=0)
    """

    __slots__ = ("_dtype", "_row", "_sums", "_values", "carried", "deferred", "flagged")

    def __init__(
        self, comm: MPI.Intracomm, call: str, row: PreparedAgreement | None = None
    ) -> None:
        self._row = row = PreparedAgreement(comm, call) if row is None else row
        self._values: dict[str, object] = {}
        self._dtype = row.dtype
        self._sums: NDArray[Any] | None = None  # of the halves of unsigned numbers
        self.carried: NDArray[Any] | None = None
        self.flagged = False
        self.deferred = False

    def __enter__(self) -> Self:
        return self

    def __call__(self, **values: object) -> None:
        """Record values that must be equal on every rank; see `pencils.comm.canonical`."""
        self._values.update(values)

    def dtype(self, dtype: np.dtype[Any] | None) -> None:
        """Record an element type that must be equal on all ranks that do not pass None."""
        self._dtype = dtype

    def flag(self, *, up: bool) -> None:
        """Set a flag that is OR-reduced over ranks; `flagged` has the result after the block."""
        self.flagged = up

    def defer(self, *, up: bool) -> None:
        """Set a second flag, OR-reduced as the first; in `pencils.plans`, that setup is needed."""
        self.deferred = up

    def carry(self, value: NDArray[Any], *, added: bool = False) -> None:
        """Send a value along, if there is room; all ranks must have one of this type and size.

        After the block, `carried` has those of all ranks, one in each row; it is None if there is
        no room: for more than `VALUES` bytes, or more than `MOST_GATHERED` ranks. If unsigned
        numbers of 8 bytes are to be `added`, there is room with more ranks, for a row of sums.
        """
        row = self._row
        if row.has_room(value.dtype, value.size):
            mine, self.carried = row.values(value.dtype, value.size)
            mine[:] = value.reshape(-1)
            if row.size == 1:
                self.carried[0] = mine
        elif added and not row.gathers and value.nbytes <= VALUES:
            halves, self._sums = row.values(np.dtype(float), 2 * value.size)
            halves[::2], halves[1::2] = value & _HALF, value >> 32  # their sums are exact

    def number(self) -> int:
        """Return a number that ranks have in common if they have recorded equal values; local."""
        return self._row.digest_with(self._values)

    def prepared(self) -> PreparedAgreement:
        """Prepare the agreement on what was recorded so far; ranks in either one agree."""
        return self._row.extended(self._values, self._dtype)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        row = self._row
        if (error is None or isinstance(error, Exception)) and row.size > 1:
            mine = self.flagged * FLAGGED + self.deferred * DEFERRED
            if self._values or self._dtype is not row.dtype:
                flags = row.meet_with(self._values, self._dtype, error, mine)
            else:
                flags = row.meet(error, mine)
            self.flagged, self.deferred = bool(flags & FLAGGED), bool(flags & DEFERRED)
            if self._sums is not None:
                low, high = self._sums.reshape(-1, 2).T.astype(np.uint64)
                self.carried = (low + (high << 32))[np.newaxis]


class PreparedAgreement:
    """An agreement that is prepared: the same call with the same values, again and again.

    `comm` is a private communicator, `call` the name of what is called. The values must be equal on
    all ranks, and so must `dtype` on all ranks that do not pass None. They follow from what all
    ranks know, or can be compared without an error.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> row = PreparedAgreement(MPI.COMM_SELF, "gather", root=0)
    >>> row.meet(flags=FLAGGED)
    1
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        call: str,
        dtype: np.dtype[Any] | None = None,
        /,
        **values: object,
    ) -> None:
        if not comm:  # COMM_NULL
            raise ArgumentError(f"{call}: {_FREED}")
        given: object = comm
        if not isinstance(given, MPI.Comm) and is_foreign(given):
            raise TypeError(f"{call}: the pencils or fields belong to {OTHER_MPI}")
        self.comm = comm
        self.size = size = comm.size
        self.call = call
        self.dtype = dtype
        self._values = values
        self._digests: dict[object, int] = {}
        self._heads: dict[int, bytes] = {}  # of a rank without error, by flags
        self.gathers = size <= MOST_GATHERED  # so that there is room for values
        self._head = b""  # that is in the row of this rank
        self._flags = 0
        # All rows, and all heads, if all ranks have this head; rows only if values are equal, too.
        self._same_rows = b""
        self._same_heads: tuple[bytes, ...] | None = None  # None if this rank has failed
        if not self.gathers:
            self._combined = np.zeros((2, _NUMBERS_ADDED + _VALUES_ADDED))
            return
        self._mine, self._rows = bytearray(ROW), bytearray(ROW * size)
        self._sent = [self._mine, ROW, MPI.BYTE]
        self._received = [self._rows, ROW, MPI.BYTE]
        self._all_heads = Struct(f"{HEAD}s{VALUES}x" * size)

    def has_room(self, dtype: np.dtype[Any], count: int) -> bool:
        """Whether that number of values of a type can be sent along."""
        return self.gathers and count * dtype.itemsize <= VALUES

    def adds(self, dtype: np.dtype[Any]) -> bool:
        """Whether values of a type are added up, as there are too many ranks to gather them."""
        return not self.gathers and dtype.char in "dD"

    def values(self, dtype: np.dtype[Any], count: int = 1) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return room for the values of this rank, and for those that all ranks have after it.

        Their shapes are ``(count,)`` and ``(size, count)``; they have at most `VALUES` bytes. If
        the agreement `adds` them up, there is one row, of their sums.
        """
        if not self.gathers:
            sent, received = self._combined[:, _NUMBERS_ADDED:].view(dtype)[:, :count]
            return sent, received[np.newaxis]
        mine = np.frombuffer(self._mine, dtype, count, HEAD)
        step = dtype.itemsize
        shape, strides = (self.size, count), (ROW, step)
        rows: NDArray[Any] = np.ndarray(shape, dtype, self._rows, HEAD, strides)
        return mine, rows

    def tell(self, text: bytes) -> None:
        """Send a text of at most `VALUES` bytes along from now on, if there is room; local."""
        if self.gathers:
            self._mine[HEAD:] = text.ljust(VALUES, b"\0")
            if self._same_rows:
                self._same_rows = bytes(self._mine) * self.size

    def told(self, rank: int) -> bytes | None:
        """Return the text of a rank, empty without room; None if all ranks have sent equal rows."""
        if self.size == 1 or (self.gathers and self._rows == self._same_rows):
            return None
        start = ROW * rank
        return bytes(self._rows[start + HEAD : start + ROW]).rstrip(b"\0") if self.gathers else b""

    def meet(self, error: Exception | None = None, flags: int = 0) -> int:
        """Agree, as at the end of a block that raised `error`; OR-reduce flags. *Collective*."""
        if not self.comm:
            raise ArgumentError(f"{self.call}: {_FREED}")
        if self.size == 1:
            if error is not None:
                raise error
            return flags
        mine = self._heads.get(flags) if error is None else None
        if mine is None:
            return self.meet_with({}, self.dtype, error, flags)
        found = self._compare(mine)
        if found is None:
            self._raise_together(error, {}, self.dtype)
        return found

    def meet_with(
        self,
        values: dict[str, object],
        dtype: np.dtype[Any] | None,
        error: Exception | None,
        flags: int,
    ) -> int:
        """Agree on further values, and on a type. *Collective* over several ranks."""
        call = kind = 0
        try:
            call, kind = self.digest_with(values), _digest_of(dtype)
        except Exception as odd:  # noqa: BLE001 - a value that cannot be compared is an error, too
            error = error or odd
        mine = _NUMBERS.pack(error is not None, call, kind, flags)
        if error is None and not values and dtype is self.dtype:
            self._heads[flags] = mine
        found = self._compare(mine)
        if found is None:
            self._raise_together(error, values, dtype)
        return found

    def attempt(self, prepare: Callable[[], T], flags: int = 0) -> tuple[T, int]:
        """Prepare a call and agree on it; return its result and flags of any rank. *Collective*."""
        error = None
        try:
            prepared = prepare()
        except Exception as mistake:  # noqa: BLE001 - raised on all ranks
            error = mistake
        flags = self.meet(error, flags)
        return prepared, flags  # without an error

    def extended(self, values: dict[str, object], dtype: np.dtype[Any] | None) -> PreparedAgreement:
        """Prepare the agreement on further values, and on a type."""
        return PreparedAgreement(self.comm, self.call, dtype, **self._values | values)

    def block(self) -> agreed:
        """Return a ``with`` block for checks; it may record further values."""
        return agreed(self.comm, self.call, self)

    def digest_with(self, values: dict[str, object]) -> int:
        """Digest of the call, of its values and of further ones."""
        key = None
        if not values or all(type(value) in _EXACT for value in values.values()):
            key = tuple(values.items())
            found = self._digests.get(key)
            if found is not None:
                return found
        digest = _digest(encoded_call(self.call, self._values | values))
        if key is not None and len(self._digests) < _MOST_DIGESTS:
            self._digests[key] = digest
        return digest

    def _compare(self, mine: bytes) -> int | None:
        """Compare the heads of all ranks, and OR-reduce their flags. *Collective*.

        None if a rank has failed, or calls or types differ.
        """
        if not self.gathers:
            return self._combine(mine)
        if mine is not self._head:  # it stays for further calls
            self._mine[:HEAD] = self._head = mine
            sound = mine.startswith(_SOUND)
            self._same_rows = bytes(self._mine) * self.size if sound else b""
            self._same_heads = (mine,) * self.size if sound else None
            self._flags = _NUMBERS.unpack(mine)[3]
        recorder = current.recorder
        if recorder is None:
            self.comm.Allgather(self._sent, self._received)
        else:
            recorder.run("agree", self.comm.Allgather, self._sent, self._received)
        if self._rows == self._same_rows:
            return self._flags
        heads = self._all_heads.unpack(self._rows)
        if heads == self._same_heads:
            return self._flags
        numbers = np.frombuffer(b"".join(heads), np.int64)
        failed, calls, kinds, flags = numbers.reshape(-1, 4).T
        known = kinds[kinds != 0]
        if failed.any() or (calls != calls[0]).any() or (known != known[:1]).any():
            return None
        return int(np.bitwise_or.reduce(flags))

    def _combine(self, mine: bytes) -> int | None:
        """Compare heads as `_compare` does, by sums of numbers, whose size does not depend on P."""
        sent, received = self._combined[:, :_NUMBERS_ADDED]
        if mine is not self._head:
            self._head = mine
            failed, _, kind, self._flags = _NUMBERS.unpack(mine)
            digits = np.frombuffer(mine, np.uint16)[4:12].astype(float)  # of both digests
            flags = self._flags & FLAGGED, self._flags & DEFERRED
            sent[:] = failed, *flags, kind != 0, *digits, *digits**2
            self._same_rows = b"" if failed else (self.size * sent).tobytes()
        timed("agree", self.comm.Allreduce, *self._combined, MPI.SUM)
        if received.tobytes() == self._same_rows:
            return self._flags
        failed, flagged, deferred, known, *sums = map(int, received.tolist())
        # Numbers are equal if and only if their number times the sum of their squares is the square
        # of their sum. All sums are exact: squares have at most 32 bits.
        counts = (self.size,) * 4 + (known,) * 4
        each = zip(counts, sums[:8], sums[8:], strict=True)
        unequal = any(n * squares != total**2 for n, total, squares in each)
        if failed or unequal:
            return None
        return bool(flagged) * FLAGGED + bool(deferred) * DEFERRED

    def _raise_together(
        self, error: Exception | None, values: dict[str, object], dtype: np.dtype[Any] | None
    ) -> NoReturn:
        """Raise what is wrong, on all ranks. *Collective*."""
        described = {"call": (token(self.call), self.call)}
        for name, value in (self._values | values).items():
            shown_value = _describe(value)
            if shown_value is not None:
                described[name] = shown_value
        dtype = self.dtype if dtype is None else dtype
        fault = None if error is None else Fault.of(error)
        mine = described, None if dtype is None else _describe(dtype), fault
        reports: list[_Report] = self.comm.allgather(mine)
        # An error of one rank is often caused by an argument that differs there. Such a rank may
        # lack some values.
        for name in dict.fromkeys(name for known, *_ in reports for name in known):
            seen = {
                rank: known.get(name, (-1, "nothing"))
                for rank, (known, _, failed) in enumerate(reports)
                if name in known or failed is None
            }
            difference = _difference(seen)
            if difference is not None:
                raise RankDisagreementError(
                    f"{self.call}: ranks disagree on {name}: {difference}; all ranks must make the "
                    "same call"
                ) from error
        types = {rank: kind for rank, (_, kind, _) in enumerate(reports) if kind}
        difference = _difference(types)
        if difference is not None:
            raise TypeDisagreementError(
                f"{self.call}: ranks pass data of different types: {difference}"
            ) from error
        if error is not None and all(failed == fault for *_, failed in reports):
            raise error  # the same mistake on all ranks: no rank is to blame
        for rank, (*_, failed) in enumerate(reports):
            if failed is not None:
                raise failed.error(rank) from error
        raise AssertionError("ranks met, and found no difference")


def _describe(value: object) -> _Described | None:
    try:
        return token(value), shown(value)
    except Exception:  # noqa: BLE001 - it cannot be compared, which is the error of this rank
        return None


def _difference(seen: Mapping[int, _Described]) -> str | None:
    """Show the values of the first rank, and of the first one that differs from it."""
    for rank, (number, text) in seen.items():
        first = next(iter(seen))
        first_number, first_text = seen[first]
        if number != first_number:
            other = text if text != first_text else "another object of the same text"
            return f"rank {first} has {first_text}, rank {rank} has {other}"
    return None


def token(value: object) -> int:
    """Make a number that is the same for equal values, and for no others."""
    return _digest(encoded(value))


def _digest(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=7).digest())


@lru_cache(maxsize=256)
def _digest_of(dtype: np.dtype[Any] | None) -> int:
    """Digest of an element type, which is not 0; 0 if there is none."""
    return 0 if dtype is None else token(dtype) or 1


def waiting(comm: MPI.Intracomm) -> Callable[[], object]:
    """Return a function that waits for all ranks. *Collective*.

    For few ranks it gathers rows: MPI libraries do this faster than a barrier.
    """
    if comm.size > MOST_GATHERED:
        return comm.Barrier
    rows = bytearray(ROW * comm.size)
    return partial(comm.Allgather, [bytes(ROW), ROW, MPI.BYTE], [rows, ROW, MPI.BYTE])
