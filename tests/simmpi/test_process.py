"""What belongs to one process, and in a simulation to one rank."""

import subprocess
import sys

import pytest

from pencils.array.base import checks
from simmpi import process
from simmpi.process import PerProcess


@pytest.fixture
def other():
    """Make other values current during a test."""
    own = process.exchange({})
    yield
    process.exchange(own)


def test_a_value_is_made_on_first_use_and_kept():
    made = []
    value = PerProcess(lambda: made.append(1) or [])
    assert made == []
    value().append("u")
    assert value() == ["u"]
    assert made == [1]
    assert process.values()[value] == ["u"]


def test_two_ranks_have_two_values_and_get_theirs_back():
    value = PerProcess(list)
    value().append("process")
    own, seen = process.exchange({}), []
    for rank in range(2):
        before = process.exchange({})
        value().append(rank)
        seen.append(process.exchange(before))
    assert value() == []
    process.exchange(own)
    assert value() == ["process"]
    assert [values[value] for values in seen] == [[0], [1]]


def test_a_value_that_cannot_be_made_is_made_later():
    answers = iter([ZeroDivisionError, None])

    def make():
        if error := next(answers):
            raise error
        return 3

    value = PerProcess(make)
    with pytest.raises(ZeroDivisionError):
        value()
    assert value() == 3


def test_a_replaced_value_is_that_of_this_rank_only():
    value = PerProcess(int)
    value.replace(3)
    own = process.exchange({})
    assert value() == 0
    process.exchange(own)
    assert value() == 3


def test_whether_a_simulated_rank_runs():
    assert not process.is_simulated()
    own = process.exchange({})
    assert process.is_simulated()
    process.exchange(own)
    assert not process.is_simulated()


def test_an_entry_that_is_kept_apart_begins_as_that_of_the_process(monkeypatch):
    monkeypatch.setattr(process, "_entries", [])
    names = {"argv": ["a"]}
    process.keep_apart(names, "argv")
    process.keep_apart(names, "argv")
    names["argv"] = ["b"]
    own = process.exchange({})
    assert names == {"argv": ["b"]}
    names["argv"] = ["rank 0"]
    first = process.exchange({})
    assert names == {"argv": ["b"]}
    process.exchange(first)
    assert names == {"argv": ["rank 0"]}
    process.exchange(own)
    assert names == {"argv": ["b"]}


def test_ghost_checks_of_a_rank_leave_those_of_others():
    before = checks.on
    own = process.exchange({})
    assert checks.on == before
    checks.on = not before
    first = process.exchange({})
    assert checks.on == before
    process.exchange(first)
    assert checks.on != before
    process.exchange(own)
    assert checks.on == before


@pytest.mark.usefixtures("other")
def test_the_end_of_a_rank_calls_what_it_has_asked_for_last_first():
    called = []
    process.at_exit(lambda: called.append(1))
    process.at_exit(lambda: called.append(2))
    values = process.exchange({})
    process.end()
    assert called == []
    process.exchange(values)
    process.end()
    process.end()
    assert called == [2, 1]


def test_the_exit_of_a_process_calls_what_it_has_asked_for():
    code = "from simmpi import process; process.at_exit(lambda: print('left')); process.end()"
    ran = subprocess.run(
        [sys.executable, "-c", code + "; print('ends')"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "ends\nleft\n"
