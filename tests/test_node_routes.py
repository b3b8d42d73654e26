"""The model behind the choice between a message for each pair of ranks and for each pair of nodes.

It computes times; nothing is measured.
"""

import runpy
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from pencils.comm.methods.gathered import TOGETHER

SCRIPT = Path(__file__).parents[1] / "benchmarks/node_routes.py"


@pytest.fixture(name="model", scope="module")
def _model():
    return runpy.run_path(str(SCRIPT))


def gains(model, ranks, on_node, nbytes):
    return [
        machine.gain(*case)
        for machine in model["MACHINES"]
        for case in product(ranks, on_node, nbytes)
    ]


def test_tiny_pieces_gain_much_from_one_message_for_each_pair_of_nodes(model):
    assert min(gains(model, model["RANKS"], [8], [8])) > 4
    assert min(gains(model, model["RANKS"][1:], model["ON_NODE"], [8])) > 2.5
    assert min(gains(model, model["RANKS"][1:], [8], [64])) > 2.5


def test_pieces_gain_nothing_once_their_bytes_take_longer_than_their_messages(model):
    assert max(gains(model, model["RANKS"], model["ON_NODE"], [2**16, 2**18])) < 1.01
    assert max(gains(model, model["RANKS"], [32], [2**10])) < 1.2
    assert max(TOGETHER // on_node for on_node in model["ON_NODE"]) < 2**16  # these travel alone


def test_a_node_sends_no_faster_than_its_adapter(model):
    work = model["Work"]
    for machine in model["MACHINES"]:
        for nbytes in (8, 2**16):
            least = 32 * 7 * max(machine.gap, nbytes * machine.gap_per_byte)
            assert work(32, [32 * 7], nbytes, 0).seconds(machine) >= least
            assert work(32, [32] * 7, nbytes, 0, [0] * 7).seconds(machine) >= least
        one = work(1, [1], 0, 0).seconds(machine)
        assert one == pytest.approx(machine.overhead + machine.gap + machine.latency)


def test_one_stage_travels_while_others_are_packed_and_unpacked(model):
    machine = model["Machine"]("none", 0, 0, 0, 1 / 8, 0)  # 8 bytes in each second
    work = model["Work"]
    # Pack for 2 seconds, meet, send for 4, meet, unpack for 2: both messages, or one of them.
    assert work(2, [2], 16, 1, [1]).seconds(machine) == 2 + 1 + 4 + 1 + 2
    assert work(2, [1, 1], 16, 1, [1, 1]).seconds(machine) == 1 + 1 + 4 + 1 + 1
    # A long message begins to travel when the next stage is packed.
    kib = model["Machine"]("none", 0, 0, 0, 2**-13, 0)
    assert work(2, [1, 1, 1], 2**14, 1, [0] * 3).seconds(kib) == 2 * 1 + 3 * 2 + 1


def test_stages_pay_off_for_pieces_of_a_kibibyte(model):
    summit = model["MACHINES"][0]
    for ranks in (256, 1024, 4096):
        assert summit.gain(ranks, 8, 2**10) > 2.5
        work = summit.gathered_work(ranks, 8, 2**10)
        once = replace(work, stages=[sum(work.stages)], meetings=work.meetings[:1])
        assert work.seconds(summit) < 0.8 * once.seconds(summit)
        # Even if a rank were busy with a bundle as long as it takes to send it alone.
        busy = replace(summit, overhead=31e-6, overhead_per_byte=0)
        assert summit.direct(ranks, 8, 2**10) > 2.5 * work.seconds(busy)
    for machine in model["MACHINES"]:
        for nbytes in (8, 64):
            assert len(machine.gathered_work(256, 8, nbytes).stages) == 1


def test_no_route_is_faster_than_the_bytes_of_a_node(model):
    for machine in model["MACHINES"]:
        for case in product(model["RANKS"], model["ON_NODE"], model["PIECES"]):
            assert machine.least(*case) <= machine.direct(*case)
            assert machine.least(*case) <= machine.gathered(*case)
        assert machine.most(4096, 8, 64) > 2.5
    # No route gains 2.5 for 1 KiB where a node has many ranks, or overheads are short.
    most = [machine.most(4096, 8, 2**10) for machine in model["MACHINES"]]
    assert most == pytest.approx([3.7, 2.5, 1.8], abs=0.1)
    assert max(machine.most(4096, 32, 2**10) for machine in model["MACHINES"]) < 1.25


def test_simgrid_agrees_with_the_model():
    script = runpy.run_path(str(SCRIPT.with_name("simgrid") / "routes.py"))
    if not (shutil.which("smpicc") and shutil.which("smpirun")):
        pytest.skip("no SimGrid: apt-get install simgrid libsimgrid-dev")
    machine = runpy.run_path(str(SCRIPT))["MACHINES"][0]
    assert len(machine.gathered_work(128, 8, 2**10).stages) == 3
    for row, nbytes in [((16, 4), 8), ((16, 4), 2**10), ((128, 8), 2**10)]:
        with script["prepared"](machine, *row) as simulator:
            gain = simulator.gain(machine, nbytes)
            assert gain == pytest.approx(machine.gain(*row, nbytes), rel=0.1)


def test_the_script_prints_a_row_for_each_case(model, capsys, monkeypatch):
    names = model["main"].__globals__
    monkeypatch.setitem(names, "RANKS", names["RANKS"][:2])
    names["print_table"]()
    rows = capsys.readouterr().out.splitlines()
    numbers = [row for row in rows if row.strip()[:1].isdigit()]
    assert len(numbers) == len(names["MACHINES"]) * len(names["ON_NODE"]) * 2
