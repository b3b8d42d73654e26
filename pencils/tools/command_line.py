"""The commands of ``python -m pencils``: info, plan, run, simulate, show, verify, demo."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pencils import __version__
from pencils.comm.mpi import MPI
from pencils.tools import run
from pencils.tools.planning.candidates import Candidate, Candidates, plan
from pencils.tools.planning.links import Links, measure_links
from pencils.tools.run import report  # noqa: F401 - hides the frames that start programs
from pencils.tools.run.report import add_check, turn_on_checks
from simmpi import command

if TYPE_CHECKING:
    from pencils.io.show import At

_GIB = 2**30
_MOST_NODES = 4
_EXAMPLES = """examples:
  python -m pencils info
  python -m pencils show checkpoint.h5 --plot u
  python -m pencils plan 512 512 512 --ranks 64 --per-node 16 --op fft --op halo:1
  mpiexec -n 4 python -m pencils run program.py
  python -m pencils simulate -n 4 program.py
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command. *Collective* over all processes.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments, default those of the process.
    """
    args = _parse(argv, MPI.COMM_WORLD)
    if args is not None and args.command is not None:
        _COMMANDS[args.command](args, MPI.COMM_WORLD.rank)


def _parse(argv: Sequence[str] | None, comm: MPI.Intracomm) -> argparse.Namespace | None:
    """Read the command line on rank 0, so that help and errors are printed once. *Collective*.

    Returns None if there is nothing to do. If rank 0 raises, the other ranks exit normally, and
    mpiexec returns the exit status of rank 0.
    """
    args: argparse.Namespace | None = None
    failure: BaseException | None = None
    if comm.rank == 0:
        try:
            words = sys.argv[1:] if argv is None else list(argv)
            parser = _parser(with_demo=words[:1] == ["demo"])
            args = parser.parse_args(words)
            if args.command is None:
                parser.print_help()
        except BaseException as error:  # noqa: BLE001 - any: the other ranks wait for the broadcast
            args, failure = None, error
    everyone: argparse.Namespace | None = comm.bcast(args)
    if failure is not None:
        raise failure
    return everyone


def _parser(*, with_demo: bool) -> argparse.ArgumentParser:
    """Make the parser; the options of the demo take an import of SciPy, which is long."""
    parser = argparse.ArgumentParser(
        "python -m pencils",
        description=sys.modules["pencils"].__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pencils {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    _add(commands, "info", "print versions, and where the processes run")
    _add_plan(commands)
    run.add_parser(commands)
    _add_simulate(commands)
    show = _add(commands, "show", "list what files hold")
    show.add_argument(
        "file",
        nargs="+",
        help="a checkpoint, a series, any HDF5 file or Zarr folder, or a file of tune()",
    )
    show.add_argument("--plot", metavar="NAME", help="draw a plane of this dataset of each file")
    show.add_argument(
        "--picture",
        metavar="FILE",
        help="where to draw one file (default: NAME.png; of several files: FILE_NAME.png)",
    )
    show.add_argument("--axis", type=int, help="axis normal to the plane (default: the last of 3)")
    show.add_argument(
        "--index", type=int, help="index of the plane along the axis (default: the middle)"
    )
    show.add_argument(
        "--at",
        nargs="+",
        metavar="NAME=X",
        help="coordinates, like time=0.5 z=0.25 component=1, or indices of time and components "
        "(default: last, 0)",
    )
    check = _add(commands, "verify", "compare files with the checksums in them")
    check.add_argument("file", nargs="+", help="a file that pencils.save() has written")
    check.add_argument("--edited", action="store_true", help="files changed by other programs, too")
    check.add_argument("--external", action="store_true", help="follow links to other files")
    layout = argparse.RawDescriptionHelpFormatter  # the formulas keep their lines
    command = commands.add_parser(
        "demo", help="solve the Navier-Stokes equations", formatter_class=layout
    )
    if with_demo:
        _add_demo(command)
    return parser


def _add(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    """Add a command, which the help of all commands and its own describe in one line."""
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text.capitalize()}."
    )
    return command


def _demo(args: argparse.Namespace, _: int) -> None:
    """Solve the Navier-Stokes equations. *Collective*."""
    from pencils.tools import demo

    demo.main(args)


def _plan(args: argparse.Namespace, rank: int) -> None:
    """Print the table of process grids once. *Collective*, if links are measured."""
    from pencils.errors import PencilsError

    try:
        found = _candidates(args)
    except (PencilsError, TypeError) as error:
        sys.exit(f"error: {error}" if rank == 0 else 1)
    if rank != 0:
        return
    print(found)
    if args.picture and found:
        try:
            _draw_grid(args, found[0])
        except (ImportError, OSError, PencilsError) as error:
            sys.exit(f"error: {error}")


def _draw_grid(args: argparse.Namespace, best: Candidate) -> None:
    """Draw the blocks of a process grid, and print the name of the picture; local."""
    from pencils.layout import build_layout
    from pencils.tools.plot import plot_decomposition, save_picture

    layout = build_layout(args.shape, args.ranks, decomp=best.decomp, grid=best.grid)
    save_picture(args.picture, plot_decomposition(layout))
    print(f"drawn: {args.picture}")


def _add_demo(command: argparse.ArgumentParser) -> None:
    """Add the options of the demo."""
    from pencils.errors import MissingLibraryError

    try:
        from pencils.tools import demo
    except MissingLibraryError as error:
        command.error(str(error))
    command.description = demo.__doc__
    demo.add_arguments(command)


def _show(args: argparse.Namespace, rank: int) -> None:
    """Describe every file on rank 0, also after errors in others; draw a plane if asked to."""
    if rank != 0:
        return
    from pencils.errors import PencilsError
    from pencils.io.file_access import open_to_read
    from pencils.io.formats import is_zarr
    from pencils.io.show import describe_file
    from pencils.tools.planning.tuning import describe_results

    if args.picture and len(args.file) > 1:
        sys.exit("error: --picture names one file, but several are to be drawn; leave it out")
    if not args.plot and (args.picture, args.axis, args.index, args.at) != (None,) * 4:
        sys.exit("error: --picture, --axis, --index and --at need --plot NAME, the dataset to draw")
    bad = False
    for path in args.file:
        try:
            is_text = False
            if not is_zarr(path):
                with open_to_read(path) as handle:
                    is_text = os.read(handle, 1) == b"{"
            print(describe_results(path) if is_text else describe_file(path), flush=True)
            if args.plot:
                _draw(args, path)
        except (ImportError, OSError, PencilsError) as error:
            bad = True
            where = "" if path in str(error) else f"{path}: "
            print(f"error: {where}{error}", flush=True)
    if bad:
        sys.exit(1)


def _draw(args: argparse.Namespace, path: str) -> None:
    """Draw a plane of a dataset, and print the name of the picture; local."""
    from pencils.tools.plot import plot_file, save_picture

    several = len(args.file) > 1
    words = [*(Path(path).parts if several else ()), *args.plot.split("/")]
    named = "_".join(word for word in words if word.strip("./"))
    target = args.picture or f"{named}.png"
    ax = plot_file(path, args.plot, args.axis, args.index, at=_as_places(args.at))
    save_picture(target, ax)
    print(f"  drawn: {target} ({ax.get_title()})", flush=True)


def _as_places(words: Sequence[str] | None) -> At:
    """Read the words after --at: coordinates by names of axes, or indices."""
    from pencils.errors import ArgumentError

    if words is None:
        return None
    try:
        if not any("=" in word for word in words):
            return list(map(int, words))
        return {name: float(x) for name, x in (word.split("=") for word in words)}
    except ValueError:
        raise ArgumentError(
            f"--at {' '.join(words)} must be coordinates of axes, like --at time=0.5 z=0.25, or "
            "one index for the time and each component axis"
        ) from None


def _verify(args: argparse.Namespace, rank: int) -> None:
    """Verify every file, also after errors in others. *Collective*."""
    from pencils import verify
    from pencils.errors import PencilsError

    bad = 0
    for path in args.file:
        try:
            names = verify(path, edited=args.edited, external=args.external)
            line = f"{path}: {', '.join(names) or 'list of contents'} as written"
        except (PencilsError, OSError) as error:
            line, bad = f"error: {error}", bad + 1
        if rank == 0:
            print(line, flush=True)
    if bad and rank == 0:  # mpiexec returns the exit status of any process
        sys.exit(1)


def _info(_: argparse.Namespace, rank: int) -> None:
    """Print versions, and where the processes run, once. *Collective*."""
    lines = [f"{name:<15} {value}" for name, value in _rows()]
    if rank == 0:
        print("\n".join(lines))


def _rows() -> Iterator[tuple[str, str]]:
    """Yield names and values of what pencils runs on. *Collective*."""
    import h5py

    from pencils.comm.pack import available, kernels
    from pencils.comm.pool import VARIABLE, memory
    from pencils.tools.machine import describe_machine

    machine = describe_machine()
    yield "pencils", __version__
    yield "python", f"{platform.python_version()} ({sys.executable})"
    for package in ("numpy", "mpi4py"):
        yield package, _version(package)
    real = MPI.get_vendor()[0] != "simmpi"
    yield "MPI library", machine.library if real else f"none ({machine.library}, one process)"
    yield "MPI standard", ".".join(map(str, machine.standard))
    yield "h5py", version("h5py")
    yield "HDF5", h5py.version.hdf5_version
    yield "parallel HDF5", "yes" if h5py.get_config().mpi else "no (checkpoints do not need it)"
    for package in ("scipy", "mpi4py-fft", "matplotlib", "tqdm"):
        yield package, _version(package)
    yield "copies", f"{kernels()} (one of {', '.join(available())})"
    kept = memory().bound / _GIB
    yield "pool of fields", f"at most {kept:.2f} GiB wait in each process ({VARIABLE} sets it)"
    yield "processes", str(machine.processes)
    names = [f"{name} ({count})" for name, count in machine.nodes[:_MOST_NODES]]
    more = [] if len(machine.nodes) <= _MOST_NODES else ["..."]
    yield "nodes", f"{len(machine.nodes)}, with processes: {', '.join(names + more)}"
    room = machine.shared_memory
    sizes = room and f"{room[0] / _GIB:.1f} GiB, {room[1] / _GIB:.1f} GiB free"
    yield "/dev/shm", sizes or "none"  # noqa: S108 - a name, not a path


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


_PLAN_EXAMPLES = """examples:
  python -m pencils plan 2048 2048 2048 --ranks 4096 --per-node 64 --op fft --op halo:2
  python -m pencils plan 512 512 512 --ranks 64 --op halo:1:faces --decomp 0 1 --periodic
  mpiexec -n 4 python -m pencils plan 256 256 --ranks 16 --op transpose:1 --measure
"""


def _add_plan(commands: Any) -> None:
    """Add the command and its options."""
    command = commands.add_parser(
        "plan",
        help="predict which process grids are best",
        description="Predict which process grids suit a computation, for any number of ranks.",
        epilog=_PLAN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("shape", nargs="+", type=int, help="points along each dimension")
    command.add_argument("--ranks", type=int, required=True, help="number of processes")
    command.add_argument("--per-node", type=int, help="processes on a node (default: all)")
    command.add_argument(
        "--op",
        action="append",
        help="fft, halo:2, halo:2:faces or transpose:0,2; may be repeated (default: halo:1, and "
        "fft of real or complex types)",
    )
    command.add_argument("--dtype", default="float64", help="element type (default: float64)")
    command.add_argument("--decomp", nargs="+", type=int, help="decomposed dimensions")
    command.add_argument("--periodic", action="store_true", help="all dimensions wrap around")
    command.add_argument("--most", type=int, default=10, help="grids to list (default: 10)")
    command.add_argument("--picture", metavar="FILE", help="draw the blocks of the first grid")
    command.add_argument("--measure", action="store_true", help="measure the links between ranks")
    usual = Links()
    for name, what in (
        ("latency", "seconds for a message between nodes"),
        ("bandwidth", "bytes per second of a node"),
        ("node_latency", "seconds for a message on a node"),
        ("node_bandwidth", "bytes per second of a rank on its node"),
    ):
        text = f"{what} (default: {getattr(usual, name):g}, or what is measured)"
        command.add_argument(f"--{name.replace('_', '-')}", type=float, help=text)


def _candidates(args: argparse.Namespace) -> Candidates:
    """Return the candidates, to print. *Collective* over all processes, which may measure."""
    links = measure_links(MPI.COMM_WORLD) if args.measure else Links()
    names = "latency", "bandwidth", "node_latency", "node_bandwidth"
    values = {name: getattr(args, name) for name in names}
    return plan(
        args.shape,
        args.ranks,
        args.op,
        per_node=args.per_node,
        dtype=args.dtype,
        decomp=args.decomp,
        periodic=args.periodic,
        links=links.with_(**{name: each for name, each in values.items() if each is not None}),
        most=args.most,
    )


def _add_simulate(commands: Any) -> None:
    """Add the command to those of ``python -m pencils``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "simulate", help="run a program on simulated ranks, in one process", **command.LAYOUT
    )
    add_check(parser)
    command.add_arguments(parser, "python -m pencils simulate")


def _simulate(args: argparse.Namespace, _: int) -> None:
    """Run the program on simulated ranks, as ``python -m simmpi`` does."""
    turn_on_checks(args)
    args.again += ["--check"] * args.check
    command.main(args)


_COMMANDS: dict[str, Callable[[argparse.Namespace, int], None]] = {
    "info": _info,
    "plan": _plan,
    "run": lambda args, _: run.main(args),
    "simulate": _simulate,
    "show": _show,
    "verify": _verify,
    "demo": _demo,
}
