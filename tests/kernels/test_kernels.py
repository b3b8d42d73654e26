"""The compiled copies alone, without Python around them, under sanitizers and valgrind."""

import os
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "pencils" / "comm" / "kernels"
KERNELS = [SOURCES / f"{name}.c" for name in ("block", "levels", "portable", "avx2", "avx512")]
ROW_PROGRAM = [HERE / "row_program_harness.c", SOURCES / "row_program.c", SOURCES / "row_loops.c"]
ROW_PROGRAM += [SOURCES / "row_total.c", "-I", sysconfig.get_path("include")]
STRICT = ["-std=c11", "-ffp-contract=off", "-Wall", "-Wextra", "-Wno-psabi", "-Werror"]
CC = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")

CLANG = shutil.which("clang")

# Without the tracking of variables they compile in two thirds of the time.
CHECKED = ["-O1", "-g", "-fno-var-tracking", "-fsanitize=address,undefined"]
CHECKED += ["-fno-sanitize-recover=all"]

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


@pytest.fixture(scope="module")
def objects_of(tmp_path_factory):
    """Return a function that compiles the kernels, once with the same options."""

    @cache
    def objects_of(compiler, *options):
        folder = tmp_path_factory.mktemp("objects")

        def compiled(source):
            run(compiler, *STRICT, *options, "-c", source, cwd=folder)
            return folder / f"{source.stem}.o"

        with ThreadPoolExecutor() as threads:
            return list(threads.map(compiled, KERNELS))

    return objects_of


@pytest.fixture
def build(tmp_path, objects_of):
    """Return a function that compiles a harness; warnings are errors, for any compiler."""

    def build(sources, *options, compiler=CC):
        objects = objects_of(compiler, *options)
        program = tmp_path / sources[0].stem
        run(compiler, *STRICT, *options, *sources, *objects, "-o", program, "-pthread", "-lm")
        return program

    return build


@pytest.mark.parametrize(
    "options",
    [["-O3"], CHECKED],
    ids=["plain", "address"],
)
def test_rows_are_moved_and_points_found(tmp_path, options):
    program = tmp_path / "rows"
    run(CC, *STRICT, *options, HERE / "rows_harness.c", SOURCES / "rows.c", "-o", program)
    run(program, 500)


def check_every_level(program, *counts):
    for level in run(program).split():
        run(program, level, *counts)


@pytest.mark.parametrize(
    ("compiler", "options"),
    [
        pytest.param(CC, CHECKED, id="checked"),
        pytest.param(CC, ["-O3"], id="plain"),
        pytest.param(CC, ["-O3", "-DHAVE_VECTORS=0"], id="no-vectors"),
        pytest.param(
            CLANG,
            ["-O3"],
            id="clang",
            marks=pytest.mark.skipif(CLANG is None, reason="there is no clang"),
        ),
    ],
)
def test_line_and_row_programs_are_executed(build, compiler, options):
    lines = [HERE / "lines_harness.c", SOURCES / "lines.c", SOURCES / "line_sums.c"]
    run(build(lines, *options, compiler=compiler), 4000)
    check_every_level(build(ROW_PROGRAM, *options, compiler=compiler), 2000)


@pytest.mark.parametrize(
    ("options", "cases", "threads"),
    [
        (["-O3"], 2000, 4),
        (["-O3", "-DHAVE_VECTORS=0"], 500, 1),
        (CHECKED, 500, 1),
        (CHECKED, 200, 4),
        (["-O1", "-g", "-fsanitize=thread"], 40, 4),
    ],
    ids=["plain", "no-vectors", "address", "address-threads", "thread"],
)
def test_every_level_copies_right(build, options, cases, threads):
    check_every_level(build([HERE / "harness.c"], *options), cases, threads)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind")
def test_valgrind_has_no_complaints(build):
    valgrind = ["valgrind", "--quiet", "--error-exitcode=1", "--leak-check=full"]
    for sources in ([HERE / "harness.c"], ROW_PROGRAM):
        program = build(sources, "-O3")  # as above, so that they are not compiled again
        for level in run(*valgrind, program).split():  # what valgrind knows of this processor
            run(*valgrind, program, level, 10)
