"""Pictures: what is drawn where, for which rank; and errors on all ranks alike."""

import numpy as np
import pytest
from mpi_helpers import all_raise, everywhere

import pencils
from pencils import errors
from pencils.layout import build_layout, redistribution

pyplot = pytest.importorskip("matplotlib.pyplot")
plot = pencils.plot
parallel = pytest.mark.parallel([1, 2, 3, 4])


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


def rectangles(ax):
    """Return the corners of all rectangles, and their colours."""
    boxes = [patch.get_bbox() for patch in ax.patches]
    ranges = [(box.x0, box.x1, box.y0, box.y1) for box in boxes]
    return ranges, [patch.get_facecolor() for patch in ax.patches]


def test_blocks_of_one_to_three_dimensions():
    layout = build_layout((7, 5), 6, decomp=(0, 1))
    ax = plot.plot_decomposition(layout)
    found, colors = rectangles(ax)
    boxes = [layout.box(rank) for rank in range(6)]
    assert found == [(*sorted((b.start[0], b.stop[0])), b.start[1], b.stop[1]) for b in boxes]
    assert len(set(colors)) == 6
    texts = [text.get_text() for text in ax.texts]
    assert texts[0] == "rank 0\n0:3, 0:3"
    assert ax.get_title() == "7 × 5 points on 3 × 2 ranks"
    assert list(ax.get_xticks()) == [0, 3, 5, 7]
    # Blocks of one dimension and ranks without points.
    ax = plot.plot_decomposition(build_layout((3,), 5))
    assert rectangles(ax)[0] == [(0, 1, 0, 1), (1, 2, 0, 1), (2, 3, 0, 1)]
    assert ax.get_title() == "3 points on 5 ranks, 2 of them without points"
    assert plot.plot_decomposition(build_layout((3,), 1)).get_title() == "3 points on 1 rank"
    # Blocks of three dimensions.
    ax = plot.plot_decomposition(build_layout((8, 6, 4), 4, decomp=(0, 1)))
    assert ax.name == "3d"
    assert len(ax.collections) == 4
    assert [text.get_text() for text in ax.texts] == ["0", "1", "2", "3"]
    # Ranks of blocks that can be seen.
    layout = build_layout((9, 6, 3), 27, decomp=(0, 1, 2), grid=(3, 3, 3))
    ax = plot.plot_decomposition(layout)
    hidden = [layout.grid.rank((i, j, k)) for i in (0, 1) for j in (1, 2) for k in (0, 1)]
    seen = set(map(str, range(27))) - set(map(str, hidden))
    assert {text.get_text() for text in ax.texts} == seen
    # Before and after a transpose.
    one, other = build_layout((8, 6), 3, decomp=0), build_layout((8, 6), 3, decomp=1)
    before, after = plot.plot_redistribution(one, other)
    colors = rectangles(before)[1]
    expected = [
        ((m.box.start[0], m.box.stop[0], m.box.start[1], m.box.stop[1]), colors[m.source])
        for rank in range(3)
        for m in redistribution(one, other, None, rank)[1]
    ]
    assert list(zip(*rectangles(after), strict=True)) == expected


@pytest.mark.parametrize("periodic", [False, True])
def test_ghosts(periodic):
    layout = build_layout((8, 4), 2, periodic=periodic)
    ax = plot.plot_decomposition(layout, halo=1)
    (ghosts,) = ax.collections
    found = [path.get_extents().extents.tolist() for path in ghosts.get_paths()]
    if periodic:
        assert found == [[-1, -1, 5, 5], [3, -1, 9, 5]]
        assert ax.get_xlim() == (-1, 9)
    else:
        assert found == [[0, 0, 5, 4], [3, 0, 8, 4]]


def test_what_cannot_be_drawn():
    four, many = build_layout((2, 2, 2, 2), 1), build_layout((10**4,), 5000)
    flat, solid = build_layout((4, 4), 2), build_layout((4, 4, 4), 2)
    ax = plot.plot_decomposition(flat)
    for call, kind, text in (
        (lambda: plot.plot_decomposition(four), errors.ArgumentError, "4 dimensions"),
        (lambda: plot.plot_decomposition(many), errors.ArgumentError, "5000 blocks"),
        (lambda: plot.plot_decomposition(solid, ax=ax), errors.ArgumentError, "projection='3d'"),
        (lambda: plot.plot_decomposition((4, 4)), TypeError, "expected a Pencil"),
        (lambda: plot.plot_decomposition(flat, halo=-1), errors.ArgumentError, "halo"),
        (lambda: plot.plot_redistribution(flat, solid), errors.ArgumentError, "shape"),
        (lambda: plot.plot_redistribution(flat, flat, axes=[ax]), errors.ArgumentError, "two"),
    ):
        with pytest.raises(kind, match=text):
            call()


@parallel
@pytest.mark.parametrize("root", [0, -1])
@pytest.mark.parametrize(("axis", "index"), [(0, 2), (1, None), (2, -1)])
def test_planes_of_a_field(comm, axis, index, root):
    root %= comm.size
    pencil = pencils.Pencil((5, 4, 3), comm)
    whole = np.arange(60.0).reshape(5, 4, 3)
    u = pencils.partition(pencil, whole)
    grid = pencils.localgrid(pencil, [np.linspace(0, n, n) ** 2 for n in pencil.shape])
    ax = plot.plot_slice(u, axis, index, grid=grid, root=root, cmap="gray")
    at = pencil.shape[axis] // 2 if index is None else index
    assert everywhere(comm, (ax is not None) == (comm.rank == root))
    if ax is not None:
        mesh = ax.collections[0]
        expected = np.take(whole, at, axis).T
    assert everywhere(comm, ax is None or np.array_equal(mesh.get_array(), expected))
    assert everywhere(
        comm, ax is None or ax.get_title() == f"{'xyz'[axis]} = {grid.axes[axis][at]:.3g}"
    )
    names = "xyz".replace("xyz"[axis], "")
    assert everywhere(comm, ax is None or (ax.get_xlabel(), ax.get_ylabel()) == tuple(names))
    assert everywhere(comm, ax is None or mesh.get_cmap().name == "gray")


@parallel
def test_lines_components_and_own_axes(comm):
    pencil = pencils.Pencil((6, 4), comm)
    u = pencils.zeros(pencil, components=(2,))
    u[1] = np.arange(24.0).reshape(6, 4)
    mine = pyplot.figure().add_subplot() if comm.rank == 0 else None
    ax = plot.plot_slice(u, 1, 3, component=1, ax=mine, color="red")
    assert everywhere(comm, ax is mine)
    line = mine.lines[0].get_ydata() if mine else None
    assert everywhere(
        comm, mine is None or np.array_equal(line, np.arange(24.0).reshape(6, 4)[:, 3])
    )
    assert everywhere(comm, mine is None or mine.lines[0].get_color() == "red")
    # Fields that are the same along a dimension.
    pencil = pencils.Pencil((5, 4, 3), comm)
    whole = np.arange(60.0).reshape(5, 4, 3)
    mean = pencils.partition(pencil, whole).mean(axis=2)
    ax = plot.plot_slice(mean, 2)
    values = ax.collections[0].get_array() if ax else whole.mean(2).T
    assert everywhere(comm, np.allclose(values, whole.mean(2).T))
    all_raise(comm, errors.ArgumentError, "pass this as axis=", plot.plot_slice, mean, 0)


@parallel
def test_the_middle_plane_of_three_dimensions_is_drawn_by_default(comm):
    u = pencils.from_function(pencils.Pencil((4, 3, 6), comm), lambda i, j, k: 9 * i + 3 * j + k)
    ax = plot.plot_slice(u)
    drawn = np.asarray(ax.collections[0].get_array()).reshape(3, 4) if ax else None
    expected = [[9 * i + 3 * j + 3 for i in range(4)] for j in range(3)]
    assert everywhere(comm, ax is None or np.array_equal(drawn, expected))
    assert everywhere(comm, ax is None or ax.get_title() == "index 2 = 3")


@parallel
def test_colors_of_both_signs_diverge_from_zero(comm):
    pencil = pencils.Pencil((5, 4), comm)
    i, j = pencils.localgrid(pencil, [np.arange(5.0), np.arange(4.0)])
    for u, options, name, limits, extend in (
        (i + j - 3, {}, "RdBu_r", (-4, 4), "neither"),
        (3 - i - j, {"label": "u"}, "RdBu_r", (-4, 4), "neither"),
        (i + j, {}, "viridis", (0, 7), "neither"),
        (i + j - 0.01, {}, "viridis", (-0.01, 6.99), "neither"),  # of one sign but for a trace
        (i + j - 3, {"cmap": "gray"}, "gray", (-3, 4), "neither"),
        (i + j - 3, {"vmax": 2}, "viridis", (-3, 2), "max"),
        (i + j - 3, {"vmin": -2, "vmax": 2}, "viridis", (-2, 2), "both"),
        (i + j - 3, {"vmin": -2, "cmap": "gray"}, "gray", (-2, 4), "min"),
        (i + j > 3, {}, "viridis", (0, 1), "neither"),
        (np.where(i > 1, np.nan, i + j - 3), {}, "viridis", (-3, 1), "neither"),
    ):
        ax = plot.plot_slice(u, **options)
        mesh = ax.collections[0] if ax else None
        found = mesh and (mesh.get_cmap().name, mesh.get_clim(), mesh.colorbar.extend)
        assert everywhere(comm, mesh is None or found == (name, limits, extend))


@pytest.mark.parametrize("shape", [(8, 8), (32, 8), (8, 32)])
def test_a_color_bar_is_as_high_as_the_picture(shape):
    ax = plot.plot_slice(pencils.zeros(pencils.Pencil(shape)))
    ax.figure.canvas.draw()
    bar = ax.collections[0].colorbar.ax
    sizes = [one.get_window_extent().height for one in (ax, bar)]
    assert np.isclose(*sizes, rtol=0.05)
    assert sizes[0] > 0.3 * ax.figure.bbox.height  # little of the figure is empty


@parallel
def test_a_line_along_a_period_is_closed(comm):
    for points, closed in ((np.arange(8) / 4, True), (np.arange(8.0) ** 2, False)):
        pencil = pencils.Pencil(8, comm, periodic=True)
        grid = pencils.localgrid(pencil, [points])
        ax = plot.plot_slice(np.cos(grid.x * np.pi), grid=grid, label="wave")
        along = [*points, *([2.0] if closed else [])]
        line = np.transpose(ax.lines[0].get_data()) if ax else None
        expected = np.stack([along, np.cos(np.pi * np.array(along))], axis=1)
        assert everywhere(comm, ax is None or np.allclose(line, expected))
        assert everywhere(comm, ax is None or ax.get_ylabel() == "wave")


@parallel
@pytest.mark.parametrize(
    ("kind", "shape", "options", "text"),
    [
        (errors.ArgumentError, (4, 4, 4), {"axis": 3}, "axis"),
        (errors.ArgumentError, (4, 4, 4), {"axis": 0, "index": 4}, "not within 4 points"),
        (errors.ArgumentError, (4, 4), {"index": 1}, "without axis"),
        (errors.ArgumentError, (4,), {"axis": 0}, "0 dimensions"),
        (errors.ArgumentError, (4, 4), {"component": 1}, "components"),
        (errors.ArgumentError, (4, 4), {"root": 99}, "root"),
    ],
)
def test_slices_that_do_not_exist(comm, kind, shape, options, text):
    u = pencils.zeros(pencils.Pencil(shape, comm))
    all_raise(comm, kind, text, plot.plot_slice, u, **options)


@parallel
def test_a_mistake_on_one_rank(comm):
    pencil = pencils.Pencil((4, 4, 4), comm)
    u = pencils.zeros(pencil)
    w = pencils.zeros(pencil, dtype=complex)
    all_raise(comm, TypeError, "complex", plot.plot_slice, w, 0)
    index = 1 if comm.rank == comm.size - 1 else 2
    if comm.size > 1:
        all_raise(comm, errors.RankDisagreementError, "index", plot.plot_slice, u, 0, index)
    # What only the root can refuse.
    pencil = pencils.Pencil((4, 4), comm, periodic=True)
    u = pencils.ones(pencil)
    ax = 5 if comm.rank == 0 else None
    options = {"nonsense": 1} if comm.rank == 0 else {}
    for draw in plot.plot_slice, plot.plot_spectrum:
        all_raise(comm, TypeError, "axes of Matplotlib", draw, u, ax=ax)
        all_raise(comm, AttributeError, "nonsense", draw, u, **options)
    # A spectrum refuses singletons on every rank.
    u = pencils.zeros(pencils.Pencil((6, 4)), dims=0)
    text = "the same along [1]"
    all_raise(u.pencil.comm, errors.ArgumentError, text, plot.plot_spectrum, u)


@parallel
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("shape", [(12, 9), (8, 6, 10)])
def test_a_spectrum_has_the_energy_of_numpys_waves(shape, dtype):
    pen = pencils.Pencil(shape, decomp=len(shape) - 1, periodic=True)
    u = pencils.random.normal(pen, rng=1, components=2).astype(dtype)
    u[1] *= 1 if dtype is float else 2j
    ax = plot.plot_spectrum(u)
    values = pencils.gather(u, root=0)
    assert (ax is None) == (pen.rank > 0)
    if ax is not None:
        waves = np.fft.fftn(values, axes=range(1, 1 + len(shape)), norm="forward")
        numbers = np.ix_(*[np.fft.fftfreq(n, 1 / n) for n in shape])
        shells = np.rint(np.sqrt(sum(k**2 for k in numbers))).astype(int)
        energy = np.bincount(shells.ravel(), (abs(waves) ** 2).sum(axis=0).ravel() / 2)
        (curve,) = ax.lines
        np.testing.assert_allclose(curve.get_ydata(), energy[1:])
        assert list(curve.get_xdata()) == list(range(1, len(energy)))


def test_numbers_over_time(tmp_path):
    path = tmp_path / "out.h5"
    u = pencils.ones(pencils.Pencil((4, 3)))
    with pencils.TimeSeries(path, "w") as series:
        for step in range(3):
            series.append(step / 2, {"u": u, "energy": step**2, "mass": 1.0})
    ax = plot.plot_times(path)
    panels = [(panel.get_ylabel(), panel.lines) for panel in ax.figure.axes]
    numbers = {"energy": [0, 1, 4], "mass": [1, 1, 1]}
    assert {name: list(line.get_ydata()) for name, (line,) in panels} == numbers
    assert [*panels[-1][1]] == [*ax.lines]
    assert list(ax.lines[0].get_xdata()) == [0, 0.5, 1]
    assert len(plot.plot_times(path, ["mass"]).figure.axes) == 1
    one = plot.plot_times(path, ax=pyplot.figure().add_subplot())
    assert {line.get_label(): list(line.get_ydata()) for line in one.lines} == numbers
    assert [text.get_text() for text in one.get_legend().get_texts()] == list(numbers)
    with pytest.raises(errors.ArgumentError, match=r"no numbers \['u'\]; .* has: energy, mass"):
        plot.plot_times(path, ["u"])
    with pytest.raises(FileNotFoundError, match="check the path"):
        plot.plot_times("missing.h5")
    plot.save_picture(tmp_path / "mass.png", ax)
    assert (tmp_path / "mass.png").read_bytes().startswith(b"\x89PNG")
    assert not pyplot.fignum_exists(ax.get_figure().number)


def write_files(folder):
    pencil = pencils.Pencil((5, 4, 3))
    grid = pencils.localgrid(pencil, [np.linspace(0, 2, n) for n in pencil.shape])
    whole = np.arange(60.0).reshape(5, 4, 3)
    u, flow = pencils.partition(pencil, whole), pencils.zeros(pencil, components=2)
    flow[1] = u
    pencils.save(folder / "a.h5", {"u": u, "w": u + 1j, "n": 3}, grid=grid)
    with pencils.TimeSeries(folder / "b.h5", "w") as series:
        for time in (0.5, 1.0):
            series.append(time, {"flow": flow * time, "energy": time})
    return whole


def test_a_plane_of_a_file(tmp_path):
    whole = write_files(tmp_path)
    ax = plot.plot_file(tmp_path / "a.h5", "u", 1, -1, cmap="gray")
    np.testing.assert_array_equal(ax.collections[0].get_array(), whole[:, 3].T)
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("x", "z", "y = 2")
    assert [one.get_ylabel() for one in ax.figure.axes] == ["z", "u"]  # the colour bar
    ax = plot.plot_file(tmp_path / "a.h5", "u")
    np.testing.assert_array_equal(ax.collections[0].get_array(), whole[:, :, 1].T)
    ax = plot.plot_file(tmp_path / "b.h5", "flow")  # the last time, the first component
    assert not ax.collections[0].get_array().any()
    ax = plot.plot_file(tmp_path / "b.h5", "flow", at=(0, 1))
    np.testing.assert_array_equal(ax.collections[0].get_array(), whole[:, :, 1].T / 2)
    assert ax.get_title() == "time = 0.5, component = 1, index2 = 1"
    for at in ({"time": 0.6, "component": 1, "index2": 1}, {"time": 0, "component": 1}):
        ax = plot.plot_file(tmp_path / "b.h5", "flow", at=at)
        np.testing.assert_array_equal(ax.collections[0].get_array(), whole[:, :, 1].T / 2)
    ax = plot.plot_file(tmp_path / "a.h5", "u", at={"y": 1.3})  # the point at 4/3
    np.testing.assert_array_equal(ax.collections[0].get_array(), whole[:, 2].T)
    ax = plot.plot_file(tmp_path / "a.h5", "u", at={"y": 0, "x": 2.4})  # a line
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), whole[4, 0])
    assert (ax.get_ylabel(), ax.get_title()) == ("u", "x = 2, y = 0")
    ax = plot.plot_file(tmp_path / "a.h5", "x")
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), np.linspace(0, 2, 5))


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (("v",), {}, "there is n, u, w, x, y, z"),
        (("w",), {}, "complex128"),
        (("n",), {}, "no picture"),
        (("u", 3), {}, "axis"),
        (("u", 0, 5), {}, "not within 5 points"),
        (("u",), {"at": 1}, r"each axis before space, of shape \(\), .* names of axes: x, y, z"),
        (("u",), {"at": {"r": 1}}, "no axis 'r'; axes are x, y, z"),
        (("u",), {"at": {"x": 2.6}}, "x=2.6 is outside of its points, 0 to 2"),
        (("u",), {"at": {"x": float("nan")}}, "x=nan is outside"),
        (("u", 0), {"at": {"x": 0}}, "name the same axis"),
        (("x", 0), {}, "1 dimensions"),
    ],
)
def test_planes_that_files_do_not_have(tmp_path, arguments, options, text):
    write_files(tmp_path)
    with pytest.raises(errors.ArgumentError, match=text):
        plot.plot_file(tmp_path / "a.h5", *arguments, **options)
