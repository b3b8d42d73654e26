"""Messages that nobody waits for: any size, any rank, refused or not."""

import numpy as np
import pytest
from together import everywhere

from pencils.comm import limits
from pencils.comm.mailbox import MOST_AT_ONCE, Letter, Mailbox, largest_tag

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def receive(mailbox):
    arrived = []
    while mailbox.expected:
        arrived += mailbox.wait()
    mailbox.close()
    return {letter.key: letter for letter in arrived}


@pytest.mark.parametrize("most", [16, 2**30], ids=["in pieces", "whole"])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5)])
def test_everybody_sends_to_everybody(comm, monkeypatch, most, shape):
    monkeypatch.setattr(limits, "MOST_BYTES", most)
    mailbox = Mailbox(comm)
    for peer in range(comm.size):
        mailbox.expect(Letter(peer, np.empty(shape), peer, 3))
    for peer in range(comm.size):
        mailbox.send(np.full(shape[::-1], 10.0 * comm.rank + peer).T, peer, 3)
    arrived = receive(mailbox)
    right = [np.all(arrived[peer].array == 10 * peer + comm.rank) for peer in range(comm.size)]
    assert everywhere(comm, all(right) and len(arrived) == comm.size)
    assert not any(letter.refused for letter in arrived.values())
    assert not mailbox.requests


@pytest.mark.parametrize("most", [16, 2**30], ids=["in pieces", "whole"])
def test_refused_letters_arrive_empty(comm, monkeypatch, most):
    monkeypatch.setattr(limits, "MOST_BYTES", most)
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    mailbox = Mailbox(comm)
    for key in range(3):
        mailbox.expect(Letter(key, np.zeros(6), before, 0))
    mailbox.send(np.ones(6), after, 0)
    mailbox.refuse(48, after, 0)
    mailbox.send(np.ones(6), after, 0)
    arrived = receive(mailbox)
    assert everywhere(comm, [arrived[key].refused for key in range(3)] == [False, True, False])
    assert everywhere(comm, [arrived[key].array.sum() for key in range(3)] == [6, 0, 6])


def test_messages_of_equal_tags_keep_their_order(comm):
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for mailbox in (Mailbox(comm), Mailbox(comm)):  # which share a communicator
        for key in range(20):
            mailbox.send(np.array([key]), after, 1)
        for key in range(20):
            mailbox.expect(Letter(key, np.empty(1, int), before, 1))
        arrived = receive(mailbox)
        assert everywhere(comm, all(arrived[key].array == key for key in range(20)))


def test_many_messages_are_looked_at_a_few_at_a_time(comm):
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    mailbox = Mailbox(comm)
    count = 10 * MOST_AT_ONCE
    for key in range(count):
        mailbox.expect(Letter(key, np.empty(1, int), before, key))
    for key in reversed(range(count)):
        mailbox.send(np.array([key]), after, key)
    most = 0
    arrived = []
    while mailbox.expected:
        found = mailbox.wait()
        most = max(most, len(found))
        arrived += found
    mailbox.close()
    assert everywhere(comm, sorted(letter.key for letter in arrived) == list(range(count)))
    assert everywhere(comm, all(letter.array == letter.key for letter in arrived))
    assert everywhere(comm, most <= MOST_AT_ONCE)


def test_the_largest_tag_works(comm):
    mailbox = Mailbox(comm)
    mailbox.send(np.array([1.5]), comm.rank, largest_tag())
    mailbox.expect(Letter(0, np.empty(1), comm.rank, largest_tag()))
    assert everywhere(comm, receive(mailbox)[0].array == 1.5 and largest_tag() >= 32767)
