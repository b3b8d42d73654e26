"""The model behind the choice between a message for each pair of ranks and for each pair of nodes.

It computes times; nothing is measured.
"""

import runpy
import shutil
from itertools import product
from pathlib import Path

import pytest

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
    large = gains(model, model["RANKS"], model["ON_NODE"], [2**14, 2**16, 2**18])
    assert 0.95 < min(large) <= max(large) < 1.25
    assert max(gains(model, model["RANKS"], [32], [2**10])) < 1.1


def test_a_node_sends_no_faster_than_its_adapter(model):
    for machine in model["MACHINES"]:
        for nbytes in (8, 2**16):
            least = 32 * 7 * max(machine.gap, nbytes * machine.gap_per_byte)
            assert machine.messages(32, 7, nbytes) >= least
        one = machine.messages(1, 1, 0)
        assert one == pytest.approx(machine.overhead + machine.gap + machine.latency)


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
    with script["prepared"](machine, 16, 4) as simulator:
        for nbytes in (8, 2**10):
            gain = simulator.gain(machine, nbytes)
            assert gain == pytest.approx(machine.gain(16, 4, nbytes), rel=0.1)


def test_the_script_prints_a_row_for_each_case(model, capsys):
    model["main"].__globals__["print_table"]()
    rows = capsys.readouterr().out.splitlines()
    numbers = [row for row in rows if row.strip()[:1].isdigit()]
    assert len(numbers) == len(model["MACHINES"]) * len(model["ON_NODE"]) * len(model["RANKS"])
