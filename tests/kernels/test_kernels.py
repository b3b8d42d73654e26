"""The compiled copies alone, without Python around them, under sanitizers and valgrind."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "pencils" / "comm" / "kernels"
KERNELS = [SOURCES / f"{name}.c" for name in ("block", "levels", "portable", "avx2", "avx512")]
ROW_PROGRAM = [HERE / "row_program_harness.c", SOURCES / "row_program.c", SOURCES / "row_loops.c"]
STRICT = ["-std=c11", "-ffp-contract=off", "-Wall", "-Wextra", "-Wno-psabi", "-Werror"]
CC = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")

# Without the tracking of variables they compile in two thirds of the time.
SANITIZED = ["-O1", "-g", "-fno-var-tracking", "-fsanitize=address,undefined"]
CHECKED = [*SANITIZED, "-fno-sanitize-recover=all"]

pytestmark = [
    pytest.mark.thorough,  # half a minute of compilation; tests/comm calls the same copies
    pytest.mark.skipif(CC is None, reason="there is no C compiler"),
]


def run(*command, cwd=None):
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(program, *options):
    """Compile the harness; warnings are errors, as the sources are meant for any compiler."""
    run(CC, *STRICT, *options, HERE / "harness.c", *KERNELS, "-o", program, "-pthread", "-lm")
    return program


@pytest.mark.parametrize(
    "options",
    [["-O3"], ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]],
    ids=["plain", "address"],
)
def test_rows_are_moved_and_points_found(tmp_path, options):
    program = tmp_path / "rows"
    run(CC, *STRICT, *options, HERE / "rows_harness.c", SOURCES / "rows.c", "-o", program)
    run(program, 500)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["-O0", "-g", "-fsanitize=address"], id="address"),  # it compiles fast
        pytest.param(CHECKED, id="undefined"),
        pytest.param(["-O1", "-DHAVE_VECTORS=0"], id="no-vectors"),
    ],
)
def test_line_and_row_programs_are_executed(tmp_path, options):
    run(CC, *STRICT, *options, "-c", *KERNELS, cwd=tmp_path)
    sources = [HERE / "lines_harness.c", SOURCES / "lines.c", SOURCES / "line_sums.c"]
    objects = list(tmp_path.glob("*.o"))
    program = tmp_path / "lines"
    run(CC, *STRICT, *CHECKED, *sources, *objects, "-o", program)
    run(program, 4000)
    rows = tmp_path / "row_program"
    run(CC, *STRICT, *CHECKED, *ROW_PROGRAM, *objects, "-o", rows, "-lm")
    for level in run(rows).split():
        run(rows, level, 2000)


def check_every_level(program, cases, threads):
    for level in run(program).split():
        run(program, level, cases, threads)


def test_every_level_copies_right(tmp_path):
    check_every_level(build(tmp_path / "harness", "-O3"), 2000, 4)


@pytest.mark.parametrize(
    ("options", "cases", "threads"),
    [
        (["-O3", "-DHAVE_VECTORS=0"], 500, 1),
        (CHECKED, 500, 1),
        (CHECKED, 200, 4),
        (["-O1", "-g", "-fsanitize=thread"], 40, 4),
    ],
    ids=["no-vectors", "address", "address-threads", "thread"],
)
def test_every_level_copies_right_in_other_builds(tmp_path, options, cases, threads):
    check_every_level(build(tmp_path / "harness", *options), cases, threads)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind")
def test_valgrind_has_no_complaints(tmp_path):
    run(CC, *STRICT, "-O2", "-g", "-c", *KERNELS, cwd=tmp_path)
    valgrind = ["valgrind", "--quiet", "--error-exitcode=1", "--leak-check=full"]
    for sources in ([HERE / "harness.c"], ROW_PROGRAM):
        program = tmp_path / sources[0].stem
        objects = tmp_path.glob("*.o")
        run(CC, *STRICT, "-O2", "-g", *sources, *objects, "-o", program, "-pthread", "-lm")
        for level in run(*valgrind, program).split():  # what valgrind knows of this processor
            run(*valgrind, program, level, 10)
