"""Line programs: every implementation against loops over the lines, one number at a time."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pencils.comm import line_program, pack
from pencils.comm.line_program import LineProgram, Rows, Step, Term, prepare_lines

DTYPES = ["f4", "f8", "c8", "c16"]

implementations = pytest.mark.parametrize("name", pack.available())


def random_numbers(rng, shape, dtype):
    real = rng.uniform(-1, 1, shape)
    return (real + 1j * rng.uniform(-1, 1, shape) if np.dtype(dtype).kind == "c" else real).astype(
        dtype
    )


def strided(draw, rng, shape, dtype):
    """Make an array of random numbers with any order of memory, gaps and directions."""
    order = draw(st.permutations(range(len(shape))))
    gaps = [draw(st.sampled_from([1, 1, 1, 2, -1, -2])) for _ in shape]
    whole = random_numbers(rng, [shape[i] * abs(gaps[i]) for i in order], dtype)
    whole = whole.transpose(np.argsort(order))
    found = whole[(*(slice(None, None, gap) for gap in gaps), ...)]
    assert found.shape == tuple(shape)
    return found


@st.composite
def programs(draw, rows, coefficients, dtype):
    """Draw steps; most have few terms, some many, some none."""
    imaginary = np.dtype(dtype).kind == "c" and draw(st.booleans())
    row = st.integers(0, rows - 1)
    part = st.sampled_from([0.0, 1.0, -1.0, 0.5, -0.25, 0.75])
    weight = st.builds(complex, part, part) if imaginary else part
    number = st.just(-1)
    if coefficients:
        number = st.integers(-1, coefficients - 1)
    term = st.builds(Term, row, weight, st.one_of(st.just(-1), number))
    terms = st.one_of(st.lists(term, max_size=5), st.lists(term, max_size=30))
    return LineProgram(rows, draw(st.lists(st.builds(Step, row, terms), max_size=9)))


def pieces(draw, rows):
    """Draw consecutive pieces of some of the rows: where they begin and end."""
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=3)))
    cuts = [0, *cuts, rows]
    return [pair for pair in pairwise(cuts) if draw(st.integers(0, 4))]


def expected_rows(program, buffer, coefficients):
    """Execute a program on one line after the other."""
    begin = 0
    for target, end in zip(program.targets, program.ends, strict=True):
        total = np.zeros_like(buffer[0])
        for i in range(begin, end):
            term = buffer[program.rows_of[i]].dtype.type(program.weights[i])
            term = term * buffer[program.rows_of[i]]
            if program.coefficients_of[i] >= 0:
                term = term * coefficients[program.coefficients_of[i]]
            total = total + term
        buffer[target] = total
        begin = end
    return buffer


@implementations
@given(data=st.data(), seed=st.integers(0, 999))
def test_programs_are_executed_for_every_line(name, data, seed):
    draw, rng = data.draw, np.random.default_rng(seed)
    dtype, ndim = draw(st.sampled_from(DTYPES)), draw(st.integers(1, 4))
    axis, rows = draw(st.integers(0, ndim - 1)), draw(st.integers(1, 12))
    most = [1, 1, 200, 20, 9][ndim]
    shape = [draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, most)) for _ in range(ndim)]
    lines = [n for i, n in enumerate(shape) if i != axis]
    count = int(np.prod(lines, dtype=int))
    coefficients = None
    if draw(st.booleans()):
        coefficients = random_numbers(rng, (draw(st.integers(1, 4)), count), dtype)
    program = draw(programs(rows, 0 if coefficients is None else len(coefficients), dtype))

    def arrays_of(parts):
        return [
            Rows(begin, strided(draw, rng, [*shape[:axis], end - begin, *shape[axis + 1 :]], dtype))
            for begin, end in parts
        ]

    # Rows that no source fills are set before they are used.
    sources = arrays_of(pieces(draw, rows))
    filled = np.zeros(rows, bool)
    for begin, array in sources:
        filled[begin : begin + array.shape[axis]] = True
    zeros = [Step(int(row), []) for row in np.flatnonzero(~filled)]
    program = LineProgram(rows, [*zeros, *steps_of(program)])
    targets = arrays_of(pieces(draw, rows))
    if draw(st.booleans()):
        targets += [sources[i] for i in range(len(sources)) if draw(st.booleans())]
    if not targets:
        targets = arrays_of([(0, rows)])

    buffer = np.zeros((rows, *lines), dtype)
    for begin, array in sources:
        buffer[begin : begin + array.shape[axis]] = np.moveaxis(array, axis, 0)
    buffer = expected_rows(program, buffer.reshape(rows, count), coefficients)
    buffer = buffer.reshape(rows, *lines)
    with pack.using(name), pytest.MonkeyPatch.context() as patch:
        if draw(st.booleans()):  # strips of few lines
            patch.setattr(line_program, "BUFFER_BYTES", 1)
            patch.setattr(line_program, "FEWEST_LINES", draw(st.integers(1, 5)))
        prepare_lines(program, sources, targets, axis, coefficients)()
    tolerance = 1e-4 if dtype in ("f4", "c8") else 1e-12
    scale = np.abs(buffer).max(initial=1)
    for begin, array in targets:
        wanted = buffer[begin : begin + array.shape[axis]]
        np.testing.assert_allclose(
            np.moveaxis(array, axis, 0), wanted, atol=tolerance * scale, rtol=0
        )


@pytest.fixture(name="stream_from", params=[0, 2**62], ids=["past the cache", "through the cache"])
def _stream_from(request):
    """Have targets written past the cache, or not."""
    before = pack._kernels and pack._kernels.stream_from(request.param)
    yield
    if pack._kernels:
        pack._kernels.stream_from(before)


@implementations
@pytest.mark.usefixtures("stream_from")
@given(data=st.data(), seed=st.integers(0, 999))
def test_rows_are_read_and_written_where_they_lie(name, data, seed):
    """Long rows are not copied, also if targets overlap with sources, at the same rows or not."""
    draw, rng = data.draw, np.random.default_rng(seed)
    dtype, rows = draw(st.sampled_from(DTYPES)), draw(st.integers(1, 12))
    axis, count = draw(st.integers(0, 1)), draw(st.sampled_from([64, 67, 200, 1029]))
    shape = (3, count)
    memory = random_numbers(rng, (20, 3, count + 3), dtype)
    outside = random_numbers(rng, (20, 3, count + 3), dtype)

    first = draw(st.integers(0, 3))  # the same lines are at the same place

    def part(whole, begin, end, ahead):
        """Return rows of the memory, so many rows ahead of where they usually are."""
        found = whole[begin + ahead : end + ahead, :, first : first + count]
        return Rows(begin, np.moveaxis(found, 0, axis))

    ahead = st.sampled_from([0, 0, 1, 2, 8])
    sources = [part(outside, 0, rows, 0)]
    sources += [part(memory, *piece, draw(ahead)) for piece in pieces(draw, rows)]
    written, by = draw(st.sampled_from([memory, memory.copy()])), draw(ahead)
    targets = [part(written, *piece, by) for piece in pieces(draw, rows)]
    targets = targets or [part(written, 0, rows, by)]
    coefficients = random_numbers(rng, (2, 3 * count), dtype) if draw(st.booleans()) else None
    program = draw(programs(rows, 2 if coefficients is not None else 0, dtype))
    buffer = np.zeros((rows, *shape), dtype)
    for begin, array in sources:
        buffer[begin : begin + array.shape[axis]] = np.moveaxis(array, axis, 0)
    buffer = expected_rows(program, buffer.reshape(rows, -1), coefficients).reshape(rows, *shape)
    with pack.using(name):
        prepare_lines(program, sources, targets, axis, coefficients)()
    scale = np.abs(buffer).max(initial=1) * (1e-4 if dtype in ("f4", "c8") else 1e-12)
    for begin, array in targets:
        wanted = buffer[begin : begin + array.shape[axis]]
        np.testing.assert_allclose(np.moveaxis(array, axis, 0), wanted, atol=scale, rtol=0)


def steps_of(program):
    """Return the steps of a program."""
    found, begin = [], 0
    numbers = zip(
        program.rows_of.tolist(),
        program.weights.tolist(),
        program.coefficients_of.tolist(),
        strict=True,
    )
    terms = [Term(*of) for of in numbers]
    for target, end in zip(program.targets.tolist(), program.ends.tolist(), strict=True):
        found.append(Step(target, terms[begin:end]))
        begin = end
    return found
