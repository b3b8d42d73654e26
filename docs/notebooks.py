"""Notebooks of pages and of examples, without a library.

Run it to write ``notebook.ipynb``, after a change of ``notebook.md``.
"""

import json
import re
from pathlib import Path

PAGE = Path(__file__).parent / "notebook.md"
PARTS = re.compile(r"^```(python|text)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def cell(kind, source, output=""):
    """Return a cell of Markdown or of code, as notebooks of version 4 have them."""
    made = {"cell_type": kind, "metadata": {}, "source": source.strip().splitlines(keepends=True)}
    if kind == "code":
        stream = {
            "output_type": "stream",
            "name": "stdout",
            "text": output.splitlines(keepends=True),
        }
        made |= {"execution_count": None, "outputs": [stream] if output else []}
    return made


def notebook(cells):
    """Return the text of a notebook."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    head = {"metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps({"cells": cells} | head, indent=1, ensure_ascii=False) + "\n"


def of_page(text):
    """Return the notebook of a page, whose blocks of text are outputs of the code before."""
    cells, end = [], 0
    for part in PARTS.finditer(text):
        if prose := text[end : part.start()].strip():
            cells.append(cell("markdown", prose))
        if part[1] == "python":
            cells.append(cell("code", part[2]))
        else:
            cells[-1] = cell("code", "".join(cells[-1]["source"]), part[2])
        end = part.end()
    return notebook([*cells, cell("markdown", text[end:])])


def of_example(path, arguments):
    """Return the notebook of a program, which gets its arguments as in a shell."""
    _, prose, code = path.read_text().split('"""', 2)
    start = f"import sys\n\nsys.argv = {[path.name, *arguments]}"
    parts = [start, *code.strip().split("\n\n\n")]
    if "--picture" in arguments:
        parts.append(f'from IPython.display import Image\n\nImage("{path.stem}.png")')
    return notebook([cell("markdown", prose), *(cell("code", part) for part in parts)])


if __name__ == "__main__":
    PAGE.with_suffix(".ipynb").write_text(of_page(PAGE.read_text()))
