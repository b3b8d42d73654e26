"""What belongs to one process, and in a simulation to one rank."""

import pytest
from mpi_helpers import python

from pencils.array.base import checks
from simmpi import process
from simmpi.process import PerProcess


def test_values_are_made_on_first_use_for_each_rank():
    made, answers = [], iter([ZeroDivisionError, None, None, None])

    def make():
        if error := next(answers):
            raise error
        return made.append(1) or []

    value = PerProcess(make)
    with pytest.raises(ZeroDivisionError):
        value()
    assert made == []  # it is made later
    value().append("process")
    assert process.values()[value] == ["process"]
    own, seen = process.exchange({}), []
    assert process.is_simulated()
    for rank in range(2):
        before = process.exchange({})
        value().append(rank)
        seen.append(process.exchange(before))
    value.replace([])
    process.exchange(own)
    assert not process.is_simulated()
    assert value() == ["process"]
    assert [values[value] for values in seen] == [[0], [1]]
    value.replace(3)
    assert (value(), len(made)) == (3, 3)


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


def test_the_end_of_a_rank_calls_what_it_has_asked_for_last_first():
    called, own = [], process.exchange({})
    process.at_exit(lambda: called.append(1))
    process.at_exit(lambda: called.append(2))
    values = process.exchange({})
    process.end()
    assert called == []
    process.exchange(values)
    process.end()
    process.end()
    assert called == [2, 1]
    process.exchange(own)
    code = "from simmpi import process; process.at_exit(lambda: print('left')); process.end()"
    ran = python("-c", code + "; print('ends')")
    assert ran.stdout == "ends\nleft\n"
