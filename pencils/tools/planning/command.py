"""The command ``python -m pencils plan``."""

from __future__ import annotations

import argparse
from typing import Any

from pencils.comm.mpi import MPI
from pencils.tools.planning.candidates import Candidates, plan
from pencils.tools.planning.links import Links, measure_links

_EXAMPLES = """examples:
  python -m pencils plan 2048 2048 2048 --ranks 4096 --per-node 64 --op fft --op halo:2
  python -m pencils plan 512 512 512 --ranks 64 --op halo:1:faces --decomp 0 1 --periodic
  mpiexec -n 4 python -m pencils plan 256 256 --ranks 16 --op transpose:1 --measure
"""


def add_parser(commands: Any) -> None:
    """Add the command and its options."""
    command = commands.add_parser(
        "plan",
        help="predict which process grids are best",
        description="Predict which process grids suit a computation, for any number of ranks.",
        epilog=_EXAMPLES,
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
        ("bandwidth", "bytes in a second of a node"),
        ("node_latency", "seconds for a message on a node"),
        ("node_bandwidth", "bytes in a second of a rank on its node"),
    ):
        text = f"{what} (default: {getattr(usual, name):g}, or what is measured)"
        command.add_argument(f"--{name.replace('_', '-')}", type=float, help=text)


def main(args: argparse.Namespace) -> Candidates:
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
