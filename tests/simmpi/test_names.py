"""The names of mpi4py: each is simulated, or raises a clear error."""

import pytest
from mpi4py import MPI

from simmpi import Simulation, simulate
from simmpi.errors import DeadlockError

REAL = {name: value for name, value in vars(MPI).items() if not name.startswith("_")}


def test_nothing_of_mpi4py_remains():
    kinds = MPI.Comm, MPI.Datatype, MPI.Op, MPI.Group, MPI.Request, MPI.Info, MPI.Errhandler
    kept = {name: each for name, each in REAL.items() if callable(each) or isinstance(each, kinds)}
    with Simulation(1).installed():
        assert [name for name, value in kept.items() if vars(MPI)[name] is value] == []
    assert all(vars(MPI)[name] is value for name, value in REAL.items())
    # No method of mpi4py is forgotten.
    expected = {kind.__name__: set(dir(kind)) for kind in REAL.values() if isinstance(kind, type)}
    of_objects = {"Status": {"source", "tag", "error", "cancelled"}, "Pickle": {"THRESHOLD"}}
    with Simulation(1).installed():
        for name, attributes in expected.items():
            found = vars(MPI)[name]
            if isinstance(found, type) and not issubclass(found, Exception):
                left = {each for each in attributes - set(dir(found)) if not each.startswith("__")}
                assert left - of_objects.get(name, set()) == set(), name


def test_buffered_sends_messages_and_weights():
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

    # A message is received once.
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

    # Weights of graphs can be omitted.
    def main():
        comm = MPI.COMM_WORLD
        graph = comm.Create_dist_graph_adjacent([0], [0], MPI.UNWEIGHTED, MPI.UNWEIGHTED)
        found = [graph.Get_dist_neighbors()[2]]
        graph.Free()
        graph = comm.Create_dist_graph([0], [1], [0], MPI.UNWEIGHTED)
        found.append(graph.Get_dist_neighbors()[2])
        graph.Free()
        return found

    assert simulate(1, main) == [[None, None]]


def test_absent_names_are_no_objects():
    def main():
        assert not isinstance(MPI.COMM_WORLD, MPI.File)
        assert not MPI.FILE_NULL
        assert MPI.Comm.Get_parent() == MPI.COMM_NULL
        for name, use in {
            "File": lambda: MPI.File.Open(MPI.COMM_WORLD, "x"),
            "Comm.Spawn": lambda: MPI.COMM_WORLD.Spawn("x"),
            "Open_port": lambda: MPI.Open_port("x"),
            "Publish_name": lambda: MPI.Publish_name("a", "b"),
            "Session": lambda: MPI.Session.Init(None),
            "File()": lambda: MPI.File(None),
            "handle": lambda: MPI.COMM_WORLD.handle,
            "Psend_init": lambda: MPI.COMM_WORLD.Psend_init,
            "Join": lambda: MPI.Comm.Join(0),
            "Merge": lambda: MPI.Intercomm().Merge(),
            "Create_darray": lambda: MPI.DOUBLE.Create_darray,
            "_addressof": lambda: MPI._addressof(MPI.COMM_WORLD),
        }.items():
            with pytest.raises(NotImplementedError, match="is not simulated; run this") as caught:
                use()
            assert name.strip("()") in str(caught.value)
        return MPI.COMM_WORLD.Idup_with_info()[1].wait()

    with pytest.warns(ResourceWarning, match="never freed"):
        assert simulate(1, main) == [None]


def test_programs_complete_requests_of_their_own():
    def main():
        called = []
        request = MPI.Grequest.Start(
            lambda status, name: called.append((name, status.Get_source() == MPI.ANY_SOURCE)),
            lambda name: called.append((name, "freed")),
            lambda completed, name: called.append((name, completed)),
            ["a"],
        )
        assert not request.Test()
        request.Cancel()
        request.Complete()
        with pytest.raises(MPI.Exception, match="Complete: the request is complete"):
            request.Complete()
        request.Wait()
        return called

    assert simulate(1, main) == [[("a", False), ("a", True), ("a", "freed")]]
    with pytest.raises(DeadlockError, match=r"rank 0 waits in Grequest .*until the program calls"):
        simulate(1, lambda: MPI.Grequest.Start().Wait())


CONSTANTS = [
    *("ANY_SOURCE", "ANY_TAG", "PROC_NULL", "ROOT", "UNDEFINED", "COMM_TYPE_SHARED", "TAG_UB"),
    *("ORDER_C", "ORDER_F", "LOCK_SHARED", "LOCK_EXCLUSIVE", "MODE_NOCHECK", "MODE_NOSUCCEED"),
    *("CART", "GRAPH", "DIST_GRAPH", "IDENT", "CONGRUENT", "SIMILAR", "UNEQUAL", "THREAD_MULTIPLE"),
]


def test_constants_that_a_program_has_taken_before_are_valid():
    with Simulation(1).installed():
        assert {name: getattr(MPI, name) for name in CONSTANTS} == {n: REAL[n] for n in CONSTANTS}

    def receive(source=REAL["ANY_SOURCE"], tag=REAL["ANY_TAG"]):
        return MPI.COMM_WORLD.recv(source=source, tag=tag)

    def main(nowhere=REAL["PROC_NULL"]):
        comm = MPI.COMM_WORLD
        comm.send("nothing", nowhere)
        request = comm.isend(comm.rank, (comm.rank + 1) % comm.size)
        found = receive()
        request.wait()
        return found

    assert simulate(3, main) == [2, 0, 1]
