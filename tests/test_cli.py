"""``python -m pencils``: what it prints, once, and how it ends."""

import re
from pathlib import Path

import numpy as np
import pytest
import tiers
from mpi4py import MPI
from mpi_helpers import python

import pencils
from pencils.comm import pack
from pencils.tools import command_line as command

ROOT = Path(__file__).parents[1]
TWO_STARTS = ["demo", "--input", "u.npy", "--restart", "u.h5"]
ENERGY = "t=0.1 energy=0.124953117517 dissipation=0.000469062413893"


def alone(*args):
    """Run ``python -m pencils`` without mpiexec."""
    return python("-m", "pencils", *args, cwd=ROOT)


def refused(capsys, *args):
    """Run a command in this process; return the status with which it exits, and its errors."""
    with pytest.raises(SystemExit) as caught:
        command.main([*map(str, args)])
    status, printed = caught.value.code, capsys.readouterr()
    assert printed.out == ""
    return (1, f"{printed.err}{status}\n") if isinstance(status, str) else (status, printed.err)


def facts(text):
    """Turn the output of info into a dictionary."""
    return dict(re.split(r" {2,}|(?<=\w{14}) ", line, maxsplit=1) for line in text.splitlines())


def test_info_says_what_is_there_and_counts_processes(mpirun):
    ran = alone("info")
    assert ran.returncode == 0, ran.stderr
    found = facts(ran.stdout)
    assert found["pencils"] == pencils.__version__
    assert found["processes"] == "1"
    assert found["nodes"].startswith("1, with processes: ")
    assert found["copies"].startswith(f"{pack.kernels()} (one of ")
    assert re.match(r"(yes|no)\b", found["parallel HDF5"])
    for name in ("python", "numpy", "mpi4py", "h5py", "HDF5", "MPI library", "MPI standard"):
        assert re.search(r"\d+\.\d+", found[name]), name
    several = mpirun(3, "-m", "pencils", "info", cwd=ROOT)
    assert several.returncode == 0, several.stderr
    assert len(several.stdout.splitlines()) == len(ran.stdout.splitlines())
    assert facts(several.stdout)["processes"] == "3"
    assert "(3)" in facts(several.stdout)["nodes"]


def test_show_lists_files_and_draws_planes_once(mpirun, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.h5", "b.h5"):
        pencils.save(name, {"u": pencils.ones(pencils.Pencil((6, 5), MPI.COMM_SELF))})
    a, c, picture = (tmp_path / name for name in ("a.h5", "c.h5", "u.png"))
    words = ["show", str(a), "--plot", "u"]
    ran = mpirun(2, "-m", "pencils", "show", a, c, cwd=ROOT)
    assert ran.returncode == 1
    assert ran.stdout.count("(6, 5)  float64") == 1
    assert ran.stdout.count("error: ") == ran.stdout.count(str(c)) == 1
    ran = mpirun(2, "-m", "pencils", *words, "--picture", picture, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(f"drawn: {picture}") == 1
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="1"):
        command.main([*words, "--axis", "2"])
    assert "error" in capsys.readouterr().out
    pytest.importorskip("matplotlib")
    command.main(["show", "a.h5", "b.h5", "--plot", "u"])  # pictures of their own
    assert sorted(path.name for path in tmp_path.glob("?.h5*.png")) == ["a.h5_u.png", "b.h5_u.png"]
    capsys.readouterr()
    with pytest.raises(SystemExit, match="--picture names one file"):
        command.main(["show", "a.h5", "b.h5", "--plot", "u", "--picture", "u.png"])
    with pytest.raises(SystemExit, match="need --plot NAME"):
        command.main(["show", "a.h5", "--at", "x=1"])
    for more, text in (
        (["--picture", "u.xyz"], "error: a.h5: u.xyz has none of the suffixes .*png"),
        (
            ["--at", "0.5"],
            "error: a.h5: --at 0.5 must be .* like --at time=0.5 z=0.25, or one index",
        ),
        (["--plot", "v"], "error: a.h5 has no 'v'; there is u$"),
    ):
        with pytest.raises(SystemExit):
            command.main(["show", "a.h5", "--plot", "u", *more])
        assert re.search(text, capsys.readouterr().out.rstrip().splitlines()[-1])
    pencils.save(
        "b.h5", {"u": pencils.zeros(pencils.Pencil((6, 5, 4), MPI.COMM_SELF), components=3)}
    )
    command.main(["show", "b.h5", "--plot", "u", "--at", "component=2", "index1=4"])
    text = "drawn: u.png (component = 2, index1 = 4)"
    assert capsys.readouterr().out.splitlines()[-1].strip() == text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["plan", 8, 8, "--ranks", 4, "--op", "fft", "--decomp", 5], "outside 0..1"),
        (["plan", 10**10, 10**10, "--ranks", 4, "--op", "fft"], "more than 2**56 bytes"),
        (["simulate", "-n", "two", "program.py"], "two is not a positive number"),
        (["run", "--timeout", "x", "program.py"], "positive numbers of seconds, not x"),
    ],
)
def test_arguments_that_make_no_sense(words, text, capsys):
    status, errors = refused(capsys, *words)
    assert status != 0
    assert text in errors


def test_help(capsys):
    for line in command._EXAMPLES.splitlines()[1:]:
        _, _, words = line.partition("python -m pencils ")
        command._parser(with_demo=False).parse_args(words.split())
    command.main([])  # without a command
    printed = capsys.readouterr().out
    assert "info" in printed
    assert "demo" in printed


def test_wrong_usage_is_explained_once_with_status_2(mpirun, capsys):
    wrong = [["bogus"], ["demo", "--n", "many"], ["demo", "--bogus"], TWO_STARTS]
    for args in wrong:
        status, errors = refused(capsys, *args)
        assert status == 2
        assert "usage: python -m pencils" in errors
    for args in wrong[: tiers.up_to(4, 1)]:
        ran = mpirun(3, "-m", "mpi4py", "-m", "pencils", *args, cwd=ROOT)
        assert ran.returncode != 0
        assert ran.stderr.count("usage:") == 1
        assert "Traceback" not in ran.stderr
    program = """if True:
        from pencils.tools import command_line as command
        def broken(**options):
            raise RuntimeError("no parser")
        command._parser = broken
        command.main([])
    """
    ran = mpirun(3, "-c", program, cwd=ROOT, timeout=60)  # any error of the parser ends all ranks
    assert ran.returncode != 0
    assert ran.stderr.count("RuntimeError: no parser") == 1


def test_verify_names_what_is_right_and_what_is_not(mpirun, tmp_path):
    good, bad, plain = (tmp_path / f"{name}.h5" for name in ("good", "bad", "plain"))
    pencil = pencils.Pencil((4, 5), MPI.COMM_SELF)
    for path, checksum in ((good, True), (bad, True), (plain, False)):
        fields = {"u": pencils.ones(pencil), "dt": 0.1}
        pencils.save(path, fields, checksum=checksum)
    empty = tmp_path / "empty.h5"
    pencils.TimeSeries(empty, comm=MPI.COMM_SELF).close()
    bad.write_bytes(bad.read_bytes().replace(np.float64(1).tobytes() * 2, bytes(16), 1))
    for n in (None, 3) if tiers.ALL else (3,):

        def verify(*paths, n=n):
            args = "pencils", "verify", *paths
            return alone(*args[1:]) if n is None else mpirun(n, "-m", *args, cwd=ROOT)

        ran = verify(good, empty)
        assert ran.returncode == 0, ran.stderr
        texts = f"{good}: dt, u as written", f"{empty}: list of contents as written"
        assert tuple(ran.stdout.splitlines()) == texts
        ran = verify(plain, good)
        assert ran.returncode != 0
        assert ran.stdout.splitlines()[1] == texts[0]
        assert ran.stdout.startswith(f"error: {plain} has no checksums to verify")
        ran = verify(bad, tmp_path / "none.h5", good)
        assert ran.returncode != 0
        first, second, third = ran.stdout.splitlines()
        assert first.startswith(f"error: {bad} is damaged: the checksum of 'u' does not match")
        assert second.startswith("error: ")
        assert "none.h5" in second
        assert third == f"{good}: dt, u as written"
        assert "Traceback" not in ran.stderr


def test_the_demo_runs_alone():
    ran = alone("demo", "--n", 32, "--viscosity", 0.000625, "--dt", 0.01, "--time", 0.1)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[-1] == ENERGY


def test_senseless_arguments_end_the_demo_with_one_line_before_it_starts(mpirun, tmp_path, capsys):
    missing, empty = tmp_path / "missing" / "flow.h5", tmp_path / "empty.npy"
    empty.write_bytes(b"")
    senseless = [
        ("--restart", tmp_path / "u.h5", "u.h5"),
        ("--input", tmp_path / "u.npy", "u.npy"),
        ("--input", tmp_path / "u.h5", "u.h5"),
        ("--dt", "nan", "dt=nan"),
        ("--time", "inf", "time=inf"),
        ("--viscosity=-1", "viscosity=-1"),
        ("--checkpoint", missing, "cannot save .*missing"),
        ("--restart", empty, "not an HDF5 file"),
        ("--input", empty, "cannot read .*empty.npy"),
    ]
    for *bad, complaint in senseless:
        status, errors = refused(capsys, "demo", "--n", 8, *bad)
        assert status != 0
        assert len(re.findall(f"^error: .*{complaint}", errors, re.MULTILINE)) == 1
    tried = tiers.up_to(senseless, [senseless[0], senseless[3]])
    for number, (*bad, complaint) in enumerate(tried):
        program = ["-m", "mpi4py", "-m"] if number == 0 else ["-m"]
        ran = mpirun(3, *program, "pencils", "demo", "--n", 8, *bad, cwd=ROOT, timeout=60)
        assert ran.returncode != 0
        assert ran.stdout == ""
        assert len(re.findall(f"^error: .*{complaint}", ran.stderr, re.MULTILINE)) == 1
        assert "Traceback" not in ran.stderr
