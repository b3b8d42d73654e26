"""tune: what is measured is remembered, agreed on, and used."""

import json

import pytest
from mpi_helpers import (
    ON_ONE_NODE,
    all_raise,
    everywhere,
    holds,
    named,
    nodes_of,
    numbered,
    pretend_nodes,
    ranks_at_fault,
    spread,
)

import pencils
from pencils import Pencil, Transposition, tune
from pencils.comm.methods import METHODS
from pencils.errors import ArgumentError, PencilMismatchError, RankDisagreementError
from pencils.plans import kept_plans
from pencils.tools.planning import tuning

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

SHAPE = (6, 8, 10)


@pytest.fixture(name="stages")
def _stages(comm):
    """Three pencils on a communicator that has been told nothing yet."""
    private = comm.Dup()
    first = Pencil(SHAPE, private, decomp=(0, 1))
    yield [first, first.with_(decomp=(0, 2)), first.with_(decomp=(1, 2))]
    private.Free()


def prefer(monkeypatch, *names):
    """Pretend that the first of these methods takes 1 s, the next 2 s, and others much longer."""

    def times(_comm, calls, _repeat):
        methods = [call.func.method for call in calls]
        return [names.index(name) + 1.0 if name in names else 100.0 for name in methods]

    monkeypatch.setattr(tuning, "time_in_turn", times)


def test_what_is_measured_can_be_looked_at(comm, stages, tmp_path):
    found = tune(stages, show=False, repeat=1)
    assert found.pencils == tuple(stages)
    methods = 3 if ON_ONE_NODE else 4
    assert [row.step for row in found.rows] == [0] * methods + [1] * methods
    assert all(row.seconds > 0 for row in found.rows)
    assert {row.method for row in found.rows} <= set(METHODS)
    assert len(found.methods) == 2
    assert len(set(map(str, comm.allgather(found.rows)))) == 1
    # A picture has a cell for each measurement.
    plot = pytest.importorskip("pencils.tools.plot")
    found = tune(stages, show=False, repeat=1)
    if comm.rank == 0:
        ax = plot.plot_tuning(found)
        assert [label.get_text() for label in ax.get_xticklabels()] == [
            row.method for row in found.rows if row.step == 0
        ]
        shown = [text.get_text() for text in ax.texts]
        assert shown == [f"{1e3 * row.seconds:.3g}" for row in found.rows]
        plot.save_picture(tmp_path / "tuning.png", ax)
    # A file of results can be looked at.
    path = tmp_path / f"{comm.rank}.json"
    found = tune(stages, show=False, repeat=1, file=path)
    if comm.rank == 0:
        text = tuning.describe_results(path)
        assert all(line.strip() in text for line in str(found).splitlines())
        assert all(repr(pencil) in text for pencil in stages)
        path.write_text('{"1": 2}')
        with pytest.raises(ArgumentError, match="is not a file that tune"):
            tuning.describe_results(path)
    # Fields in shared memory and singletons.
    found = tune(stages, dims=(1, 2), components=3, shared=True, show=False, repeat=1)
    assert len(found.methods) == 2


def test_plans_that_choose_take_what_was_found(comm, stages, monkeypatch):
    data = numbered(SHAPE)
    prefer(monkeypatch, "alltoallw")
    tune(stages[:2], show=False)
    tune(stages[1:], "c8", components=2, show=False)
    with Transposition(*stages[:2]) as plan, Transposition(*stages[1:], "c8", components=2) as two:
        assert (plan.method, two.method) == ("alltoallw", "alltoallw")
        assert everywhere(comm, holds(plan(spread(stages[0], data)), data))
        with Transposition(*stages[1:]) as other_kind, plan.reversed() as back:
            assert "alltoallw" not in {other_kind.method, back.method}
    # Transpose takes it too though it had a plan.
    u = spread(stages[0], data)
    pencils.transpose(u, stages[1])
    prefer(monkeypatch, "messages")
    tune(stages[:2], show=False)
    assert everywhere(comm, holds(pencils.transpose(u, stages[1]), data))
    (plan,) = kept_plans(stages[0].topology).values()
    assert plan.method == "messages"


def test_one_message_for_each_pair_of_nodes_where_that_is_fastest(comm, monkeypatch):
    private = comm.Dup()
    pretend_nodes(private, nodes_of("even and odd")[comm.rank])
    rows = Pencil(SHAPE, private, decomp=0)
    columns = rows.with_(decomp=1)
    prefer(monkeypatch, "gathered")
    found = tune([rows, columns], show=False)
    several = rows.topology.nodes > 1
    assert (found.methods == ("gathered",)) == several
    with Transposition(rows, columns) as plan:
        assert (plan.method == "gathered") == several
        assert everywhere(comm, holds(plan(spread(rows, numbered(SHAPE))), numbered(SHAPE)))
    private.Free()


def test_the_best_grid_for_the_whole_way_wins(comm, stages, monkeypatch):
    """A grid that is best for one step only does not win."""
    grids = sorted((p, q) for p in range(1, 7) for q in range(1, 7) if p * q == comm.size)
    cost = {grid: (1.0, 50.0) if grid == grids[0] else (9.0, 9.0) for grid in grids}
    cost[grids[-1]] = (5.0, 5.0)
    seen = []

    def times(_comm, calls, _repeat):
        plan = calls[0].func
        step = 0 if plan.source.decomp == (0, 1) else 1
        seen.append(plan.source.grid)
        return [cost[plan.source.grid][step] + n for n in range(len(calls))]

    monkeypatch.setattr(tuning, "time_in_turn", times)
    found = tune(stages, grids=True, show=False)
    assert sorted(set(seen)) == grids
    assert all(pen.grid == grids[-1] for pen in found.pencils)
    assert [pen.decomp for pen in found.pencils] == [pen.decomp for pen in stages]


def test_the_table(comm, stages, monkeypatch, capsys, mpi_tmp_path):
    prefer(monkeypatch, "messages")
    found = tune(stages[:2])
    out = capsys.readouterr().out
    assert out == (f"{found}\n" if comm.rank == 0 else "")
    marked = [line for line in str(found).splitlines() if line.endswith("<")]
    assert len(marked) == 1
    assert "messages" in marked[0]
    assert "1000.0000" in marked[0]
    # A file remembers.
    path = mpi_tmp_path / "tuning.json"
    prefer(monkeypatch, "alltoallw")
    first = tune(stages, file=path, show=False)
    monkeypatch.setattr(tuning, "time_in_turn", None)  # calling it would raise
    again = tune(stages, file=path, show=False)
    assert again == first
    assert again.methods == ("alltoallw", "alltoallw")
    with pytest.raises(TypeError):  # another kind of field is not known
        tune(stages, "f4", file=path, show=False)
    comm.barrier()
    assert len(json.loads(path.read_text())) == 1


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        ({"pencils": []}, ArgumentError, "at least one"),
        ({"pencils": None}, TypeError, "sequence of pencils"),
        ({"pencils": "stages"}, TypeError, "pencils[0]"),
        ({"repeat": 0}, ArgumentError, "repeat=0"),
        ({"repeat": "often"}, TypeError, "often"),
        ({"dtype": object}, TypeError, "object"),
        ({"dims": 3}, ArgumentError, "dims"),
        ({"components": -1}, ArgumentError, "components"),
        ({"file": 3}, TypeError, "int"),
    ],
    ids=str,
)
def test_wrong_arguments_on_one_rank(comm, wrong, kind, text):
    stages = [Pencil(SHAPE, comm), Pencil(SHAPE, comm, decomp=(1, 2))]
    for rank in ranks_at_fault(comm):
        mine = {"pencils": stages, "show": False, "repeat": 1} | (
            wrong if comm.rank == rank else {}
        )
        all_raise(comm, kind, (named(comm, rank), text), tune, **mine)


def test_pencils_that_do_not_belong_together(comm, stages):
    one = stages[0]
    calls = {
        "two pencils": ([one], False),
        "same global shape": ([one, one.with_(shape=(6, 8, 9))], False),
        "same number of dimensions": ([one, one.with_(decomp=0)], True),
    }
    for text, (pens, grids) in calls.items():
        with pytest.raises((ArgumentError, PencilMismatchError), match=text):
            tune(pens, grids=grids, show=False)
    if comm.size > 1:
        all_raise(
            comm,
            RankDisagreementError,
            "disagree on options",
            lambda: tune(stages, repeat=1 + (comm.rank == 0), show=False),
        )


SPOILED = [[], [[[1], 0, "pigeons", 1.0]], "cut", "text", {"a": 1}, b"not json", b"[1, 2]"]


@pytest.mark.parametrize("spoil", SPOILED, ids=str)
def test_a_file_that_tune_did_not_write(comm, stages, mpi_tmp_path, spoil):
    path, options = mpi_tmp_path / "tuning.json", {"show": False, "repeat": 1}
    tune(stages, file=path, **options)
    comm.barrier()
    if comm.rank == 0:
        ((key, rows),) = json.loads(path.read_text()).items()
        rows = rows[:-1] if spoil == "cut" else spoil
        path.write_bytes(spoil if isinstance(spoil, bytes) else json.dumps({key: rows}).encode())
    comm.barrier()
    text = "not a file that tune() wrote"
    all_raise(comm, ArgumentError, text, tune, stages, file=path, **options)
    missing = mpi_tmp_path / "no" / "where"
    all_raise(comm, FileNotFoundError, "", tune, stages, file=missing, **options)
