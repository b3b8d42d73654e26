"""Profiles: counts and bytes against known values, summaries that all ranks have, traces."""

import json

import numpy as np
import pytest
from mpi4py import MPI
from mpi_helpers import METHODS

import pencils
from pencils.errors import ArgumentError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])


def owners(pencil):
    """Rank that has each point, on all ranks."""
    return pencils.gather(pencils.full(pencil, fill_value=pencil.rank, dtype=int), root=None)


def moved(source, target):
    """Bytes of doubles that this rank sends, receives and keeps."""
    here, there = owners(source) == source.rank, owners(target) == source.rank
    parts = (here & ~there), (there & ~here), (here & there)
    return tuple(8 * int(part.sum()) for part in parts)


def check_sums(p):
    seconds = p.recorder.seconds
    assert min(seconds.values()) >= 0
    assert sum(seconds.values()) <= p.recorder.whole * (1 + 1e-9)
    for phase in p.phases.values():
        for low, mean, high in phase:
            assert low <= mean * (1 + 1e-9)
            assert mean <= high * (1 + 1e-9)


@pytest.mark.parametrize("shape", [(9, 8, 7), (48, 40, 40)])
@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_bytes_of_transposes(comm, shape, method):
    source = pencils.Pencil(shape, comm, decomp=0)
    target = source.with_(decomp=1)
    u, v = pencils.ones(source), pencils.empty(target)
    with pencils.Transposition(source, target, method=method) as plan:
        plan(u, v)
        with pencils.profile(comm) as p:
            for _ in range(3):
                plan(u, v)
            plan.start(u, v).wait()
    bytes_here = moved(source, target)
    assert [p.recorder.nbytes[name] for name in ("pack", "unpack", "copy")] == [
        4 * nbytes for nbytes in bytes_here
    ]
    for name in ("pack", "unpack", "copy"):
        assert p.recorder.calls[name] == 4
        assert p.phases[name].calls == (4, 4, 4)
    assert p.recorder.calls["agree"] == (4 if comm.size > 1 else 0)
    assert p.phases["pack"].nbytes.high == comm.allreduce(4 * bytes_here[0], op=max)
    assert p.phases["pack"].nbytes.mean * comm.size == comm.allreduce(4 * bytes_here[0])
    check_sums(p)


def test_bytes_of_several_fields_and_of_the_same_memory(comm, mpi_tmp_path):
    source = pencils.Pencil((40, 40, 36), comm, decomp=0)
    target = source.with_(decomp=1)
    sent, received, kept = moved(source, target)
    with pencils.Transposition(source, target) as plan, pencils.profile(comm) as p:
        plan.batch([pencils.ones(source) for _ in range(3)])
    assert (p.recorder.nbytes["pack"], p.recorder.nbytes["unpack"]) == (3 * sent, 3 * received)
    assert p.recorder.nbytes["copy"] == 3 * kept
    u, v = pencils.alias([source, target])
    pencils.transpose(u, target, out=v)
    with pencils.profile(comm) as p:
        pencils.transpose(u, target, out=v)
    assert (p.recorder.nbytes["pack"], p.recorder.nbytes["unpack"]) == (sent, received)
    # Bytes of files.
    u = pencils.ones(pencils.Pencil((6, 5), comm))
    with pencils.profile(comm) as p:
        pencils.save(mpi_tmp_path / "u.h5", {"u": u})
    assert comm.allreduce(p.recorder.nbytes["I/O"]) >= 6 * 5 * 8
    with pencils.profile(comm) as p:
        pencils.load(mpi_tmp_path / "u.h5", into={"u": u})
    assert p.recorder.nbytes["I/O"] >= u.local.nbytes


@pytest.mark.parametrize("columns", [6, 30_000])
def test_bytes_of_halos(comm, columns):
    pencil = pencils.Pencil((2 * comm.size, columns), comm, decomp=0, periodic=True)
    u = pencils.ones(pencil, halo=(1, 0))
    u.exchange_halo()
    with pencils.profile(comm) as p:
        u.exchange_halo()
        u.start_halo_exchange().wait()
    nbytes = 2 * 2 * 8 * columns if comm.size > 1 else 0
    assert p.recorder.nbytes["pack"] == nbytes
    assert p.recorder.nbytes["unpack"] == nbytes
    check_sums(p)


def test_texts_and_mistakes(comm, mpi_tmp_path):
    with pencils.profile(comm) as p:
        pencils.ones(pencils.Pencil((6, 5), comm)).sum()
    if comm.rank == 0:
        assert [line.split("  ")[0] for line in str(p).splitlines()] == ["phase", *p.phases]
    comm.Barrier()
    # An exception ends a profile without a summary.
    with pytest.raises(ZeroDivisionError), pencils.profile(comm) as p:
        1 / 0  # noqa: B018
    assert p.phases == {}
    assert "raised an exception" in str(p)
    with pytest.raises(ArgumentError, match="no summary"):
        p.save(mpi_tmp_path / "trace.json")
    with pencils.profile(comm) as p:  # the next one records
        pass
    assert p.phases["whole"].seconds.high > 0
    # Wrong arguments.
    with pytest.raises(ArgumentError, match="at least 0"):
        pencils.profile(comm, events=-1)
    with pencils.profile(comm), pytest.raises(ArgumentError, match="records already"):
        pencils.profile(comm).__enter__()
    # A trace that cannot be written raises on all ranks.
    with pencils.profile(comm) as p:
        pass
    with pytest.raises(OSError, match="trace"):
        p.save(mpi_tmp_path / "nowhere" / "trace.json")


def test_a_trace_has_a_lane_for_each_rank(comm, mpi_tmp_path):
    source = pencils.Pencil((8, 8), comm, decomp=0)
    u, target = pencils.ones(source), source.with_(decomp=1)
    own = pencils.ones(pencils.Pencil((4, 4), MPI.COMM_SELF, decomp=0))
    with pencils.profile(comm) as p:
        for _ in range(comm.rank):  # ranks have different numbers of events
            pencils.transpose(own, own.pencil.with_(decomp=1))
        pencils.transpose(u, target)
    p.save(mpi_tmp_path / "trace.json")
    events = json.loads((mpi_tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["tid"] for event in events} == set(range(comm.size))
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == [f"rank {rank}" for rank in range(comm.size)]
    mine = [event for event in events if event["ph"] == "X" and event["tid"] == comm.rank]
    assert len(mine) == len(p.recorder.events) // 4
    assert min(event["ts"] for event in mine) >= 0
    nbytes = sum(event["args"]["bytes"] for event in mine if event["name"] == "unpack")
    assert nbytes == p.recorder.nbytes["unpack"]


# What the Trace Event Format asks of the events of each phase of its own, and the type of each.
FIELDS = {"ph": str, "name": str, "pid": int, "tid": int, "args": dict}
TIMES = {"ts": float, "dur": float, "cat": str}


def check_format(trace):
    """Check for the object form of the Trace Event Format, with metadata and complete events."""
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        fields = FIELDS | (TIMES if event["ph"] == "X" else {})
        assert {name: type(value) for name, value in event.items()} == fields
        if event["ph"] == "M":
            (key,) = event["args"]
            assert (event["name"], key) in {("thread_name", "name"), ("thread_sort_index", key)}
        else:
            assert event["ph"] == "X"
            assert event["ts"] >= 0
            assert event["dur"] >= 0


def check_nesting(lane):
    """Check that each event ends inside of the one in which it begins: viewers stack them."""
    open_until = []
    for event in sorted(lane, key=lambda event: (event["ts"], -event["dur"])):
        end = event["ts"] + event["dur"]
        while open_until and open_until[-1] <= event["ts"] + 1e-3:  # microseconds
            open_until.pop()
        assert not open_until or end <= open_until[-1] + 1e-3
        open_until.append(end)


def test_a_trace_is_one_that_viewers_read(comm, mpi_tmp_path):
    u = pencils.ones(pencils.Pencil((12, 9, 8), comm, periodic=True), halo=1)
    target = u.pencil.with_(decomp=(1, 2))
    with pencils.profile(comm) as p:
        for _ in range(3):
            pencils.transpose(u, target)
            u.exchange_halo()
            u.sum()
            pencils.save(mpi_tmp_path / "u.h5", {"u": u})
            pencils.load(mpi_tmp_path / "u.h5", target)
    p.save(mpi_tmp_path / "trace.json")
    trace = json.loads((mpi_tmp_path / "trace.json").read_text())
    check_format(trace)
    for rank in range(comm.size):
        mine = [event for event in trace["traceEvents"] if event["tid"] == rank]
        assert [event["name"] for event in mine[:2]] == ["thread_name", "thread_sort_index"]
        assert {event["ph"] for event in mine[2:]} == {"X"}
        check_nesting(mine[2:])


def test_first_calls(comm, monkeypatch):
    pencil = pencils.Pencil((17, 13), comm, decomp=0)
    u, other = pencils.ones(pencil), pencil.with_(decomp=1)
    makers = [
        lambda: pencils.Transposition(pencil, other),
        lambda: pencils.HaloExchange(pencils.ones(pencil, halo=1)),
        lambda: pencils.fft.PencilFFT(pencil, backend="scipy"),
        lambda: pencils.lines.LineSolver(pencil, 0, (1, 4, 1)),
        lambda: pencils.indexer.PointIndexer(pencil, (0, 0)),
        lambda: pencils.indexer.Interpolation(pencil, (0.5, 0.5)),
        lambda: pencils.indexer.GlobalIndexer(range(comm.size + 1), [0], comm),
    ]
    for make in makers:
        with pencils.profile(comm) as p, make():
            pass
        assert p.phases["plan"].calls.low == 1
        assert p.phases["plan"].seconds.low > 0
        check_sums(p)
    plans = []
    for _ in range(2):
        with pencils.profile(comm) as p:
            pencils.transpose(u, other)
        plans.append(p.phases["plan"].calls)
    assert plans == [(1, 1, 1), (0, 0, 0)]
    monkeypatch.delitem(vars(pencils), "transpose")  # as if no call had imported it
    with pencils.profile(comm) as p:
        pencils.transpose(u, other)
    assert p.recorder.calls["import"] == 1


def test_events_beyond_the_limit_are_counted(comm, mpi_tmp_path):
    pencil = pencils.Pencil((8, 8), comm, decomp=0)
    u = pencils.ones(pencil)
    target = pencil.with_(decomp=1)
    with pencils.profile(comm, events=2) as p:
        for _ in range(3):
            pencils.transpose(u, target)
    assert len(p.recorder.events) == 2 * 4
    assert p.recorder.omitted > 0
    omitted = comm.allreduce(p.recorder.omitted)
    assert f"{omitted} events of all ranks are not in the trace" in str(p)
    assert p.recorder.calls["unpack"] == 3
    p.save(mpi_tmp_path / "trace.json")
    # A profile on some ranks only, of a communicator that includes only these.
    own = comm.Split(comm.rank % 2)
    u = pencils.ones(pencils.Pencil((8, 8), comm))
    target = u.pencil.with_(decomp=1)
    if comm.rank % 2:
        pencils.transpose(u, target)
    else:
        with pencils.profile(own) as p:
            pencils.transpose(u, target)
        assert p.phases["pack"].calls.low >= 1
    own.Free()
    np.testing.assert_array_equal(u.local, 1)
