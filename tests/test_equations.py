"""The examples with stencils converge as they say, and print the same on any number of ranks."""

import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
RUNS = {
    "wave 2-D": ("wave_equation.py", "--n", 64),
    "wave 3-D": ("wave_equation.py", "--n", 48, "--dims", 3),
    "heat": ("heat_equation.py", "--n", 6),
}


@pytest.fixture(scope="module")
def run(mpirun):
    """Run an example once on each number of ranks, and return what it prints."""
    outputs = {}

    def run(name, ranks):
        if (name, ranks) not in outputs:
            script, *args = RUNS[name]
            ran = mpirun(ranks, "-m", "mpi4py", EXAMPLES / script, *args)
            assert ran.returncode == 0, ran.stdout + ran.stderr
            outputs[name, ranks] = ran.stdout
        return outputs[name, ranks]

    return run


def numbers(text, before):
    return [float(match) for match in re.findall(rf"{before} ([0-9.e+-]+[0-9])", text)]


@pytest.mark.parametrize(
    ("name", "ranks"),
    [("wave 2-D", 3), ("heat", 4), pytest.param("wave 3-D", 4, marks=pytest.mark.thorough)],
)
def test_the_results_do_not_depend_on_the_number_of_ranks(run, name, ranks):
    assert run(name, ranks) == run(name, 1)


@pytest.mark.parametrize("name", ["wave 2-D", "wave 3-D"])
def test_waves_keep_their_energy_and_converge_at_second_order(run, name):
    printed = run(name, 1)
    (error,), (drift,) = numbers(printed, "error"), numbers(printed, "changes by")
    assert error < {"wave 2-D": 0.006, "wave 3-D": 0.2}[name]
    assert drift < {"wave 2-D": 0.003, "wave 3-D": 0.015}[name]
    assert numbers(printed, "order") == pytest.approx([2, 2], abs=0.1)


def test_heat_converges_at_second_order(run):
    printed = run("heat", 1)
    errors = numbers(printed, "error")
    assert len(errors) == 3
    assert errors[-1] < 1e-3
    assert numbers(printed, "order") == pytest.approx([2, 2], abs=0.1)


def test_the_wave_draws_a_picture_if_asked_to(mpirun, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "wave.png"
    script, *_ = RUNS["wave 2-D"]
    ran = mpirun(2, "-m", "mpi4py", EXAMPLES / script, "--n", 16, "--picture", picture)
    assert ran.returncode == 0, ran.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [picture]
