"""Draw the ratios that ``make bench`` has kept, one picture for each script.

    python benchmarks/plots.py build/bench/results.jsonl docs/benchmarks

Bars begin at 1. To the right pencils is faster than the peer, to the left it is slower.
"""

import json
import sys
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

FASTER, SLOWER = "#2a788e", "#d95f02"
ROW = 0.2  # inches


def draw(rows, target):
    """Draw the rows of one script."""
    ratios = [row["ratio"] for row in rows]
    figure, axes = plt.subplots(figsize=(9, 1.3 + ROW * len(rows)), layout="constrained")
    colors = [FASTER if ratio >= 1 else SLOWER for ratio in ratios]
    places = range(len(rows))
    axes.barh(places, [ratio - 1 for ratio in ratios], left=1, height=0.7, color=colors)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(min(0.5, *ratios) / 1.3, max(2, *ratios) * 1.3)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", linewidth=0.4)
    axes.set_axisbelow(True)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(places, [row["case"] for row in rows], fontsize="small")
    peers = axes.twinx()
    peers.set_ylim(axes.get_ylim())
    peers.set_yticks(places, [f"{row['ratio']:.2f}  {row['peer']}" for row in rows])
    peers.tick_params(labelsize="small", length=0)
    axes.set_xlabel("time of the peer (right) / time of pencils (left)")
    figure.suptitle(caption(rows[0]), fontsize="small")
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)


def caption(row):
    return (
        f"{row['script']}.py, pencils {row['pencils']}, {row['date']}: {row['ranks']} ranks on "
        f"{row['cores']} cores, {row['processor']}, {row['mpi']}, NumPy {row['numpy']}"
    )


def main():
    source, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "pencils"}  # text, and equal files
    rows = map(json.loads, source.read_text(encoding="utf-8").splitlines())
    script_of = itemgetter("script")
    for script, found in groupby(sorted(rows, key=script_of), script_of):
        draw([*found], folder / f"{script}.svg")


if __name__ == "__main__":
    main()
