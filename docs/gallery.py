"""A page for each example, with its picture, made when the documentation is built."""

import runpy
import sys
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from shutil import move
from tempfile import TemporaryDirectory

from matplotlib import pyplot as plt
from notebooks import of_example

import pencils
from pencils import plot

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
TARGET = DOCS / "_gallery"

# The title of each example, and the arguments that make its picture, if it draws one.
TITLES = {
    "navier_stokes": ("Taylor-Green vortex", "--n 48 --viscosity 0.0012 --dt 0.05 --time 7"),
    "turbulence": ("Two-dimensional turbulence", "--n 160 --time 8 --nu 0.001"),
    "vortex_street": ("Kármán vortex street", "--n 80 --steps 9000"),
    "convection": ("Rayleigh-Bénard convection", "--n 80 --time 14"),
    "turing": ("Turing patterns in three dimensions", "--n 64 --steps 2500"),
    "gray_scott": ("Gray-Scott patterns", "--n 128 --steps 3000"),
    "ginzburg_landau": ("Spiral waves", "--n 192 --time 80"),
    "phase_separation": ("Phase separation", "--n 192 --steps 999"),
    "schroedinger": ("Double slit", "--n 256 --time 1.6"),
    "particles": ("Particles in a flow", "--n 128 --steps 160 --particles 100000"),
    "shallow_water": ("Waves in shallow water", "--n 100 --time 0.25"),
    "wave_equation": ("Standing waves", "--n 96 --time 2.4"),
    "spectrum": ("Energy spectrum", "--n 48"),
    "kdv": ("Soliton of Korteweg and de Vries", "--n 64"),
    "burgers": ("Burgers' equation", ""),
    "heat_equation": ("Heat in a plate", "--n 16"),
    "heat_conduction": ("Heat in a composite", "--n 256"),
    "adi_heat": ("Implicit heat equation", ""),
    "potential_flow": ("Flow around a cylinder", "--n 160"),
    "channel_poisson": ("Pressure in a channel", ""),
    "channel_projection": ("Projection step in a channel", ""),
    "hello_pencils": ("First steps", None),
    "scatter_gather": ("Scatter and gather", None),
    "transpose": ("Transposes", None),
    "field_statistics": ("Statistics of a field", None),
    "poisson": ("Poisson equation between plates", None),
    "checkpoint_restart": ("Checkpoint and restart", None),
    "graph_wave": ("Sound, as a graph", None),
}

INDEX = """# Gallery

Every program runs on any number of processes, and checks its own results. The pictures were made on
one process, by the commands on their pages.

````{grid} 2 2 3 3
---
gutter: 2
---
"""

CARD = """```{{grid-item-card}} {title}
---
img-top: {name}.png
link: {name}
link-type: doc
---
```

"""

PAGE = """# {title}

{summary}

{picture}```console
$ python examples/{name}.py{shown}
```

{{download}}`{name}.py <../../examples/{name}.py>` ·
{{download}}`{name}.ipynb <{name}.ipynb>`

```{{literalinclude}} ../../examples/{name}.py
---
language: python
---
```
"""


def write(_app):
    """Draw all pictures, and write the pages that show them."""
    TARGET.mkdir(exist_ok=True)
    decompositions()
    for name, (title, options) in TITLES.items():
        write_page(EXAMPLES / f"{name}.py", title, options)
    drawn = [name for name, (_, options) in TITLES.items() if options is not None]
    cards = [CARD.format(title=TITLES[name][0], name=name) for name in drawn]
    others = [f"- [{TITLES[name][0]}]({name}.md)\n" for name in TITLES if name not in drawn]
    tree = "\n```{toctree}\n---\nhidden:\n---\n" + "\n".join(TITLES) + "\n```\n"
    rest = ["````\n\nPrograms that draw no picture:\n\n", *others, tree]
    save("index.md", "".join([INDEX, *cards, *rest]))


def write_page(path, title, options):
    """Write the page of an example, its notebook, and its picture."""
    name = path.stem
    arguments = [] if options is None else [*options.split(), "--picture", f"{name}.png"]
    made = TARGET / f"{name}.png"
    if arguments and (not made.exists() or made.stat().st_mtime < path.stat().st_mtime):
        draw(path, arguments)
    summary, *_ = path.read_text().strip('"').splitlines()
    picture = f"![{title}]({name}.png)\n\n" if arguments else ""
    shown = "".join(f" {argument}" for argument in arguments)
    page = PAGE.format(title=title, summary=summary, picture=picture, name=name, shown=shown)
    save(f"{name}.md", page)
    save(f"{name}.ipynb", of_example(path, arguments))


def save(name, text):
    """Write a file, but leave one that has this text as old as it is."""
    path = TARGET / name
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def draw(path, arguments):
    """Run an example in an empty folder, without what it prints; keep its picture."""
    before, sys.argv = sys.argv, [str(path), *arguments]
    try:
        with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(StringIO()):
            runpy.run_path(str(path), run_name="__main__")
            move(arguments[-1], TARGET / arguments[-1])
    finally:
        sys.argv = before
    plt.close("all")


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


def setup(app):
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
