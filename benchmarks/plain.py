"""Time plain lines of pencils against the same work by hand with NumPy and mpi4py, or by a library.

    mpiexec -n 2 python -m mpi4py benchmarks/plain.py
    mpiexec -n 2 python -m mpi4py benchmarks/plain.py --only halo --seconds 1

Both sides of a line are timed in turn, in one run, and a sample is the time of the slowest rank.
The table shows medians, the median ratio of pairs of samples (above 1: pencils is faster), that of
minima, and the goal. Only ratios are comparable between machines; with more ranks than free cores
they scatter.

Each file of ``benchmarks/plain_lines`` has the lines of one verb; `LINES` there.
"""

import argparse
import gc
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from mpi4py import MPI

from pencils.comm import pack

timing = import_module("timing")
COMM = timing.COMM
print_on_root = timing.print_on_root
FOLDER = Path(__file__).parent / "plain_lines"
line_timing = import_module("plain_lines.line")
results = import_module("results")


def find_lines(only, *, quick):
    """Yield the lines whose name, or whose file's name, contains one of the words `only`."""
    for file in iter_modules([str(FOLDER)]):
        if file.name == "line":
            continue
        for line in import_module(f"plain_lines.{file.name}").LINES:
            wanted = not only or any(word in line.name or word in file.name for word in only)
            if wanted and line.ranks <= COMM.size and not (quick and line.heavy):
                yield line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="lines or files with these words")
    parser.add_argument("--quick", action="store_true", help="short, without the heavy lines")
    parser.add_argument("--seconds", type=float, default=0.4, help="time for each line")
    parser.add_argument("--list", action="store_true", help="print the lines only")
    options = parser.parse_args()
    lines = list(find_lines(options.only, quick=options.quick))
    library = MPI.Get_library_version().split(",")[0].splitlines()[0]
    print_on_root(f"float64 on {COMM.size} ranks, {library}, kernels {pack.available()[0]}")
    print_on_root(line_timing.heading())
    for line in lines:
        if options.list:
            print_on_root(line.name)
            continue
        calls = line.make(COMM)
        seconds, least = (0.1, 3) if options.quick else (options.seconds, 7)
        times = line_timing.measure(COMM, calls, seconds, least)
        if calls.free is not None:
            calls.free()
        del calls
        gc.collect()  # fields of one line must not take the memory of the next
        print_on_root(line_timing.row(line, times))
        if times.ratio is not None:
            results.keep(line.name, line.peer, times.ratio)


if __name__ == "__main__":
    main()
