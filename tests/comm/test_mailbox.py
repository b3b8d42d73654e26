"""Messages that are polled: of any size, from any rank, sent or failed."""

import numpy as np
import pytest
from mpi_helpers import NODES, everywhere, on_nodes

from pencils.comm import memory
from pencils.comm.mailbox import MOST_AT_ONCE, Mailbox, Receive, largest_tag
from pencils.comm.topology import topology_of

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def receive_all(mailbox):
    arrived = []
    while mailbox.expected:
        arrived += mailbox.wait()
    mailbox.close()
    return {receive.key: receive for receive in arrived}


@pytest.mark.parametrize("most", [16, 2**30], ids=["in pieces", "whole"])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5)])
def test_all_ranks_send_to_all_ranks(comm, monkeypatch, most, shape):
    monkeypatch.setattr(memory, "MOST_BYTES", most)
    mailbox = Mailbox(comm)
    for peer in range(comm.size):
        mailbox.expect(Receive(peer, np.empty(shape), peer, 3))
    for peer in range(comm.size):
        mailbox.send(np.full(shape[::-1], 10.0 * comm.rank + peer).T, peer, 3)
    arrived = receive_all(mailbox)
    right = [np.all(arrived[peer].array == 10 * peer + comm.rank) for peer in range(comm.size)]
    assert everywhere(comm, all(right) and len(arrived) == comm.size)
    assert not any(receive.failed for receive in arrived.values())
    assert not mailbox.requests


@pytest.mark.parametrize("most", [16, 2**30], ids=["in pieces", "whole"])
def test_failures_arrive_in_place_of_messages(comm, monkeypatch, most):
    monkeypatch.setattr(memory, "MOST_BYTES", most)
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    mailbox = Mailbox(comm)
    for key in range(3):
        mailbox.expect(Receive(key, np.zeros(6), before, 0))
    mailbox.send(np.ones(6), after, 0)
    mailbox.send_failure(48, after, 0)
    mailbox.send(np.ones(6), after, 0)
    arrived = receive_all(mailbox)
    assert everywhere(comm, [arrived[key].failed for key in range(3)] == [False, True, False])
    assert everywhere(comm, [arrived[key].array.sum() for key in range(3)] == [6, 0, 6])


@pytest.mark.parametrize("nodes", NODES)
def test_only_messages_between_nodes_travel_in_pieces(nodes, monkeypatch):
    monkeypatch.setattr(memory, "EAGER", 16)
    comm = on_nodes(nodes)
    mailbox = Mailbox(comm)
    near = topology_of(comm).on_node
    for peer in range(comm.size):
        mailbox.expect(Receive(peer, np.empty(7), peer, 3))
        mailbox.expect(Receive(comm.size + peer, np.empty(7), peer, 3))
    pieces = [len(requests) for requests, _ in mailbox.requests]
    for peer in range(comm.size):
        mailbox.send(np.full(7, 10.0 * comm.rank + peer), peer, 3)
        mailbox.send_failure(56, peer, 3)
    arrived = receive_all(mailbox)
    right = [np.all(arrived[peer].array == 10 * peer + comm.rank) for peer in range(comm.size)]
    failed = [arrived[key].failed for key in range(2 * comm.size)]
    expected = [1 if peer in near else 4 for peer in range(comm.size) for _ in range(2)]
    assert everywhere(comm, all(right) and pieces == expected)
    assert everywhere(comm, failed == [False] * comm.size + [True] * comm.size)


def test_messages_of_equal_tags_keep_their_order(comm):
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for mailbox in (Mailbox(comm), Mailbox(comm)):  # which share a communicator
        for key in range(20):
            mailbox.send(np.array([key]), after, 1)
        for key in range(20):
            mailbox.expect(Receive(key, np.empty(1, int), before, 1))
        arrived = receive_all(mailbox)
        assert everywhere(comm, all(arrived[key].array == key for key in range(20)))


def test_many_requests_are_tested_a_few_at_a_time(comm):
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    mailbox = Mailbox(comm)
    count = 10 * MOST_AT_ONCE
    for key in range(count):
        mailbox.expect(Receive(key, np.empty(1, int), before, key))
    for key in reversed(range(count)):
        mailbox.send(np.array([key]), after, key)
    most = 0
    arrived = []
    while mailbox.expected:
        found = mailbox.wait()
        most = max(most, len(found))
        arrived += found
    mailbox.close()
    assert everywhere(comm, sorted(receive.key for receive in arrived) == list(range(count)))
    assert everywhere(comm, all(receive.array == receive.key for receive in arrived))
    assert everywhere(comm, most <= MOST_AT_ONCE)


def test_the_largest_tag_works(comm):
    mailbox = Mailbox(comm)
    mailbox.send(np.array([1.5]), comm.rank, largest_tag())
    mailbox.expect(Receive(0, np.empty(1), comm.rank, largest_tag()))
    assert everywhere(comm, receive_all(mailbox)[0].array == 1.5 and largest_tag() >= 32767)
