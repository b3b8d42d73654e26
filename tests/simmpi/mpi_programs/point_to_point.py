"""Messages between two ranks: all modes, wildcards, probes, statuses, and ways to complete."""

import numpy as np
from mpi4py import MPI

from .case import DTYPES, class_of, error_of, status_of

SENDS = ("Send", "Ssend", "Isend", "Issend", "send", "ssend", "isend", "issend")
RECEIVES = ("Recv", "Irecv", "Probe", "Iprobe", "Mprobe", "Improbe", "Imrecv", "None")
PICKLED_RECEIVES = ("recv", "irecv", "probe", "iprobe", "mprobe", "improbe")


def script(case):
    """Send and receive one message after the other, in the same order on all ranks."""
    results, pending = [], []
    for step in range(case.integer("steps", 2, 6)):
        source, dest = case.integers(f"#{step}", 0, case.size - 1, 2)
        verb = case.choose("send", SENDS)
        receive = case.choose("recv", RECEIVES if verb[0] in "SI" else PICKLED_RECEIVES)
        any_source, any_tag = case.choose("any", [(0, 0), (1, 0), (0, 1), (0, 0)])
        dtype, count = case.choose("dtype", DTYPES), case.choose("count", [0, 1, 5, 300, 20_000])
        tag = case.first_tag + step
        data = case.data(dtype, count, step)
        if verb[0] in "si":
            data = {"step": step, "values": data.tolist()[:7], "text": "x" * count}
        if source == dest:
            verb = {"S": "Isend", "I": "Isend", "s": "isend", "i": "isend"}[verb[0]]
        if case.rank == source:
            pending.append(send(case.comm, verb, data, dest, tag))
        if case.rank == dest:
            envelope = {
                "source": MPI.ANY_SOURCE if any_source else source,
                "tag": MPI.ANY_TAG if any_tag else tag,
            }
            results.append(RECEIVE[receive](case.comm, (dtype, count), envelope))
    for request, _ in pending:
        if request is not None:
            request.wait()
    return results


def send(comm, verb, data, dest, tag):
    """Send, and return the request, if any, with what must stay alive."""
    request = getattr(comm, verb)(data, dest=dest, tag=tag)
    return request, data


def buffer_for(shape, extra=3):
    """Return a buffer with room for more than the message."""
    dtype, count = shape
    return np.full(count + extra, 7, dtype)


def receive_into(call, shape):
    """Receive with ``call(buffer, status)``; return the buffer and the status."""
    buffer, status = buffer_for(shape), MPI.Status()
    call(buffer, status)
    return [buffer, *status_of(status, MPI.Datatype.fromcode(buffer.dtype.char))]


def receive(comm, shape, envelope):
    return receive_into(lambda buffer, status: comm.Recv(buffer, **envelope, status=status), shape)


def receive_without_status(comm, shape, envelope):
    buffer = buffer_for(shape)
    comm.Recv(buffer, **envelope)
    return buffer


def receive_later(comm, shape, envelope):
    return receive_into(lambda buffer, status: comm.Irecv(buffer, **envelope).Wait(status), shape)


def probe_first(comm, shape, envelope):
    """Find the size of a message, then receive it from the source with the tag that were found."""
    status = MPI.Status()
    comm.Probe(**envelope, status=status)
    found = {"source": status.Get_source(), "tag": status.Get_tag()}
    shape = (shape[0], status.Get_count(MPI.Datatype.fromcode(np.dtype(shape[0]).char)))
    return [found["source"], found["tag"], receive(comm, shape, found)]


def probe_repeatedly(comm, shape, envelope):
    status = MPI.Status()
    while not comm.Iprobe(**envelope, status=status):
        pass
    return [*status_of(status), receive(comm, shape, envelope)]


def probe_matched(comm, shape, envelope):
    status = MPI.Status()
    message = comm.Mprobe(**envelope, status=status)
    return [*status_of(status), receive_into(message.Recv, shape), message == MPI.MESSAGE_NULL]


def probe_matched_repeatedly(comm, shape, envelope):
    while (message := comm.Improbe(**envelope)) is None:
        pass
    return receive_into(message.Recv, shape)


def receive_matched_later(comm, shape, envelope):
    message = comm.Mprobe(**envelope)
    return receive_into(lambda buffer, status: message.Irecv(buffer).Wait(status), shape)


def unpickle(comm, _, envelope):
    status = MPI.Status()
    return [comm.recv(**envelope, status=status), *status_of(status)]


def unpickle_later(comm, _, envelope):
    status = MPI.Status()
    envelope = {"buf": 1 << 18, **envelope}
    return [comm.irecv(**envelope).wait(status), *status_of(status)]


def unpickle_probed(comm, _, envelope):
    status = MPI.Status()
    return [comm.probe(**envelope, status=status), *status_of(status), comm.recv(**envelope)]


def unpickle_probed_repeatedly(comm, _, envelope):
    while not comm.iprobe(**envelope):
        pass
    return comm.recv(**envelope)


def unpickle_matched(comm, _, envelope):
    status = MPI.Status()
    return [comm.mprobe(**envelope).recv(status), *status_of(status)]


def unpickle_matched_repeatedly(comm, _, envelope):
    while (message := comm.improbe(**envelope)) is None:
        pass
    return message.irecv().wait()


RECEIVE = {
    "Recv": receive,
    "None": receive_without_status,
    "Irecv": receive_later,
    "Probe": probe_first,
    "Iprobe": probe_repeatedly,
    "Mprobe": probe_matched,
    "Improbe": probe_matched_repeatedly,
    "Imrecv": receive_matched_later,
    "recv": unpickle,
    "irecv": unpickle_later,
    "probe": unpickle_probed,
    "iprobe": unpickle_probed_repeatedly,
    "mprobe": unpickle_matched,
    "improbe": unpickle_matched_repeatedly,
}


def exchange(case):
    """Post all receives and sends of random messages, then complete them in a random way."""
    number = case.integer("messages", 1, 8)
    ends = [case.integers(f"#{i}", 0, case.size - 1, 2) for i in range(number)]
    tags = [case.first_tag + tag for tag in case.integers("tags", 0, 2, number)]
    counts = [case.choose("count", [0, 1, 3, 40, 9000]) for _ in range(number)]
    dtype = case.choose("dtype", DTYPES)
    verbs = [case.choose("verb", ["Isend", "Issend"]) for _ in range(number)]
    sends_first = case.flag("sends_first")
    way = case.choose("complete", COMPLETIONS)
    buffers, sends, receives = [], [], []

    def post_sends():
        for i, (source, dest) in enumerate(ends):
            if source == case.rank:
                data = case.data(dtype, counts[i], i)
                buffers.append(data)
                sends.append(getattr(case.comm, verbs[i])(data, dest=dest, tag=tags[i]))

    def post_receives():
        for i, (source, dest) in enumerate(ends):
            if dest == case.rank:
                buffer = np.zeros(max(counts), dtype)
                request = case.comm.Irecv(buffer, source=source, tag=tags[i])
                receives.append((request, buffer))

    for post in [post_sends, post_receives][:: 1 if sends_first else -1]:
        post()
    requests = [request for request, _ in receives] + sends
    statuses = COMPLETIONS[way](requests)
    datatype = MPI.Datatype.fromcode(np.dtype(dtype).char)
    found = [status_of(status, datatype) for status in statuses[: len(receives)]]
    nulls = all(request == MPI.REQUEST_NULL for request in requests)
    return [found, [buffer for _, buffer in receives], nulls]


def wait_each(requests):
    statuses = [MPI.Status() for _ in requests]
    for request, status in zip(requests, statuses, strict=True):
        request.Wait(status)
    return statuses


def test_each(requests):
    statuses = [MPI.Status() for _ in requests]
    pending = list(zip(requests, statuses, strict=True))
    while pending:
        pending = [each for each in pending if not each[0].Test(each[1])]
    return statuses


def wait_all(requests):
    statuses = []
    MPI.Request.Waitall(requests, statuses)
    return statuses


def test_all(requests):
    statuses = []
    while not MPI.Request.Testall(requests, statuses):
        pass
    return statuses


def wait_any(requests):
    statuses = [None] * len(requests)
    for _ in requests:
        status = MPI.Status()
        statuses[MPI.Request.Waitany(requests, status)] = status
    assert MPI.Request.Waitany(requests) == MPI.UNDEFINED
    return statuses


def test_any(requests):
    statuses = [None] * len(requests)
    while None in statuses:
        status = MPI.Status()
        index, flag = MPI.Request.Testany(requests, status)
        if flag:
            statuses[index] = status
    assert MPI.Request.Testany(requests) == (MPI.UNDEFINED, True)
    return statuses


def some(verb):
    """Complete with Waitsome or Testsome."""

    def run(requests):
        take = getattr(MPI.Request, verb)
        statuses = [None] * len(requests)
        while None in statuses:
            found = []
            indices = take(requests, found)
            for index, status in zip(indices, found, strict=False):
                statuses[index] = status
        assert take(requests) is None
        return statuses

    return run


def get_status_then_wait(requests):
    """Ask for the status of a request without completing it."""
    statuses = []
    for request in requests:
        status = MPI.Status()
        while not request.Get_status(status):
            pass
        assert request != MPI.REQUEST_NULL
        statuses.append(status)
        request.Wait()
    return statuses


COMPLETIONS = {
    "wait": wait_each,
    "test": test_each,
    "waitall": wait_all,
    "testall": test_all,
    "waitany": wait_any,
    "testany": test_any,
    "waitsome": some("Waitsome"),
    "testsome": some("Testsome"),
    "get_status": get_status_then_wait,
}


def ring(case):
    """Shift data around with Sendrecv, Sendrecv_replace, sendrecv and their nonblocking forms."""
    shift, count = case.integer("shift", -2, 2), case.integer("count", 0, 50)
    dtype = case.choose("dtype", DTYPES)
    periodic = case.flag("periodic")
    tag, tag_back = case.first_tag, case.choose("recvtag", [case.first_tag, MPI.ANY_TAG])
    dest, source = case.rank + shift, case.rank - shift
    if periodic:
        dest, source = dest % case.size, source % case.size
    else:
        dest, source = (r if 0 <= r < case.size else MPI.PROC_NULL for r in (dest, source))
    data, status = case.data(dtype, count, case.rank), MPI.Status()
    verb = case.choose(
        "verb", ["Sendrecv", "Sendrecv_replace", "sendrecv", "Isendrecv", "Ireplace"]
    )
    ends = (dest, tag, source, tag_back)
    if verb == "sendrecv":
        item = case.comm.sendrecv(data.tolist(), dest, tag, None, source, tag_back, status)
        return [item, *status_of(status)]
    result = np.zeros_like(data)
    if verb == "Sendrecv":
        case.comm.Sendrecv(data, dest, tag, result, source, tag_back, status)
    elif verb == "Isendrecv":  # MPICH leaves the status empty
        case.comm.Isendrecv(data, dest, tag, result, source, tag_back).Wait()
    elif verb == "Ireplace":
        case.comm.Isendrecv_replace(data, *ends).Wait()
        result = data
    else:
        case.comm.Sendrecv_replace(data, *ends, status)
        result = data
    found = status_of(status, MPI.Datatype.fromcode(data.dtype.char))
    return [result, *(found if verb[0] == "S" else [])]


def gather_any(case):
    """Receive one message from each rank, in any order."""
    root = case.integer("root", 0, case.size - 1)
    pickled, any_tag = case.flag("pickled"), case.flag("any_tag")
    case.comm.Barrier()
    request = None
    if pickled:
        request = case.comm.isend([case.rank, "x" * case.rank], root, case.first_tag + case.rank)
    else:
        data = case.data("i8", case.rank + 1, case.rank)
        request = case.comm.Issend(data, root, case.first_tag + (case.rank if any_tag else 0))
    results = []
    if case.rank == root:
        tag = MPI.ANY_TAG if any_tag or pickled else case.first_tag
        for _ in range(case.size):
            status = MPI.Status()
            if pickled:
                item = case.comm.recv(source=MPI.ANY_SOURCE, tag=tag, status=status)
            else:
                item = np.zeros(case.size, "i8")
                case.comm.Recv(item, MPI.ANY_SOURCE, tag, status)
                item = item.tolist()
            results.append([status.Get_source(), status.Get_tag(), item])
    request.wait()
    case.comm.Barrier()
    return sorted(results)


def errors(case):
    """Make calls that all MPI libraries refuse, with the same class of error."""
    data = np.zeros(4)
    comm, size, tag = case.comm, case.size, case.first_tag
    truncated = None
    if case.flag("truncate"):
        request = comm.Isend(np.arange(4.0), case.rank, tag)
        try:
            comm.Recv(np.zeros(2), case.rank, tag)
        except MPI.Exception as error:
            truncated = class_of(error)
        request.Wait()
    return [
        truncated,
        error_of(comm.Send, data, size, tag),
        error_of(comm.Send, data, -7, tag),
        error_of(comm.Isend, data, 0, -7),
        error_of(comm.Recv, data, size + 3, tag),
        error_of(comm.Irecv, data, 0, -7),
        error_of(comm.Send, [data, 4, MPI.DATATYPE_NULL], 0, tag),
        error_of(comm.Probe, size, tag),
        error_of(comm.Bcast, data, size),
        error_of(comm.Bcast, data, -1),
        error_of(MPI.COMM_NULL.Send, data, 0, tag),
        error_of(MPI.COMM_NULL.Barrier),
        error_of(MPI.COMM_NULL.Get_rank),
        error_of(MPI.COMM_NULL.Dup),
        error_of(MPI.GROUP_NULL.Get_size),
        error_of(MPI.DATATYPE_NULL.Get_size),
    ]
