"""The compiled copies alone, without Python around them, under sanitizers and valgrind."""

import os
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
VALGRIND = ["valgrind", "--quiet", "--error-exitcode=1", "--leak-check=full"]

# Without the tracking of variables they compile in two thirds of the time.
CHECKED = ["-O1", "-g", "-fno-var-tracking", "-fno-sanitize-recover=all"]
PLAIN, ADDRESS = ["-O3"], [*CHECKED, "-fsanitize=address"]
UNDEFINED, THREAD = [*CHECKED, "-fsanitize=undefined"], [*CHECKED, "-fsanitize=thread"]
# Levels are the same lines for vectors of different sizes. What does not depend on the size is
# looked for in one of them, because they compile for half a minute.
ONE_LEVEL = (UNDEFINED, THREAD)

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


@pytest.fixture
def build(tmp_path):
    """Return a function that compiles a harness; warnings are errors, for any compiler."""
    objects = {}

    def compiled(source, compiler, options):
        if options in ONE_LEVEL and source.stem == "levels":
            options = [*options, "-DHAVE_VECTORS=0"]  # it lists no other
        run(compiler, *STRICT, *options, "-c", source, cwd=tmp_path)
        return tmp_path / f"{source.stem}.o"

    def build(sources, compiler, options):
        if not objects:
            used = KERNELS[:3] if options in ONE_LEVEL else KERNELS
            with ThreadPoolExecutor() as threads:
                found = threads.map(partial(compiled, compiler=compiler, options=options), used)
                objects.update(zip(used, found, strict=True))
        program = tmp_path / sources[0].stem
        given = [*sources, *objects.values(), "-o", program, "-pthread", "-lm"]
        run(compiler, *STRICT, *options, *given)
        return program

    return build


@pytest.mark.parametrize(
    "options",
    [PLAIN, [*ADDRESS, "-fsanitize=undefined"]],
    ids=["plain", "checked"],
)
def test_rows_are_moved_and_points_found(tmp_path, options):
    program = tmp_path / "rows"
    run(CC, *STRICT, *options, HERE / "rows_harness.c", SOURCES / "rows.c", "-o", program)
    run(program, 500)


def check_every_level(program, *counts):
    for level in run(program).split():
        run(program, level, *counts)


# With the same options all is tested at once, so that the kernels are compiled once.
@pytest.mark.parametrize(
    ("compiler", "options", "copies"),
    [
        pytest.param(CC, ADDRESS, [(250, 1), (100, 4)], id="address"),
        pytest.param(CC, UNDEFINED, [(500, 1)], id="undefined"),
        pytest.param(CC, PLAIN, [(500, 4)], id="plain"),
        pytest.param(CC, [*PLAIN, "-DHAVE_VECTORS=0"], [(500, 1)], id="no-vectors"),
        pytest.param(
            CLANG,
            PLAIN,
            [],
            id="clang",
            marks=pytest.mark.skipif(CLANG is None, reason="there is no clang"),
        ),
    ],
)
def test_levels_copy_and_execute_programs(build, compiler, options, copies):
    harness = build([HERE / "harness.c"], compiler, options)
    for cases, threads in copies:
        check_every_level(harness, cases, threads)
    lines = [HERE / "lines_harness.c", SOURCES / "lines.c", SOURCES / "line_sums.c"]
    run(build(lines, compiler, options), 2000)
    programs = build(ROW_PROGRAM, compiler, options)
    check_every_level(programs, 1000)
    if (compiler, options) != (CC, PLAIN):
        return
    if shutil.which("valgrind") is None:
        pytest.skip("there is no valgrind")
    for program in (harness, programs):
        for level in run(*VALGRIND, program).split():  # what valgrind knows of this processor
            run(*VALGRIND, program, level, 10)


def test_threads_do_not_race(build):
    check_every_level(build([HERE / "harness.c"], CC, THREAD), 40, 4)
