"""A page of pictures, made when the documentation is built: each example, run on one process."""

import runpy
import sys
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from matplotlib import pyplot as plt

import pencils
from pencils import plot

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
TARGET = DOCS / "_gallery"


def on_grid(u, lengths, **options):
    """Draw a field with coordinates from 0 to the lengths."""
    axes = [np.linspace(0, length, n) for n, length in zip(u.pencil.shape, lengths, strict=True)]
    return plot.plot_slice(u, grid=pencils.localgrid(u.pencil, axes), **options)


def adi_heat(names):
    u = names["exact"](box(names["SHAPE"], names["LENGTHS"]), 0)
    v, solvers = u.copy(), [names["line_solver"](u.pencil, axis, 0.002) for axis in range(3)]
    for _ in range(5):
        names["step"](u, solvers, v)
    return on_grid(u, names["LENGTHS"], axis=2, index=20, cmap="inferno")


def channel_poisson(names):
    nx, ny, nz = shape = (48, 32, 48)
    axes = (np.arange(nx) * names["LX"] / nx, np.arange(ny) / ny, names["heights"](nz)[1])
    grid = pencils.localgrid(pencils.Pencil(shape, periodic=(True, True, False)), axes)
    p = names["solve"](names["problem"](grid)[1])
    return plot.plot_slice(p, axis=1, index=0, grid=grid, cmap="RdBu_r")


def box(shape, lengths):
    axes = [np.linspace(0, length, n) for n, length in zip(shape, lengths, strict=True)]
    return pencils.localgrid(pencils.Pencil(shape), axes)


def checkpoint_restart(names):
    pen = pencils.layout.build_layout(names["pen"].shape, 12, decomp=(0, 1))
    other = pencils.layout.build_layout(names["pen"].shape, 4, decomp=(1, 2))
    return plot.plot_redistribution(pen, other)[0]


def graph_wave(names):
    p = pencils.PencilArray(names["pen"], names["result"][0])
    return on_grid(p, (2 * np.pi, 2 * np.pi), cmap="RdBu_r")


def decompositions():
    """Draw slabs, pencils and blocks, for the page about decompositions."""
    figure, axes = plt.subplots(
        1, 3, figsize=(12, 4.4), subplot_kw={"projection": "3d"}, layout="constrained"
    )
    names = ("slabs", "pencils", "blocks")
    for ax, name, decomp in zip(axes, names, ((0,), (0, 1), (0, 1, 2)), strict=True):
        layout = pencils.layout.build_layout((24, 24, 24), 8, decomp=decomp)
        plot.plot_decomposition(layout, ax=ax)
        ax.set_title(f"{name}: {' × '.join(map(str, layout.grid.shape))} ranks")
        ax.set_box_aspect((1, 1, 1), zoom=0.85)
    figure.savefig(TARGET / "decompositions.png")
    plt.close(figure)


# What draws each example: its functions, or its own option --picture.
PICTURES = {
    "navier_stokes": "--n 32 --viscosity 0.002 --dt 0.05 --time 4",
    "heat_equation": lambda names: on_grid(names["solve"](40, 0.02)[0], (1, 1), cmap="inferno"),
    "wave_equation": lambda names: on_grid(names["solve"](64, 2, 0.4)[0], (2 * np.pi, 2 * np.pi)),
    "gray_scott": "--n 96 --steps 1500",
    "shallow_water": "--n 100 --time 0.25",
    "burgers": lambda names: on_grid(
        names["solve"](48, 0.5, 0.1)[0], (2 * np.pi, 2 * np.pi), component=0, cmap="RdBu_r"
    ),
    "kdv": "--n 64",
    "spectrum": "--n 48",
    "channel_poisson": channel_poisson,
    "adi_heat": adi_heat,
    "particles": "--n 128 --steps 160 --particles 100000",
    "graph_wave": graph_wave,
    "checkpoint_restart": checkpoint_restart,
}


def draw(name, picture):
    """Run an example, and save its picture."""
    path, target = EXAMPLES / f"{name}.py", TARGET / f"{name}.png"
    if isinstance(picture, str):
        run(path, [*picture.split(), "--picture", str(target)], "__main__")
    else:
        plot.save_picture(target, picture(run(path, [], "gallery")))


def run(path, arguments, name):
    """Run an example in an empty folder, without what it prints; return its names."""
    before, sys.argv = sys.argv, [str(path), *arguments]
    try:
        with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(StringIO()):
            return runpy.run_path(str(path), run_name=name)
    finally:
        sys.argv = before


def write(_app):
    """Draw all pictures, and write the page that shows them."""
    TARGET.mkdir(exist_ok=True)
    decompositions()
    lines = ["Gallery", "=======", "", "Each example runs on any number of processes.", ""]
    for name, picture in PICTURES.items():
        source = EXAMPLES / f"{name}.py"
        made = TARGET / f"{name}.png"
        if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
            draw(name, picture)
        title, *_ = source.read_text().strip('"').splitlines()
        lines += [name.replace("_", " ").capitalize(), "-" * len(name), "", title, ""]
        lines += [f".. image:: {name}.png", f"   :alt: {title}", "   :width: 480", ""]
        lines += [f"``{source.relative_to(DOCS.parent)}``", ""]
        lines += [".. raw:: html", "", "   <details><summary>Code</summary>", ""]
        lines += [f".. literalinclude:: ../../examples/{source.name}", ""]
        lines += [".. raw:: html", "", "   </details>", ""]
    (TARGET / "index.rst").write_text("\n".join(lines))


def setup(app):
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
