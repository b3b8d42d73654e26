"""All ranks raise the same error, or none does."""

import errno
from functools import partial

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import all_raise, everywhere, named, ranks_at_fault

import simmpi
from pencils.comm import agree
from pencils.comm.agree import DEFERRED, FLAGGED, PreparedAgreement, agreed
from pencils.comm.failure import Fault
from pencils.errors import (
    ArgumentError,
    NotLocalError,
    RankDisagreementError,
    TypeDisagreementError,
)

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


@pytest.fixture(autouse=True, params=["gathered", "combined"])
def _form(request, monkeypatch):
    """Agree as few ranks do, and as many do."""
    if request.param == "combined":
        monkeypatch.setattr(agree, "MOST_GATHERED", 1)


class UnknownError(LookupError):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


class Counting:
    """A communicator that counts which of its methods are called."""

    def __init__(self, comm):
        self._comm = comm
        self.calls = []

    def __getattr__(self, name):
        value = getattr(self._comm, name)
        if not callable(value):
            return value

        def call(*args, **kwargs):
            self.calls.append(name)
            return value(*args, **kwargs)

        return call


def check(comm, error=None, call="check", **values):
    with agreed(comm, call) as same:
        same(**values)
        if error is not None:
            raise error


def test_agreement_costs_one_collective_and_no_objects(comm):
    counting = Counting(comm)
    check(counting, shape=(3, 4), root=0)
    verb = "Allgather" if comm.size <= agree.MOST_GATHERED else "Allreduce"
    assert counting.calls == ([] if comm.size == 1 else [verb])
    row = PreparedAgreement(counting, "check", shape=(3, 4), root=0)
    del counting.calls[:]
    for times in (1, 2):
        row.meet()
        assert counting.calls == ([] if comm.size == 1 else [verb] * times)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("v"), ValueError),
        (TypeError("t"), TypeError),
        (KeyError("k"), KeyError),
        (OSError(2, "no such file"), FileNotFoundError),
        (MemoryError("m"), MemoryError),
        (ArgumentError("a"), ArgumentError),
        (NotLocalError("n"), NotLocalError),
        (np.exceptions.AxisError("x"), ValueError),  # NumPy may be another one elsewhere
        (UnknownError("u", "w"), LookupError),
        (UnicodeDecodeError("utf8", b"\xff", 0, 1, "bad"), UnicodeError),
    ],
)
def test_a_fault_on_one_rank_raises_its_type_everywhere(comm, error, kind):
    for rank in ranks_at_fault(comm):
        mine = error if comm.rank == rank else None
        expected = type(error) if comm.size == 1 else kind
        # The text keeps its words, but KeyError quotes what it is given.
        texts = [f"rank {rank}: "] if comm.size > 1 else []
        all_raise(comm, expected, texts, check, comm, mine, a=1)
        check(comm, a=1)


def test_whose_error_is_raised(comm):
    error = ValueError("mine") if comm.rank == comm.size - 1 else None
    with pytest.raises(ValueError, match="mine") as caught:
        check(comm, error)
    assert everywhere(comm, comm.size == 1 or caught.value.__cause__ is error)
    # Of different errors that of the lowest rank; the same error of all ranks as it is.
    kind = IndexError if comm.rank == 0 else ValueError
    call = partial(check, comm, kind(f"of {comm.rank}"))
    all_raise(comm, IndexError, named(comm, 0), call)
    same = UnknownError("the", "same")
    with pytest.raises(UnknownError) as caught:
        check(comm, same)
    assert everywhere(comm, caught.value is same)


@pytest.mark.parallel([2, 3, 4, 6])
def test_disagreement_names_the_value_and_the_ranks(comm):
    for rank in ranks_at_fault(comm):
        mine = 7 if comm.rank == rank else 5
        texts = "gather: ranks disagree on root: rank 0 has", f"rank {1 if rank == 0 else rank} has"
        call = partial(check, comm, call="gather", shape=(1,), root=mine)
        all_raise(comm, RankDisagreementError, (*texts, "5", "7"), call)
        check(comm, root=1)
    last = comm.rank == comm.size - 1
    error, data = TypeError("data is None") if last else None, np.zeros(10_000)
    data[5000] = last
    for call, *texts in (
        (
            partial(check, call="gather" if last else "transpose"),
            "call: rank 0 has transp",
            "has g",
        ),
        (partial(check, **({} if last else {"root": 0})), "root", "nothing"),
        (partial(check, error=error, root=int(last)), "root"),  # from which the error follows
        (partial(check, data=data), "data: rank 0 has array(", "another object of the same text"),
    ):
        all_raise(comm, RankDisagreementError, texts, call, comm)

    def early():  # the rank at fault never gets as far as recording the value
        with agreed(comm, "check") as same:
            if last:
                msg = "broken"
                raise TypeError(msg)
            same(root=0)

    all_raise(comm, TypeError, (named(comm, comm.size - 1), "broken"), early)


def test_equal_values_agree_whatever_their_spelling(comm):
    last = comm.rank == comm.size - 1
    check(comm, at=np.float64(0.1) if last else 0.1, shape=[3] if last else (np.int64(3),))
    check(comm, attrs={"b": 1, "a": 2} if last else {"a": 2, "b": 1}, names={"x", "y", "z"})
    with np.printoptions(legacy="1.13" if last else False):
        check(comm, data=np.arange(3) / 3, at=np.float64(0.1))


class WordlessError(Exception):
    def __str__(self):
        raise self.args[0]

    __repr__ = __str__


class NoTextError(OSError):
    def __str__(self):
        return 5  # noqa: PLE0307


class Odd:
    """Cannot be told, compared, nor sent."""

    def __repr__(self):
        msg = "no text"
        raise RuntimeError(msg)

    def __reduce__(self):
        msg = "cannot be pickled"
        raise TypeError(msg)


class StrangeError(OSError):
    @property
    def errno(self):
        msg = "no number"
        raise AttributeError(msg)


def claiming(module):
    """Make a class of errors that claims to be from another module."""
    return type("KeyError", (KeyError,), {"__module__": module})


NO_TEXT = "whose text cannot be made"


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: WordlessError(ValueError("v")), Exception, f"WordlessError, {NO_TEXT}: ValueE"),
        (lambda: WordlessError(SystemExit(1)), Exception, f"WordlessError, {NO_TEXT}: SystemExit"),
        (lambda: WordlessError(RecursionError()), Exception, f"{NO_TEXT}: RecursionError"),
        (lambda: NoTextError("t"), OSError, f"NoTextError, {NO_TEXT}: TypeError"),
        (lambda: ValueError(Odd()), ValueError, f"ValueError, {NO_TEXT}: RuntimeError"),
        (lambda: ValueError("two", ["args", lambda: 0]), ValueError, "('two', ["),
        (lambda: OSError(2, Odd()), FileNotFoundError, f"Odd, {NO_TEXT}"),
        (lambda: OSError(2, "gone", Odd()), FileNotFoundError, f"gone: Odd, {NO_TEXT}"),
        (lambda: OSError(Odd(), "gone"), OSError, NO_TEXT),
        (lambda: StrangeError(2, "s"), OSError, "s"),
        (lambda: ValueError("v" * 10**6), ValueError, "vvv ..."),
        (lambda: ExceptionGroup("some", [ValueError("v")]), Exception, "some (1 sub-exception)"),
        (lambda: claiming("builtins")("one"), KeyError, "one"),
        (lambda: claiming("pencils.errors")("two"), KeyError, "two"),
        (lambda: claiming(None)("three"), KeyError, "three"),
        (lambda: ValueError("\udcff"), ValueError, "\udcff"),
    ],
)
def test_errors_that_cannot_be_told_reach_everyone(comm, make, kind, text):
    error = make()
    if comm.size == 1:
        return
    for rank in ranks_at_fault(comm):
        mine = error if comm.rank == rank else None
        with pytest.raises(kind) as caught:
            check(comm, mine, a=1)
        said = caught.value.args[-1]
        assert everywhere(comm, said.startswith(f"rank {rank}: ") and text in said)
        assert everywhere(comm, (caught.value.__cause__ is error) == (comm.rank == rank))
        check(comm, a=1)


def test_values_that_cannot_be_told_or_compared(comm):
    if comm.size == 1:
        return
    endless = []
    endless.append(endless)
    for value, kind in ((Odd(), RuntimeError), (endless, RecursionError)):
        for rank in ranks_at_fault(comm):
            all_raise(
                comm, kind, named(comm, rank), check, comm, a=value if comm.rank == rank else 1
            )
        with pytest.raises(kind):
            check(comm, a=value)
        check(comm, a=1)
    shy = type("Shy", (int,), {"__repr__": Odd.__repr__})
    value = shy(comm.rank == 0)
    text = "rank 0 has Shy, whose text cannot be made: RuntimeError"
    all_raise(comm, RankDisagreementError, text, check, comm, a=value)


def test_a_freed_communicator_is_told(comm):
    private = comm.Dup()
    private.Free()
    all_raise(comm, ArgumentError, ("gather", "freed"), check, private, call="gather")


def test_keyboard_interrupts_pass():
    with pytest.raises(KeyboardInterrupt):
        check(MPI.COMM_SELF, KeyboardInterrupt())


def agree_on_type(comm, dtype, error=None):
    with agreed(comm, "check") as same:
        same.dtype(None if dtype is None else np.dtype(dtype))
        same.flag(up=dtype is None)
        if error is not None:
            raise error
    return same.flagged


def test_types_must_be_equal_where_there_are_any(comm):
    last = comm.rank == comm.size - 1
    structured = np.dtype([("x", ">f4"), ("y", "i2", (3,))], align=True)
    for dtype in ("f8", ">i2", "S3", structured):
        assert everywhere(comm, agree_on_type(comm, dtype) is False)
        assert everywhere(comm, agree_on_type(comm, None if last else dtype) is True)
    assert everywhere(comm, agree_on_type(comm, None) is True)


@pytest.mark.parallel([2, 3, 4, 6])
def test_different_types_are_told(comm):
    for rank in ranks_at_fault(comm):
        call = partial(agree_on_type, comm, ">f8" if comm.rank == rank else "f8")
        text = "ranks pass data of different types: rank 0 has dtype("
        all_raise(comm, TypeDisagreementError, text, call)
    first = comm.rank == 0
    call = partial(agree_on_type, comm, *((None, ValueError("v")) if first else ("f8", None)))
    all_raise(comm, ValueError, named(comm, 0), call)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, None])
def test_errors_of_the_system_keep_their_number(comm, number):
    said = ("it says",) if number is None else (number, "it says", "a.h5")
    for rank in ranks_at_fault(comm):
        with pytest.raises(OSError, match="it says") as raised:
            check(comm, OSError(*said) if comm.rank == rank else None)
        assert raised.value.errno == number
        assert type(raised.value) is type(OSError(*said))
        assert (number is None) == ("a.h5" not in str(raised.value))


def test_rows_meet_blocks_with_the_same_values(comm):
    last = comm.rank == comm.size - 1
    row = PreparedAgreement(comm, "check", root=0)
    for _ in range(2):
        if last:
            check(comm, root=0)
        else:
            assert row.meet() == 0
    with row.block() as same:
        same(fields=2)
    if last:
        check(comm, root=0, fields=2)
    else:
        with row.block() as same:
            same(fields=2)
            same.defer(up=False)
        assert not same.deferred


@pytest.mark.parallel([2, 3, 4, 6])
def test_rows_with_other_values_calls_or_types_are_disagreements(comm):
    first = comm.rank == 0
    same, other = (PreparedAgreement(comm, "check", root=n) for n in (0, int(first)))
    for call, text in (
        (other.meet, "root: rank 0 has 1, rank 1 has 0"),
        (lambda: check(comm, call="other") if first else same.meet(), "call: rank 0 has other"),
        (lambda: check(comm, root=0, more=1) if first else same.meet(), "more"),
    ):
        all_raise(comm, RankDisagreementError, text, call)
        assert same.meet() == 0
    fails = lambda: check(comm, IndexError("of 0"), root=0) if first else same.meet()  # noqa: E731
    all_raise(comm, IndexError, named(comm, 0), fails)
    typed = PreparedAgreement(comm, "check", np.dtype("f4" if first else "f8"))
    all_raise(comm, TypeDisagreementError, "different types", typed.meet)
    assert PreparedAgreement(comm, "check", None if first else np.dtype("f8")).meet() == 0


def test_errors_and_flags_of_rows(comm):
    row = PreparedAgreement(comm, "check", root=0)
    for rank in ranks_at_fault(comm):
        error = ValueError("mine") if comm.rank == rank else None
        texts = [f"rank {rank}: "] if comm.size > 1 else []
        all_raise(comm, ValueError, ("mine", *texts), row.meet, error)
        flags = FLAGGED if comm.rank == rank else DEFERRED
        most = flags if comm.size == 1 else FLAGGED | DEFERRED
        assert everywhere(comm, row.meet(flags=flags) == most)
        assert everywhere(comm, row.meet() == 0)


def test_values_of_each_rank_or_their_sums_travel_with_the_row(comm):
    row = PreparedAgreement(comm, "check", root=0)
    assert row.gathers == (comm.size <= agree.MOST_GATHERED)
    for dtype, count in (("i8", 4), ("f4", 3), ("c16", 2)) if row.gathers else ():
        mine, rows = row.values(np.dtype(dtype), count)
        mine[:] = np.arange(count) + comm.rank
        row.meet()
        expected = np.add.outer(range(comm.size), range(count))
        assert everywhere(comm, np.array_equal(rows, expected) or comm.size == 1)
    assert not row.adds(np.dtype("i8"))
    for dtype, count in (("f8", 4), ("c16", 2)) if row.adds(np.dtype("f8")) else ():
        mine, rows = row.values(np.dtype(dtype), count)
        mine[:] = np.arange(count) - comm.rank
        row.meet()
        expected = np.add.reduce(np.subtract.outer(range(count), range(comm.size)), axis=1)
        assert everywhere(comm, rows.shape == (1, count) and np.array_equal(rows[0], expected))
        mine[0] = np.nan if comm.rank == 0 else np.inf  # spoils nothing else
        assert everywhere(comm, row.meet(flags=FLAGGED) == FLAGGED)
        assert everywhere(comm, np.isnan(rows[0, 0]) and np.array_equal(rows[0, 1:], expected[1:]))


def test_a_text_of_each_rank_rides_in_the_row(comm):
    """Also after calls that failed, and with other flags."""
    row = PreparedAgreement(comm, "told")
    last = comm.size - 1
    for text in (b"one", b"one", b"", b"a longer one", b"a longer one"):
        for differs in (False, True, False):
            row.tell(b"two" if differs and comm.rank == last else text)
            flags = FLAGGED * (comm.rank == 0)
            assert everywhere(comm, row.meet(flags=flags) == FLAGGED)
            found = [row.told(rank) for rank in (0, last)]
            # Where a flag differs, texts are read though they may be equal.
            expected = [text, b"two" if differs else text]
            readable = expected if row.gathers else [b"", b""]
            assert everywhere(comm, comm.size == 1 or found == readable)
            row.meet()
            alike = comm.size == 1 or (row.gathers and not differs)
            assert everywhere(comm, row.told(0) == (None if alike else readable[0]))
        fails = ValueError("wrong") if comm.rank == last else None
        all_raise(comm, ValueError, "wrong", row.meet, fails)


def test_sums_ride_along_for_any_number_of_ranks(comm):
    numbers = np.array([2**64 - 1, comm.rank, 2**63, 7], np.uint64)
    with agreed(comm, "check") as same:
        same.carry(numbers, added=True)
    total = np.array(comm.allgather(numbers.tolist()), object).sum(axis=0) % 2**64
    assert everywhere(comm, (same.carried.sum(axis=0, dtype=np.uint64) == total).all())
    with agreed(comm, "check") as same:
        same.carry(np.zeros(5, np.uint64), added=True)
    assert same.carried is None  # no room


class _Many:
    """A communicator of two million ranks, of which the last one sends other numbers."""

    size = 2**21
    last = 0.0

    def Allreduce(self, sent, received, op):
        assert op == MPI.SUM
        received[:] = (self.size - 1) * sent + self.last


def test_sums_of_digits_tell_every_difference():
    """Also of the largest digests, which differ on one of two million ranks by one bit."""
    comm = _Many()
    row = PreparedAgreement(comm, "check")
    for digest in (0, 1, 0x123456789ABCDE, 2**56 - 1):
        for bits in (0, *(1 << bit for bit in range(56))):
            for other in ((digest ^ bits, 1), (digest, 1 + bits)):
                row._combine(agree._NUMBERS.pack(0, *other, 0))
                comm.last = row._combined[0].copy()
                found = row._combine(agree._NUMBERS.pack(0, digest, 1, 0))
                assert found == (None if bits else 0)
                comm.last = 0.0


def test_errors_keep_their_types_on_other_ranks():
    for kind in (MemoryError, ArgumentError, simmpi.DeadlockError, simmpi.UsageError):
        assert type(Fault.of(kind("text")).error(1)) is kind
