"""The names of mpi4py: each is simulated, or raises a clear error."""

import pytest
from mpi4py import MPI

from pencils.simulation import Simulation, simulate

REAL = {name: value for name, value in vars(MPI).items() if not name.startswith("_")}


def test_no_function_or_class_of_mpi4py_remains():
    with Simulation(1).installed():
        left = [
            name for name, value in REAL.items() if callable(value) and vars(MPI)[name] is value
        ]
    assert left == []
    assert all(vars(MPI)[name] is value for name, value in REAL.items())


def test_no_object_of_mpi4py_remains():
    kinds = MPI.Comm, MPI.Datatype, MPI.Op, MPI.Group, MPI.Request, MPI.Info, MPI.Errhandler
    objects = [name for name, value in REAL.items() if isinstance(value, kinds)]
    with Simulation(1).installed():
        assert [name for name in objects if vars(MPI)[name] is REAL[name]] == []


def test_what_is_not_simulated_says_so():
    def main():
        with pytest.raises(NotImplementedError, match=r"MPI\.File is not simulated"):
            MPI.File.Open(MPI.COMM_WORLD, "x")
        with pytest.raises(NotImplementedError, match="Spawn: simulated ranks have no such call"):
            MPI.COMM_WORLD.Spawn("x")

    simulate(2, main)


def test_buffered_sends_need_a_buffer():
    def main():
        comm = MPI.COMM_WORLD
        with pytest.raises(MPI.Exception) as raised:
            comm.Bsend(b"x", comm.rank)
        assert raised.value.Get_error_class() == MPI.ERR_BUFFER
        memory = bytearray(100)
        MPI.Attach_buffer(memory)
        comm.bsend(comm.rank, (comm.rank + 1) % comm.size)
        assert comm.recv() == (comm.rank - 1) % comm.size
        assert MPI.Detach_buffer() is memory

    simulate(2, main)


def test_a_message_is_received_once():
    def main():
        comm = MPI.COMM_WORLD
        request = comm.isend("text", comm.rank)
        message = MPI.Message.probe(comm)
        assert message.recv() == "text"
        assert message == MPI.MESSAGE_NULL
        with pytest.raises(MPI.Exception, match="was received before"):
            message.recv()
        request.wait()

    simulate(2, main)
