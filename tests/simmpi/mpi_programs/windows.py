"""One-sided communication without races: each access has elements of its own."""

import numpy as np
from mpi4py import MPI

from .case import error_of, free
from .collectives import code_of

WIDTH = 4  # elements of each access
UPDATES = ("SUM", "MAX", "MIN", "PROD", "REPLACE")


def make_window(case, dtype, count):
    """Make a window in one of several ways, filled with data; return it and its memory."""
    kind = case.choose("window", ["Allocate", "Create", "Allocate_shared"])
    width = np.dtype(dtype).itemsize
    unit = case.choose("unit", [width, 1])
    comm = case.comm
    if kind == "Create":
        memory = np.zeros(count, dtype)
        window = MPI.Win.Create(memory, unit, comm=comm)
    else:
        window = getattr(MPI.Win, kind)(count * width, unit, comm=comm)
        memory = np.frombuffer(window.tomemory(), dtype)
    window.Lock(case.rank)
    memory[:] = case.data(dtype, count, case.rank, 99)
    window.Unlock(case.rank)
    comm.Barrier()
    return window, memory, width // unit


def accesses(case):
    """Access windows of all ranks between two synchronizations of a random kind."""
    dtype, number = case.choose("dtype", ["f8", "i4", "i8", "f4"]), case.integer("number", 1, 8)
    sync = case.choose("sync", SYNCHRONIZED)
    plans = [plan_of(case, i) for i in range(number)]
    window, memory, scale = make_window(case, dtype, WIDTH * 2 * number)
    results = []

    def access(i):
        origin, target, verb, op, strided = plans[i]
        if origin in {case.rank, None}:
            results.append(VERBS[verb](case, window, (i, target, op, strided, dtype, scale)))

    SYNCHRONIZED[sync](case, window, [plan[1] for plan in plans], access)
    return [results, contents(case, window, memory)]


def contents(case, window, memory):
    """Copy the own memory of a window in an epoch, and free the window."""
    window.Lock(case.rank)
    found = memory.copy()
    window.Unlock(case.rank)
    case.comm.Barrier()
    window.Free()
    return found


def plan_of(case, i):
    """Choose one access: its origin (None: every rank), its target, its kind."""
    origin, target = case.integers(f"#{i}", 0, case.size - 1, 2)
    verb = case.choose("verb", VERBS)
    op, strided = case.choose("op", UPDATES), case.flag("strided")
    if verb in {"Accumulate", "Raccumulate"} and op != "REPLACE":
        origin = None
    return origin, target, verb, op, strided


def place(i, strided, dtype, scale):
    """Return where access i goes: all its elements, or every second one."""
    code = code_of(dtype)
    if not strided:
        return (2 * WIDTH * i * scale, WIDTH, code), ()
    made = code.Create_vector(WIDTH, 1, 2).Commit()
    return (2 * WIDTH * i * scale, 1, made), (made,)


KEPT = []  # data of accesses, which are read when the epoch ends


def access_by(verb):
    """Make the access of a call: it writes, reads, or does both at once."""
    name = verb.lower()
    reads, updates = "get" in name, "accumulate" in name

    def run(case, window, access):
        i, target, op, strided, dtype, scale = access
        where, made = place(i, strided, dtype, scale)
        data, result = case.data(dtype, WIDTH, i, case.rank, high=2), np.zeros(WIDTH, dtype)
        buffers = [data] * (updates or not reads) + [result] * reads
        op = "NO_OP" if reads and i % 3 == 0 else op
        operation = [getattr(MPI, op)] * updates
        request = getattr(window, verb)(*buffers, target, where, *operation)
        if request is not None:
            request.Wait()
        KEPT.append(data)
        free(*made)
        return result if reads else None

    return run


VERBS = {verb: access_by(verb) for verb in ("Put", "Get", "Accumulate", "Get_accumulate")}
REQUESTS = {verb: access_by(verb) for verb in ("Rput", "Rget", "Raccumulate", "Rget_accumulate")}


def between_fences(case, window, targets, access):
    window.Fence(MPI.MODE_NOPRECEDE if case.flag("assertion") else 0)
    for i in range(len(targets)):
        access(i)
    window.Fence(MPI.MODE_NOSUCCEED)


def under_locks(case, window, targets, access):
    kind = case.choose("lock", ["LOCK_EXCLUSIVE", "LOCK_SHARED"])
    for i, target in enumerate(targets):
        window.Lock(target, getattr(MPI, kind))
        access(i)
        window.Unlock(target)
    case.comm.Barrier()


def under_lock_all(case, window, targets, access):
    flush = case.choose("flush", ["none", "target", "all", "local"])
    window.Lock_all()
    for i, target in enumerate(targets):
        access(i)
        if flush == "target":
            window.Flush(target)
    if flush == "all":
        window.Flush_all()
    elif flush == "local":
        window.Flush_local_all()
    window.Unlock_all()
    case.comm.Barrier()


def between_posts(case, window, targets, access):
    group = case.comm.Get_group()
    test = case.flag("test")
    window.Post(group)
    window.Start(group)
    for i in range(len(targets)):
        access(i)
    window.Complete()
    if test:
        while not window.Test():
            pass
    else:
        window.Wait()
    group.Free()


SYNCHRONIZED = {
    "fence": between_fences,
    "lock": under_locks,
    "lock_all": under_lock_all,
    "post": between_posts,
}


def request_accesses(case):
    """Access windows with calls that return requests."""
    number = case.integer("number", 1, 6)
    plans = [
        (
            *case.integers(f"#{i}", 0, case.size - 1, 2),
            case.choose("verb", REQUESTS),
            case.choose("op", UPDATES),
            case.flag("strided"),
        )
        for i in range(number)
    ]
    window, memory, scale = make_window(case, "f8", WIDTH * 2 * number)
    results = []
    window.Lock_all()
    for i, (origin, target, verb, op, strided) in enumerate(plans):
        if origin == case.rank:
            results.append(REQUESTS[verb](case, window, (i, target, op, strided, "f8", scale)))
    window.Unlock_all()
    case.comm.Barrier()
    return [results, contents(case, window, memory)]


def counters(case):
    """Count with Fetch_and_op, and elect with Compare_and_swap: results in any order."""
    owner = case.integer("owner", 0, case.size - 1)
    rounds = case.integer("rounds", 1, 3)
    window = MPI.Win.Allocate(16 if case.rank == owner else 0, 8, comm=case.comm)
    if case.rank == owner:
        window.Lock(owner)
        np.frombuffer(window.tomemory(), "i8")[:] = [0, -1]
        window.Unlock(owner)
    case.comm.Barrier()
    one, own, free_mark = np.array(1), np.array(case.rank), np.array(-1)
    found, before = np.zeros((), "i8"), np.zeros((), "i8")
    numbers = []
    window.Lock_all()
    for _ in range(rounds):
        window.Fetch_and_op(one, found, owner, 0, MPI.SUM)
        window.Flush(owner)
        numbers.append(int(found))
    window.Compare_and_swap(own, free_mark, before, owner, 1)
    window.Flush(owner)
    last = np.zeros(2, "i8")
    window.Unlock_all()
    case.comm.Barrier()
    window.Lock(owner, MPI.LOCK_SHARED)
    window.Get(last, owner)
    window.Unlock(owner)
    taken = sorted(n for some in case.comm.allgather(numbers) for n in some)
    winners = case.comm.allgather(int(before) == -1)
    elected = winners[int(last[1])] and sum(winners) == 1
    case.comm.Barrier()
    window.Free()
    return [taken, int(last[0]), elected]


def shared(case):
    """Read and write the memory of other ranks directly."""
    counts = case.integers("counts", 0, 4, case.size)
    own = counts[case.rank]
    window = MPI.Win.Allocate_shared(8 * own, 8, comm=case.comm)
    views, sizes = [], []
    for rank in range(case.size):
        memory, unit = window.Shared_query(rank)
        views.append(np.frombuffer(memory, "i8"))
        sizes.append([memory.nbytes, unit if memory.nbytes else None])
    first, first_unit = window.Shared_query(MPI.PROC_NULL)
    window.Lock_all()
    views[case.rank][:] = case.data("i8", own, case.rank)
    window.Sync()
    case.comm.Barrier()
    window.Sync()
    results = [view.copy() for view in views]
    case.comm.Barrier()
    neighbour = (case.rank + 1) % case.size
    views[neighbour][:] += 1000 * case.rank
    window.Sync()
    case.comm.Barrier()
    results.append(views[case.rank].copy())
    whole = np.frombuffer(views[0], "i8").size if counts[0] else 0
    window.Unlock_all()
    case.comm.Barrier()
    del views, memory, first
    window.Free()
    return [sizes, results, whole, first_unit if any(counts) else None]


def ask(case):
    """Ask about windows of all kinds: attributes, group, name, errors."""
    return [asked(case, kind) for kind in ("Allocate", "Create", "Allocate_shared")]


def asked(case, kind):
    count = case.integer("count", 0, 3)
    if kind == "Create":
        window = MPI.Win.Create(np.zeros(count) if count else None, 8, comm=case.comm)
    else:
        window = getattr(MPI.Win, kind)(8 * count, 8, comm=case.comm)
    group = window.Get_group()
    dropped, itself = [], window
    key = MPI.Win.Create_keyval(delete_fn=lambda *_: dropped.append(case.rank))
    window.Set_attr(key, "value")
    window.Set_name("name")
    flavors = ("FLAVOR_CREATE", "FLAVOR_ALLOCATE", "FLAVOR_SHARED")
    if kind == "Create" and count:
        assert window.attrs == (window.Get_attr(MPI.WIN_BASE), 8 * count, 8)
    result = [
        group.Get_size(),
        group.Get_rank(),
        [window.group_size, window.group_rank, *window.attrs[1:]],
        [window.Get_attr(MPI.WIN_SIZE), window.Get_attr(MPI.WIN_DISP_UNIT)],
        next(name for name in flavors if getattr(MPI, "WIN_" + name) == window.flavor),
        window.Get_attr(key),
        window.Get_name(),
        len(window.tomemory()) if count else 0,
        [bool(window), bool(MPI.WIN_NULL), MPI.Win() == MPI.WIN_NULL, window == itself],
        window.Get_attr(MPI.WIN_CREATE_FLAVOR) == window.flavor,
    ]
    if case.flag("delete"):
        window.Delete_attr(key)
    window.Free()
    MPI.Win.Free_keyval(key)
    group.Free()
    return [*result, dropped, window == MPI.WIN_NULL, error_of(window.Fence)]


def targets(case):
    """Access strided parts of the memory of the next rank."""
    comm = case.comm
    win = MPI.Win.Allocate(12 * 8, 8, comm=comm)
    memory = np.frombuffer(win.tomemory(), "f8")
    memory[:] = comm.rank
    column = MPI.DOUBLE.Create_vector(3, 1, 4).Commit()
    comm.Barrier()
    win.Fence()
    dest = (comm.rank + 1) % comm.size
    values = np.arange(3.0) + 10 * comm.rank
    win.Put(values, dest, (1, 1, column))
    if comm.size > 1:  # one rank would write and update the same memory
        win.Accumulate([values, 3, MPI.DOUBLE], dest, [2, 1, column], MPI.MAX)
    win.Put([values, 1, MPI.DOUBLE], dest, (3,))
    win.Put(values, MPI.PROC_NULL)
    win.Fence()
    result = memory.tolist()
    free(column, win)
    return result


def locks(case):
    """Double a number in turn, under exclusive locks."""
    comm = case.comm
    win = MPI.Win.Allocate(8 if comm.rank == 0 else 0, 8, comm=comm)
    if comm.rank == 0:
        np.frombuffer(win.tomemory(), "i8")[:] = 1
    comm.Barrier()
    value = np.empty(1, "i8")
    for _ in range(3):
        win.Lock(0)
        win.Get(value, 0)
        win.Flush(0)
        value *= 2
        win.Put(value, 0)
        win.Unlock(0)
    comm.Barrier()
    win.Lock(0, MPI.LOCK_SHARED)
    win.Get(value, 0)
    win.Unlock(0)
    win.Free()
    return int(value[0])


def flag(case):
    """Wait for a flag in shared memory."""
    comm = case.comm.Split_type(MPI.COMM_TYPE_SHARED)
    win = MPI.Win.Allocate_shared(8 if comm.rank == 0 else 0, 8, comm=comm)
    memory = np.frombuffer(win.Shared_query(0)[0], "i8")
    win.Lock_all()
    if comm.rank == 0:
        memory[0] = 0
    win.Sync()
    comm.Barrier()
    for turn in range(comm.size):
        if comm.rank == turn:
            while memory[0] != turn:
                win.Sync()
            memory[0] = turn + 1
            win.Sync()
    while memory[0] != comm.size:
        win.Sync()
    comm.Barrier()
    win.Unlock_all()
    result = int(memory[0])
    free(win, comm)
    return result


def spins(case):
    """Wait for a value that ranks get again and again."""
    comm = case.comm
    win = MPI.Win.Allocate(8, 8, comm=comm)
    np.frombuffer(win.tomemory(), "i8")[:] = 0
    comm.Barrier()
    win.Lock_all()
    comm.Barrier()
    value = np.zeros(1, "i8")
    if comm.rank == 0:
        value[0] = 42
        for rank in range(1, comm.size):
            win.Accumulate(value, rank)
        win.Flush_local_all()
        win.Flush_all()
    while value[0] != 42:
        win.Fetch_and_op(np.zeros(1, "i8"), value, comm.rank, 0, MPI.NO_OP)
        win.Flush(comm.rank)
    win.Unlock_all()
    win.Free()
    return int(value[0])


def dynamic(case):
    """Write to memory that the next rank has attached."""
    comm = case.comm
    win = MPI.Win.Create_dynamic(comm=comm)
    memory = np.full(3, comm.rank, "i8")
    win.Attach(memory)
    places = comm.allgather(MPI.Get_address(memory))
    dest = (comm.rank + 1) % comm.size
    win.Fence()
    win.Put(np.array([9], "i8"), dest, MPI.Aint_add(places[dest], 8))
    win.Fence()
    win.Detach(memory)
    result = [memory.tolist(), list(win.attrs[1:]), win.flavor == MPI.WIN_FLAVOR_DYNAMIC]
    win.Free()
    return result


def mistakes(case):
    """Return the classes of errors of wrong calls."""
    win, one, me = MPI.Win.Allocate(80, 8, comm=case.comm), np.ones(1), case.rank
    found = []

    def note(*calls):
        for call, *args in calls:
            try:
                found.append(error_of(call, *args))
            except (ValueError, BufferError) as error:
                found.append(type(error).__name__)

    note((win.Put, one, 0), (win.Get, one, 0), (win.Unlock, 0), (win.Unlock_all,), (win.Flush, 0))
    note((win.Flush_all,), (win.Complete,), (win.Wait,), (win.Test,), (win.Put, one, MPI.PROC_NULL))
    win.Lock(me)
    note((win.Lock, me), (win.Lock_all,), (win.Fence,), (win.Start, MPI.GROUP_EMPTY))
    note((win.Put, one, 9), (win.Put, one, me, -1), (win.Put, one, me, (0, -1)))
    note((win.Put, one, me, (0, 1, MPI.DOUBLE, 0)), (win.Put, one, me, "x"), (win.Attach, one))
    note((win.Get, b"12345678", me), (win.Free,), (win.Compare_and_swap, one, one, one, me))
    note((win.Fetch_and_op, np.ones(2), np.ones(2), me))
    win.Unlock(me)
    win.Start(MPI.GROUP_EMPTY)
    note((win.Start, MPI.GROUP_EMPTY), (win.Put, one, me), (win.Lock, me))
    win.Complete()
    win.Post(MPI.GROUP_EMPTY)
    note((win.Post, MPI.GROUP_EMPTY), (win.Fence,))
    win.Wait()
    win.Fence()
    win.Put(one, me)
    note((win.Lock, me))
    win.Fence(MPI.MODE_NOSUCCEED)
    note((win.Put, one, me))
    win.Free()
    note((win.Free,), (MPI.WIN_NULL.Put, one, 0), (MPI.Win.Allocate, -1), (MPI.Win.Allocate, 8, 0))
    return found
