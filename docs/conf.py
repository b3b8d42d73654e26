"""Sphinx configuration: MyST pages, numpydoc docstrings."""

import inspect
import os
import sys
from contextlib import suppress
from pathlib import Path

import pencils
from pencils.functions import FUNCTIONS

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("MPLBACKEND", "Agg")

project = "pencils"
author = "the pencils developers"
copyright = f"2026, {author}"  # noqa: A001 - the name Sphinx reads
release = version = pencils.__version__

extensions = [
    "gallery",  # gallery.py draws the pictures of the examples
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
nitpicky = False
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
copybutton_exclude = ".linenos, .gp, .go"  # copies commands without prompts and output

autodoc_typehints = "none"  # numpydoc's Parameters sections say it better
autosummary_generate = True
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_validation_checks = {"PR02"}  # a documented parameter that does not exist

# NumPy checks the arguments of its functions; ours pass on as `options` what they do not read.
for known, function in FUNCTIONS.items():
    named = "options" in inspect.signature(function).parameters
    if named and "**options" not in (function.__doc__ or ""):
        with suppress(ValueError):  # some functions of NumPy have no signature
            function.__signature__ = inspect.signature(known)

# Members that other layers use, and users do not.
INTERNAL = {
    "HaloExchange": "bind for_fields prepared set_up synchronizes",
    "Handle": "finish",
    "CompactDerivative": "kept source_name",
    "OpenFile": "writer",
    "Pencil": "along canonical_form extent part sibling topology uncut",
    "PencilArray": "extent global_box from_block allocated base blank mark_written frame in_frame "
    "shifts",
    "PointIndexer": "check_field plan_put plan_take put_request take_request",
    "ReduceOp": "result blank combine fold ufunc",
    "Transposition": "agree_on exchange for_spec needs_setup prepared_one set_up",
}


def skip_internal(app, _kind, name, *_):
    """Leave out of the page of a class what `INTERNAL` lists; let Sphinx decide about others."""
    page = app.env.docname.rpartition(".")[2]
    return True if name in INTERNAL.get(page, "").split() else None


def setup(app):
    app.connect("autodoc-skip-member", skip_internal)


if "READTHEDOCS" in os.environ:  # elsewhere the build stays offline
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "mpi4py": ("https://mpi4py.readthedocs.io/en/stable", None),
    }

html_theme = "furo"
html_title = f"pencils {release}"
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["versions.js"]
html_theme_options = {
    "source_repository": "https://github.com/pencils-dev/pencils",
    "source_branch": "main",
    "source_directory": "docs/",
}
