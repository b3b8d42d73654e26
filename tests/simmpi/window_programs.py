"""Programs with windows, which return the same on simulated ranks and with an MPI library.

Random accesses in all kinds of epochs are those of `mpi_programs.windows`. Run by ``mpiexec -n 3``,
the module prints what all ranks return.
"""

import sys

import numpy as np
from mpi4py import MPI


def targets():
    comm = MPI.COMM_WORLD
    win = MPI.Win.Allocate(12 * 8, 8, comm=comm)
    memory = np.frombuffer(win.tomemory(), "f8")
    memory[:] = comm.rank
    column = MPI.DOUBLE.Create_vector(3, 1, 4).Commit()
    comm.Barrier()
    win.Fence()
    dest = (comm.rank + 1) % comm.size
    values = np.arange(3.0) + 10 * comm.rank
    win.Put(values, dest, (1, 1, column))
    win.Accumulate([values, 3, MPI.DOUBLE], dest, [2, 1, column], MPI.MAX)
    win.Put([values, 1, MPI.DOUBLE], dest, (3,))
    win.Put(values, MPI.PROC_NULL)
    win.Fence()
    column.Free()
    result = memory.tolist()
    win.Free()
    return result


def locks():
    comm = MPI.COMM_WORLD
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


def flag():
    """Ranks wait for a flag in shared memory."""
    comm = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    win = MPI.Win.Allocate_shared(8 if comm.rank == 0 else 0, 8, comm=comm)
    memory = np.frombuffer(win.Shared_query(0)[0], "i8")
    win.Lock_all()
    comm.Barrier()
    if comm.rank == 0:
        memory[0] = 1
        win.Sync()
    for turn in range(1, comm.size):
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
    win.Free()
    comm.Free()
    return result


def spins():
    """Ranks wait for a value that they get again and again."""
    comm = MPI.COMM_WORLD
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


def dynamic():
    comm = MPI.COMM_WORLD
    win = MPI.Win.Create_dynamic(comm=comm)
    memory = np.full(3, comm.rank, "i8")
    win.Attach(memory)
    places = comm.allgather(MPI.Get_address(memory))
    dest = (comm.rank + 1) % comm.size
    win.Fence()
    win.Put(np.array([9], "i8"), dest, MPI.Aint_add(places[dest], 8))
    win.Fence()
    win.Detach(memory)
    result = memory.tolist(), win.attrs[1:], win.flavor == MPI.WIN_FLAVOR_DYNAMIC
    win.Free()
    return result


def description():
    comm = MPI.COMM_WORLD
    memory = np.zeros(5)
    win = MPI.Win.Create(memory, 8, comm=comm)
    empty = MPI.Win.Create(None, comm=comm)
    win.Set_name("pressure")
    keyval = MPI.Win.Create_keyval(delete_fn=lambda *_: dropped.append(comm.rank))
    dropped = []
    win.Set_attr(keyval, [comm.rank])
    result = (
        win.attrs == (memory.ctypes.data, 40, 8),
        empty.attrs,
        win.Get_attr(MPI.WIN_BASE) == memory.ctypes.data,
        win.Get_attr(MPI.WIN_SIZE),
        win.Get_attr(MPI.WIN_DISP_UNIT),
        win.Get_attr(MPI.WIN_CREATE_FLAVOR) == MPI.WIN_FLAVOR_CREATE,
        win.Get_attr(keyval),
        (win.Get_group().size, win.Get_group().rank),
        (win.name, bool(win), bool(MPI.WIN_NULL), MPI.Win() == MPI.WIN_NULL),
        win != empty,
    )
    win.Free()
    empty.Free()
    MPI.Win.Free_keyval(keyval)
    return *result, dropped, bool(win)


def errors():
    """Return the classes of errors that both give."""
    comm = MPI.COMM_WORLD
    win = MPI.Win.Allocate(80, 8, comm=comm)
    one = np.ones(1)

    def of(call, *args):
        try:
            call(*args)
        except MPI.Exception as error:
            known = {getattr(MPI, name): name for name in dir(MPI) if name.startswith("ERR_")}
            return known[error.Get_error_class()]
        except (ValueError, BufferError) as error:
            return type(error).__name__
        return None

    me = comm.rank
    found = [of(win.Put, one, 0), of(win.Get, one, 0), of(win.Unlock, 0), of(win.Unlock_all)]
    found += [of(win.Flush, 0), of(win.Flush_all), of(win.Complete), of(win.Wait), of(win.Test)]
    found += [of(win.Put, one, MPI.PROC_NULL)]
    win.Lock(me)
    found += [of(win.Lock, me), of(win.Lock_all), of(win.Fence), of(win.Start, MPI.GROUP_EMPTY)]
    found += [of(win.Put, one, 9), of(win.Put, one, me, -1), of(win.Put, one, me, (0, -1))]
    found += [of(win.Put, one, me, (0, 1, MPI.DOUBLE, 0)), of(win.Put, one, me, "x")]
    found += [of(win.Get, b"12345678", me), of(win.Attach, one), of(win.Free)]
    found += [of(win.Compare_and_swap, one, one, one, me)]
    found += [of(win.Fetch_and_op, np.ones(2), np.ones(2), me)]
    win.Unlock(me)
    win.Start(MPI.GROUP_EMPTY)
    found += [of(win.Start, MPI.GROUP_EMPTY), of(win.Put, one, me), of(win.Lock, me)]
    win.Complete()
    win.Post(MPI.GROUP_EMPTY)
    found += [of(win.Post, MPI.GROUP_EMPTY), of(win.Fence)]
    win.Wait()
    win.Fence()
    win.Put(one, me)
    found += [of(win.Lock, me)]
    win.Fence(MPI.MODE_NOSUCCEED)
    found += [of(win.Put, one, me)]
    win.Free()
    found += [of(win.Free), of(MPI.WIN_NULL.Put, one, 0), of(MPI.Win.Allocate, -1)]
    return [*found, of(MPI.Win.Allocate, 8, 0)]


PROGRAMS = [targets, locks, flag, spins, dynamic, description]
if "Open MPI" not in MPI.Get_library_version():  # which does not notice some errors
    PROGRAMS += [errors]

if __name__ == "__main__":
    for program in PROGRAMS:
        results = MPI.COMM_WORLD.gather(program())
        if results is not None:
            print(program.__name__, results, flush=True)
    sys.exit(0)
