"""No two texts of a picture overlap, whatever is drawn: they are measured while they are drawn."""

from itertools import combinations

import numpy as np
import pytest

import pencils
from pencils.layout import build_layout
from pencils.tools import command_line

pyplot = pytest.importorskip("matplotlib.pyplot")
plot = pencils.plot


def blocks(shape, ranks, **options):
    return lambda: plot.plot_decomposition(build_layout(shape, ranks, **options))


def moved(shape, ranks, before, after):
    layouts = [build_layout(shape, ranks, decomp=decomp) for decomp in (before, after)]
    return lambda: plot.plot_redistribution(*layouts)[0]


def box(**options):
    pencil = pencils.Pencil((12, 10, 8), **options)
    return pencils.localgrid(pencil, [np.linspace(0, 1, n) for n in pencil.shape])


def plane():
    grid = box()
    return plot.plot_slice(grid.x * grid.y - 3 * grid.z, axis=2, grid=grid, label="heat")


def ghosts():
    return plot.plot_decomposition(build_layout((4800, 3200), 16, decomp=(0, 1)), halo=40)


def numbers():
    with pencils.TimeSeries("n.h5", "w") as series:
        for step in range(4):
            series.append(
                0.1 * step, {"mass": 0.08 + 1e-6 * step, "max": 1.0 - step, "e": 10.0**step}
            )
    return plot.plot_times("n.h5")


def numbers_on_one_scale():
    numbers()
    return plot.plot_times("n.h5", ax=pyplot.figure().add_subplot())


def spectrum():
    return plot.plot_spectrum(pencils.random.normal(box(periodic=True).pencil, rng=1))


def tuning():
    rows = pencils.Pencil((16, 16), decomp=0)
    return plot.plot_tuning(pencils.tune([rows, rows.with_(decomp=1)], show=False))


def of_file():
    with pencils.TimeSeries("u.h5", "w", grid=box()) as series:
        series.append(0.5, {"u": pencils.ones(box().pencil, components=(2, 2))})
    return plot.plot_file("u.h5", "u", at={"z": 0.3})


def three_in_one_figure():
    shown = {"subplot_kw": {"projection": "3d"}, "layout": "constrained", "figsize": (12, 4.4)}
    _, axes = pyplot.subplots(1, 3, **shown)
    for ax, decomp in zip(axes, ((0,), (0, 1), (0, 1, 2)), strict=True):
        plot.plot_decomposition(build_layout((24, 24, 24), 8, decomp=decomp), ax=ax)
    return axes[0]


PICTURES = {
    "a line": blocks((100,), 12),
    "a line of many": blocks((10**6,), 1000),
    "blocks": blocks((48, 32), 6, decomp=(0, 1)),
    "large numbers": ghosts,
    "slabs": blocks((512, 512), 16),
    "64 slabs": blocks((512, 512), 64),
    "1000 slabs": blocks((5120, 512), 1000),
    "1024 blocks": blocks((512, 512), 1024, decomp=(0, 1)),
    "thin": blocks((2000, 10), 8, decomp=(0, 1), grid=(4, 2)),
    "slabs of a cube": blocks((512, 512, 512), 64),
    "pencils of a cube": blocks((512, 512, 512), 64, decomp=(0, 1)),
    "blocks of a cube": blocks((512, 512, 512), 64, decomp=(0, 1, 2)),
    "a thin cuboid": blocks((900, 60, 30), 27, decomp=(0, 1, 2)),
    "a transpose of slabs": moved((64, 48), 12, 0, 1),
    "a transpose of a large plane": moved((16384, 16384), 16, (0, 1), (1,)),
    "a transpose of a cube": moved((1024, 1024, 1024), 12, (0, 1), (1, 2)),
    "a transpose to many": moved((64, 64, 64), 32, (0,), (1,)),
    "three in one figure": three_in_one_figure,
    "plane": plane,
    "numbers over time": numbers,
    "numbers on one scale": numbers_on_one_scale,
    "spectrum": spectrum,
    "tuning": tuning,
    "file": of_file,
}


@pytest.fixture
def drawn(monkeypatch):
    """Collect texts as they are drawn, and the boxes that they take."""
    found, draw = [], pyplot.Text.draw

    def draw_and_note(text, renderer, *args):
        draw(text, renderer, *args)
        if text.get_visible() and text.get_text() and text.get_rotation() % 90 == 0:
            found.append((text.get_text(), text.get_window_extent(renderer)))

    monkeypatch.setattr(pyplot.Text, "draw", draw_and_note)
    yield found
    pyplot.close("all")


def overlaps(drawn, save, path):
    """List pairs of texts that overlap in a picture."""
    drawn.clear()  # what was measured, to choose labels
    save(path)
    assert len(drawn) > 4
    boxes = {(text, *box.extents.round(3)): box for text, box in drawn}
    return [(a[0], b[0]) for a, b in combinations(boxes, 2) if boxes[a].overlaps(boxes[b])]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PICTURES)
def test_texts_do_not_overlap(name, drawn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ax = PICTURES[name]()
    assert overlaps(drawn, ax.figure.canvas.figure.savefig, "a.png") == []


def test_overlaps_are_found(drawn, tmp_path):
    for place in ((0.5, 0.5), (0.5, 0.5, 0.5)):
        figure = pyplot.figure()
        ax = figure.add_subplot(projection="3d" if len(place) == 3 else None)
        ax.text(*place, "one")
        ax.text(*place, "other")
        assert ("one", "other") in overlaps(drawn, figure.savefig, tmp_path / "a.png")


def test_ranks_are_written_where_there_is_room():
    def texts(shape, ranks, **options):
        ax = plot.plot_decomposition(build_layout(shape, ranks, **options))
        return [text.get_text() for text in ax.texts]

    assert texts((48, 32), 2) == ["rank 0\n0:24, 0:32", "rank 1\n24:48, 0:32"]
    assert texts((4800, 3200), 16, decomp=(0, 1))[5] == "rank 5\n1200:2400\n800:1600"
    assert texts((480, 320), 16) == [str(rank) for rank in range(16)]
    assert texts((512, 512), 64) == [str(rank) for rank in range(0, 64, 5)]
    one, other = (build_layout((64, 48), 4, decomp=dim) for dim in (0, 1))
    _, after = plot.plot_redistribution(one, other)
    assert [text.get_text().partition("\n")[0] for text in after.texts] == [
        f"rank {rank}" for rank in range(4)
    ]
    pyplot.close("all")


@pytest.mark.parametrize("shape", [(512,), (512, 512), (512, 512, 512)])
@pytest.mark.parametrize("ranks", [1, 6, 64, 1000])
def test_edges_hide_no_blocks(shape, ranks):
    ax = plot.plot_decomposition(build_layout(shape, ranks))
    ax.figure.canvas.draw()
    pixels = np.asarray(ax.figure.canvas.buffer_rgba())[..., :3]
    middle = pixels[pixels.shape[0] // 2, pixels.shape[1] // 3 : pixels.shape[1] // 2]
    assert np.median(middle.min(axis=-1)) < 220  # most pixels have a colour
    pyplot.close("all")


def test_the_picture_of_a_plan_has_no_overlaps(drawn, tmp_path, monkeypatch, capsys):
    kept, path = [], tmp_path / "a.png"
    monkeypatch.setattr(plot, "save_picture", lambda *call: kept.append(call))
    command_line.main(["plan", *["512"] * 3, "--ranks", "64", "--picture", str(path)])
    assert f"drawn: {path}" in capsys.readouterr().out
    ((target, ax),) = kept
    assert target == str(path)
    assert overlaps(drawn, ax.figure.savefig, path) == []
