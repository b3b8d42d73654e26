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
    return getattr(comm, verb)(data, dest=dest, tag=tag), data


def received(call, shape, *more):
    """Receive by ``call(buffer, status)`` into room for more; return buffer, status, and `more`."""
    dtype, count = shape
    buffer, status = np.full(count + 3, 7, dtype), MPI.Status()
    call(buffer, status)
    return [buffer, *status_of(status, MPI.Datatype.fromcode(buffer.dtype.char)), *more]


def receive(comm, shape, envelope):
    return received(lambda buffer, status: comm.Recv(buffer, **envelope, status=status), shape)


def probe_first(comm, shape, envelope):
    """Find the size of a message, then receive it from the source with the tag that were found."""
    status = MPI.Status()
    comm.Probe(**envelope, status=status)
    found = {"source": status.Get_source(), "tag": status.Get_tag()}
    shape = (shape[0], status.Get_count(MPI.Datatype.fromcode(np.dtype(shape[0]).char)))
    return [found["source"], found["tag"], receive(comm, shape, found)]


def until(probe):
    """Probe until there is a message, or True."""
    while not (message := probe()):
        pass
    return message


def probe_repeatedly(comm, shape, envelope):
    status = MPI.Status()
    until(lambda: comm.Iprobe(**envelope, status=status))
    return [*status_of(status), receive(comm, shape, envelope)]


def probe_matched(comm, shape, envelope):
    status = MPI.Status()
    message = comm.Mprobe(**envelope, status=status)
    return [*status_of(status), received(message.Recv, shape), message == MPI.MESSAGE_NULL]


def receive_matched_later(comm, shape, envelope):
    message = comm.Mprobe(**envelope)
    return received(lambda buffer, status: message.Irecv(buffer).Wait(status), shape)


def unpickle(receive):
    """Receive an object by ``receive(comm, envelope, status)``; return it and the status."""

    def run(comm, _, envelope):
        status = MPI.Status()
        found = receive(comm, envelope, status)
        return [found, *status_of(status)]

    return run


RECEIVE = {
    "Recv": receive,
    "None": lambda comm, shape, envelope: received(
        lambda buffer, _: comm.Recv(buffer, **envelope), shape
    )[0],
    "Irecv": lambda comm, shape, envelope: received(
        lambda buffer, status: comm.Irecv(buffer, **envelope).Wait(status), shape
    ),
    "Probe": probe_first,
    "Iprobe": probe_repeatedly,
    "Mprobe": probe_matched,
    "Improbe": lambda comm, shape, envelope: received(
        until(lambda: comm.Improbe(**envelope)).Recv, shape
    ),
    "Imrecv": receive_matched_later,
    "recv": unpickle(lambda comm, envelope, status: comm.recv(**envelope, status=status)),
    "irecv": unpickle(
        lambda comm, envelope, status: comm.irecv(buf=1 << 18, **envelope).wait(status)
    ),
    "probe": unpickle(
        lambda comm, envelope, status: (
            comm.probe(**envelope, status=status),
            comm.recv(**envelope),
        )
    ),
    "iprobe": unpickle(
        lambda comm, envelope, status: (
            until(lambda: comm.iprobe(**envelope, status=status)),
            comm.recv(**envelope),
        )
    ),
    "mprobe": unpickle(lambda comm, envelope, status: comm.mprobe(**envelope).recv(status)),
    "improbe": unpickle(
        lambda comm, envelope, status: until(lambda: comm.improbe(**envelope)).irecv().wait(status)
    ),
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


def each(complete):
    """Complete requests one by one, in turn until all are: ``complete(request, status)``."""

    def run(requests):
        statuses = [MPI.Status() for _ in requests]
        pending = list(zip(requests, statuses, strict=True))
        while pending:
            pending = [pair for pair in pending if complete(*pair) is False]
        return statuses

    return run


def wait_all(requests):
    statuses = []
    MPI.Request.Waitall(requests, statuses)
    return statuses


def test_all(requests):
    statuses = []
    while not MPI.Request.Testall(requests, statuses):
        pass
    return statuses


def any_of(verb):
    """Complete with Waitany or Testany."""
    nothing = MPI.UNDEFINED if verb == "Waitany" else (MPI.UNDEFINED, True)

    def run(requests):
        take, statuses = getattr(MPI.Request, verb), [None] * len(requests)
        while None in statuses:
            status = MPI.Status()
            found = take(requests, status)
            index, flag = (found, True) if verb == "Waitany" else found
            if flag:
                statuses[index] = status
        assert take(requests) == nothing
        return statuses

    return run


def some(verb):
    """Complete with Waitsome or Testsome."""

    def run(requests):
        take, statuses = getattr(MPI.Request, verb), [None] * len(requests)
        while None in statuses:
            found = []
            for index, status in zip(take(requests, found), found, strict=False):
                statuses[index] = status
        assert take(requests) is None
        return statuses

    return run


def get_status_then_wait(request, status):
    """Ask for the status of a request without completing it."""
    while not request.Get_status(status):
        pass
    assert request != MPI.REQUEST_NULL
    request.Wait()


COMPLETIONS = {
    "wait": each(lambda request, status: request.Wait(status)),
    "test": each(lambda request, status: request.Test(status)),
    "waitall": wait_all,
    "testall": test_all,
    "waitany": any_of("Waitany"),
    "testany": any_of("Testany"),
    "waitsome": some("Waitsome"),
    "testsome": some("Testsome"),
    "get_status": each(get_status_then_wait),
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
    null, wrong = MPI.COMM_NULL, [data, 4, MPI.DATATYPE_NULL]
    calls = [(comm.Send, data, size, tag), (comm.Send, data, -7, tag), (comm.Isend, data, 0, -7)]
    calls += [
        (comm.Recv, data, size + 3, tag),
        (comm.Irecv, data, 0, -7),
        (comm.Send, wrong, 0, tag),
    ]
    calls += [(comm.Probe, size, tag), (comm.Bcast, data, size), (comm.Bcast, data, -1)]
    calls += [(null.Send, data, 0, tag), (null.Barrier,), (null.Get_rank,), (null.Dup,)]
    calls += [(MPI.GROUP_NULL.Get_size,), (MPI.DATATYPE_NULL.Get_size,)]
    return [truncated, *(error_of(*call) for call in calls)]
