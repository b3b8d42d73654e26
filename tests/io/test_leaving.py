"""A ``with`` block whose body fails on some ranks: the others are told at its end, nobody waits."""

import contextlib
import gc
from functools import partial

import pytest

import pencils
from pencils.comm.file import SharedFile
from pencils.errors import CheckpointError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

KINDS = ["open", "series", "checkpoints", "pending", "saving"]


@contextlib.contextmanager
def block(kind, folder, comm):
    """Enter a block that communicates in the end, and do a part of what is done there."""
    pencil = pencils.Pencil((6, 5), comm)
    u = pencils.ones(pencil)
    if kind == "open":
        pencils.save(folder / "a.h5", {"u": pencils.zeros(pencil), "v": u})
        with pencils.open(folder / "a.h5", "r+", comm) as file:
            file["u"].write(u)
            yield file
    elif kind == "series":
        with pencils.TimeSeries(folder / "out", "w", comm=comm) as series:
            series.append(1.0, {"u": u})
            yield series
    elif kind == "saving":
        with pencils.save(folder / "b.h5", {"u": u}, wait=False) as saving:
            yield saving
    else:
        with pencils.CheckpointSeries(folder / "run", "w", signals=(), comm=comm) as checkpoints:
            checkpoints.save(1, {"u": u}, wait=kind == "checkpoints")
            yield checkpoints


def stumble(error):
    if error is not None:
        raise error


def outcome(kind, folder, comm, error):
    """Leave a block by an error, or by none; what comes out of it."""
    try:
        with block(kind, folder, comm):
            stumble(error)
    except BaseException as raised:  # noqa: BLE001 - compared by the test
        return raised.with_traceback(None)  # which refers to a file that is locked until it is gone
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_fails(lab, mpi_tmp_path, kind):
    comm = lab.comm
    for rank in {0, comm.size - 1, comm.size // 2}:
        mine = KeyError("the pump is broken") if comm.rank == rank else None
        raised = outcome(kind, mpi_tmp_path, comm, mine)
        assert lab.everywhere(isinstance(raised, KeyError))
        if mine is None:
            assert raised.args == (f"rank {rank}: 'the pump is broken'",)
        else:
            assert raised is mine
    assert outcome(kind, mpi_tmp_path, comm, None) is None
    u = pencils.ones(pencils.Pencil((6, 5), comm))
    pencils.save(mpi_tmp_path / "c.h5", {"u": u})


@pytest.mark.parametrize("kind", KINDS)
def test_several_fail_each_in_its_own_way(lab, mpi_tmp_path, kind):
    comm = lab.comm
    mine = OSError(comm.rank + 1, "no answer") if comm.rank % 2 == 0 else None
    raised = outcome(kind, mpi_tmp_path, comm, mine)
    assert lab.everywhere(isinstance(raised, OSError))
    assert raised.errno == comm.rank + 1 if mine else raised.args == (1, "rank 0: no answer")
    mine = ValueError(f"by {comm.rank}")
    assert outcome(kind, mpi_tmp_path, comm, mine) is mine
    assert outcome(kind, mpi_tmp_path, comm, None) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("kind", KINDS)
def test_what_ends_one_process_is_an_error_on_the_others(lab, mpi_tmp_path, kind, error):
    comm = lab.comm
    last = comm.rank == comm.size - 1
    mine = error("enough") if last else None
    raised = outcome(kind, mpi_tmp_path, comm, mine)
    if last:
        assert raised is mine
    else:
        assert type(raised) is RuntimeError
        assert str(raised) == f"rank {comm.size - 1}: left the block by {mine_text(error)}"
    assert outcome(kind, mpi_tmp_path, comm, None) is None


def mine_text(error):
    return repr(error("enough"))


class OddError(Exception):
    """Takes more than a text, and has more to say than a message holds."""

    def __init__(self, one, other):
        super().__init__(one, other)

    def __str__(self):
        return "ä" * 10_000


def test_long_texts_are_cut(lab, mpi_tmp_path):
    mine = OddError(1, 2) if lab.comm.rank == 0 else None
    raised = outcome("open", mpi_tmp_path, lab.comm, mine)
    if mine is None:
        assert type(raised) is Exception
        assert str(raised).startswith("rank 0: ää")
        assert str(raised).endswith("ä ...")


def test_blocks_within_each_other(lab, mpi_tmp_path):
    comm = lab.comm
    outer = pencils.CheckpointSeries(mpi_tmp_path / "run", signals=(), comm=comm)
    mine = ValueError("here") if comm.rank == comm.size - 1 else None
    with pytest.raises(ValueError, match="here"), outer:  # noqa: PT012 - the inner one raises
        raised = outcome("series", mpi_tmp_path, comm, mine)
        assert lab.everywhere(isinstance(raised, ValueError))
        raise raised
    inner = pencils.TimeSeries(mpi_tmp_path / "out", comm=comm)
    with pytest.raises(ValueError, match="here"), outer, inner:
        stumble(mine)


def test_many_failures_leave_no_messages(lab, mpi_tmp_path):
    from pencils.comm import failure

    pencils.TimeSeries(mpi_tmp_path / "out", comm=lab.comm).close()
    for number in range(20):
        mine = ValueError if lab.comm.rank == number % lab.comm.size else None
        with contextlib.suppress(ValueError), pencils.TimeSeries(mpi_tmp_path / "out") as series:
            series.truncate(0)
            if mine:
                raise mine
    lab.comm.barrier()
    assert len(failure._started()) <= 2


def test_what_a_failed_block_leaves(lab, mpi_tmp_path):
    comm = lab.comm
    u = pencils.ones(pencils.Pencil((6, 5), comm))
    for kind in ("series", "open", "saving", "pending"):
        mine = ValueError("no") if comm.rank == comm.size - 1 else None
        assert isinstance(outcome(kind, mpi_tmp_path, comm, mine), ValueError)

    assert lab.stored(mpi_tmp_path / "out")["time"].tolist() == [1.0]
    kind, text = lab.raised(pencils.verify, mpi_tmp_path / "a.h5", comm)
    assert kind is CheckpointError
    assert "checksum of 'u' does" in text
    assert "'v'" not in text
    gc.collect()  # the file that could still have been closed
    left = lab.on_root(lambda: sorted(path.name for path in mpi_tmp_path.iterdir()))
    assert left == ["a.h5", "out", "run"]
    assert not lab.on_root(lambda: list((mpi_tmp_path / "run").iterdir()))
    with pencils.TimeSeries(mpi_tmp_path / "out", comm=comm) as series:
        series.append(2.0, {"u": u})
    assert lab.stored(mpi_tmp_path / "out")["time"].tolist() == [1.0, 2.0]


def test_a_file_can_still_be_closed(lab, mpi_tmp_path):
    comm, path = lab.comm, mpi_tmp_path / "a.h5"
    u = pencils.ones(pencils.Pencil((6, 5), comm))
    pencils.save(path, {"u": 0 * u})
    file = pencils.open(path, "r+", comm)
    file["u"].write(u)
    with pytest.raises(ValueError, match="no"), file:
        stumble(ValueError("no") if comm.rank == 0 else None)
    file.close()
    assert pencils.verify(path, comm) == ["u"]


def test_a_file_is_closed_after_a_write_has_failed(lab, mpi_tmp_path, monkeypatch):
    """It is unlocked, and its field is known to be damaged."""
    comm, path = lab.comm, mpi_tmp_path / "a.h5"
    u = pencils.ones(pencils.Pencil((6, 5), comm))
    pencils.save(path, {"u": 0 * u, "v": 0 * u})
    file = pencils.open(path, "r+", comm)
    file["v"].write(u)
    with monkeypatch.context() as patch:
        if comm.rank == comm.size - 1:
            fail = partial(stumble, OSError("no"))
            patch.setattr(SharedFile, "sync", lambda shared: shared.attempt(fail))
        with pytest.raises(OSError, match="no"):
            file["u"].write(u)
    with pytest.raises(OSError, match="no"):
        file["v"].write(u)
    file.close()
    with pytest.raises(CheckpointError, match="u"):
        pencils.verify(path, comm)
    pencils.save(path, {"u": u})
    with pencils.open(path, "r+", comm) as again:
        again["u"].write(2 * u)
    assert pencils.load(path, u.pencil)["u"].min() == 2


PROGRAM = """
import sys
import pencils

u = pencils.ones(pencils.Pencil((6, 5)))
with pencils.TimeSeries(sys.argv[1], "w") as series:
    series.append(1.0, {"u": u})
    if u.pencil.rank == 1:
        raise KeyError("the pump is broken")
"""


@pytest.mark.parallel([1])
@pytest.mark.parametrize("way", [(), ("-m", "mpi4py")])
def test_a_program_that_fails_on_one_rank(mpirun, tmp_path, way):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = mpirun(3, *way, program, tmp_path / "out.h5", timeout=60)
    assert ran.returncode != 0
    assert "KeyError: 'the pump is broken'" in ran.stderr
    if not way:
        assert "rank 1: 'the pump is broken'" in ran.stderr
