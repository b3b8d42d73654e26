"""Persistent requests, messages to no process, cancelled receives, buffered sends."""

import numpy as np
from mpi4py import MPI

from .case import DTYPES, complete, status_of


def persistent(case):
    """Start the same sends and receives several times, with new data each time."""
    (dest, source), count = case.ends(), case.integer("count", 0, 300)
    dtype = case.choose("dtype", DTYPES)
    init = case.choose("send", ["Send_init", "Ssend_init"])
    together, rounds = case.flag("startall"), case.integer("rounds", 1, 3)
    how = case.choose("complete", ["wait", "test", "testall", "waitall", "waitany"])
    data, result = np.zeros(count, dtype), np.zeros(count, dtype)
    requests = [
        case.comm.Recv_init(result, source, case.first_tag),
        getattr(case.comm, init)(data, dest, case.first_tag),
    ]
    results = [type(request).__name__ for request in requests]
    for round_ in range(rounds):
        data[...] = case.data(dtype, count, case.rank, round_)
        if together:
            MPI.Prequest.Startall(requests)
        else:
            for request in requests:
                request.Start()
        if how == "waitall":
            MPI.Request.Waitall(requests)
        elif how == "waitany":
            results.append(sorted(MPI.Request.Waitany(requests) for _ in requests))
        else:
            for request in requests[:: 1 if together else -1]:
                complete(request, how)
        results.append(result.copy())
    inactive = MPI.Status()
    results += [requests[0].Test(inactive), *status_of(inactive, MPI.BYTE)]
    for request in requests:
        request.Free()
    return [*results, *(request == MPI.REQUEST_NULL for request in requests)]


def no_process(case):
    """Send to and receive from PROC_NULL."""
    comm, null, tag = case.comm, MPI.PROC_NULL, case.first_tag
    data, status = np.arange(3.0), MPI.Status()
    comm.Send(data, null, tag)
    comm.Isend(data, null, tag).Wait()
    comm.ssend("nothing", null, tag)
    results = []
    for receive in (
        lambda: comm.Recv(data, null, tag, status),
        lambda: comm.Irecv(data, null, tag).Wait(status),
        lambda: comm.Probe(null, tag, status),
        lambda: comm.Sendrecv(data, null, tag, data, null, MPI.ANY_TAG, status),
    ):
        receive()
        results.append(status_of(status, MPI.DOUBLE))
    results.append(comm.Iprobe(null, tag, status))
    message = comm.Mprobe(null, tag, status)
    results += [message == MPI.MESSAGE_NO_PROC, *status_of(status)]
    message.Recv(data)
    return [*results, comm.recv(source=null, tag=tag), data]


def null_requests(case):
    """Complete requests that are null, and empty lists of requests."""
    null, status, found = MPI.REQUEST_NULL, MPI.Status(), []
    del case
    for requests in ([], [null], [null, null]):
        found += [MPI.Request.Waitall(requests), MPI.Request.Testall(requests)]
        found += [MPI.Request.Waitany(requests) == MPI.UNDEFINED]
        found += [MPI.Request.Testany(requests) == (MPI.UNDEFINED, True)]
        found += [MPI.Request.Waitsome(requests), MPI.Request.Testsome(requests)]
    for call in (MPI.Request().Wait, MPI.Request().Test):
        found += [call(status), status_of(status, MPI.INT)]
    return [*found, bool(null), null == MPI.Request()]


def cancelled(case):
    """Cancel a receive for which no message was sent."""
    requests = [case.comm.Irecv(np.zeros(3), case.rank, case.first_tag) for _ in range(2)]
    status = MPI.Status()
    requests[0].Cancel()
    requests[0].Wait(status)
    result = [status.Is_cancelled(), requests[0] == MPI.REQUEST_NULL]
    case.comm.Send([np.ones(3), MPI.DOUBLE], case.rank, case.first_tag)
    requests[1].Wait(status)
    return [*result, *status_of(status, MPI.DOUBLE)]


def buffered(case):
    """Send from an attached buffer: Bsend, Ibsend, bsend."""
    dest, source = case.ends()
    verb = case.choose("verb", ["Bsend", "Ibsend", "bsend"])
    data = case.data("f8", 20, case.rank)
    MPI.Attach_buffer(bytearray(4096 + MPI.BSEND_OVERHEAD))
    request = getattr(case.comm, verb)(data, dest, case.first_tag)
    if request is not None:
        request.Wait()
    if verb == "bsend":
        result = case.comm.recv(source=source, tag=case.first_tag)
    else:
        result = np.zeros(20)
        case.comm.Recv(result, source, case.first_tag)
    MPI.Detach_buffer()
    return result


def ready(case):
    """Send in ready mode, to a receive that is posted."""
    (dest, source), result = case.ends(), np.zeros(5)
    verb = case.choose("verb", ["Rsend", "Irsend", "Rsend_init"])
    request = case.comm.Irecv(result, source, case.first_tag)
    case.comm.Barrier()
    send = getattr(case.comm, verb)(case.data("f8", 5, case.rank), dest, case.first_tag)
    if verb == "Rsend_init":
        send.Start()
    if send is not None:
        send.Wait()
    if verb == "Rsend_init":
        send.Free()
    request.Wait()
    return result


def pickled_requests(case):
    """Complete requests of pickled messages: waitall, testall, waitany, waitsome ..."""
    comm, results = case.comm, []
    ways = ["waitall", "testall", "waitany", "waitsome", "wait", "test"]
    for number in case.order(len(ways)):
        how, tag = ways[number], case.first_tag + number
        receives = [comm.irecv(source=source, tag=tag) for source in range(case.size)]
        items = [(case.rank, dest, [None] * dest) for dest in range(case.size)]
        sends = [comm.isend(item, dest, tag) for dest, item in enumerate(items)]
        if how == "waitall":
            result = MPI.Request.waitall(receives)
        elif how == "testall":
            result = tested(lambda r=receives: MPI.Request.testall(r))
        elif how == "waitany":
            result = sorted(MPI.Request.waitany(receives) for _ in receives)
        elif how == "waitsome":
            result = []
            while len(result) < case.size:
                result += zip(*MPI.Request.waitsome(receives), strict=True)
            result.sort()
        else:
            result = [
                request.wait() if how == "wait" else tested(request.test) for request in receives
            ]
        results += [how, result, MPI.Request.waitall(sends)]
    return results


def tested(test):
    """Call until the flag that is returned is set; return the rest."""
    flag = False
    while not flag:
        flag, result = test()
    return result
