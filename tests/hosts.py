#!/usr/bin/env python3
"""Make several hosts of one machine, and run MPI programs on them over TCP. Linux, as root.

    tests/hosts.py up 2                 make two hosts, instead of those that there are
    tests/hosts.py run -n 4 --per-host 2 .venv/bin/python -m mpi4py app.py
    tests/hosts.py rate 200mbit         limit what each host sends and receives; `rate off`
    tests/hosts.py cut 2                take host 2 off the network; `mend 2`
    tests/hosts.py bytes                what each host has sent and received
    tests/hosts.py on 2 hostname        run a command on host 2
    tests/hosts.py down                 end what runs on the hosts, and remove them
    tests/hosts.py check                whether all this is possible here, and if not, why

A host is a network namespace, connected with the others by a bridge. A job has its own host name,
process numbers, interface, and files in /dev/shm on each host; all other files are those of the
machine, as on a cluster with a common file system. ``run`` takes the ``mpiexec`` that lies beside
the program, of MPICH or Open MPI, and ends what the program leaves behind: one job at a time.
Another value of PENCILS_HOSTS (default: 83) makes other hosts, with addresses 10.83.0.1 and so on.
"""

import argparse
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

NUMBER = int(os.environ.get("PENCILS_HOSTS", "83"))
BRIDGE = f"pencils{NUMBER}"
NETWORK = f"10.{NUMBER}.0"
SELF = str(Path(__file__).resolve())

# The arguments are the name of the host and the command. The shell stays: it reaps processes.
INSIDE = 'hostname "$1"; mount -t tmpfs -o mode=1777 tmpfs /dev/shm; sh -c "$2"; exit $?'


def name_of(host):
    """Return the name of a host, and of the end of its cable in the bridge."""
    return f"{BRIDGE}-{host}"


def call(*command):
    """Run a command and return what it prints; end with what it complains about if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"hosts: {shlex.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def on_host(host, *command):
    """Run a command in the network of a host."""
    return call("ip", "netns", "exec", name_of(host), *command)


def hosts():
    """Return the numbers of the hosts."""
    return sorted(
        map(int, re.findall(rf"^{BRIDGE}-(\d+)\b", call("ip", "netns", "list"), re.MULTILINE))
    )


def why_not():
    """Return why this machine cannot make hosts; empty if it can."""
    if os.geteuid() != 0:
        return "only root makes network namespaces; run as root, as in a container of your own"
    packages = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "mount": "mount"}
    absent = [name for name in packages if not shutil.which(name)]
    if absent:
        names = sorted({packages[name] for name in absent})
        return f"no command {', '.join(absent)}; install {' '.join(names)}"
    if hosts():
        return ""
    try:
        up(1)
        call(*entering(1, "true"))
    except SystemExit as error:
        return f"this system allows no hosts: {error}"
    finally:
        with suppress(SystemExit):
            down()
    return ""


def check():
    """End with the reason if hosts are impossible here."""
    reason = why_not()
    if reason:
        sys.exit(reason)


def up(count):
    """Make hosts, connected by a bridge in which this machine has an address, too."""
    down()
    call("ip", "link", "add", BRIDGE, "type", "bridge")
    call("ip", "address", "add", f"{NETWORK}.254/24", "dev", BRIDGE)
    call("ip", "link", "set", BRIDGE, "up")
    for host in range(1, count + 1):
        cable, name = name_of(host), name_of(host)
        call("ip", "netns", "add", name)
        call(*f"ip link add {cable} type veth peer name eth0 netns {name}".split())
        call("ip", "link", "set", cable, "master", BRIDGE, "up")
        on_host(host, "ip", "address", "add", f"{NETWORK}.{host}/24", "dev", "eth0")
        on_host(host, "ip", "link", "set", "eth0", "up")
        on_host(host, "ip", "link", "set", "lo", "up")


def down():
    """Remove all hosts and what runs on them."""
    end_programs()
    for host in hosts():
        # Otherwise it goes some time later. Open MPI does not start while an interface goes.
        if Path("/sys/class/net", name_of(host)).exists():
            call("ip", "link", "delete", name_of(host))
        call("ip", "netns", "delete", name_of(host))
    if Path("/sys/class/net", BRIDGE).exists():
        call("ip", "link", "delete", BRIDGE)


def end_programs():
    """Kill what runs on the hosts."""
    for host in hosts():
        for process in call("ip", "netns", "pids", name_of(host)).split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)


def rate(speed):
    """Limit both directions of each host, or none if `speed` is "off"."""
    # Two of the segments of 64 KiB that TCP hands to the interface.
    bucket = ("tbf", "rate", speed, "burst", "128kb", "latency", "50ms")
    for host in hosts():
        for within, device in (("tc", "-n", name_of(host)), "eth0"), (("tc",), name_of(host)):
            if speed != "off":
                call(*within, "qdisc", "replace", "dev", device, "root", *bucket)
            elif "tbf" in call(*within, "qdisc", "show", "dev", device):
                call(*within, "qdisc", "delete", "dev", device, "root")


def cut(host):
    """Take a host off the network."""
    call("ip", "link", "set", name_of(host), "down")


def mend(host):
    """Connect a host again."""
    call("ip", "link", "set", name_of(host), "up")


def show_bytes():
    """Print the traffic of each host since it was made."""
    for host in hosts():
        counts = Path("/sys/class/net", name_of(host), "statistics")
        # What its end in the bridge has received, the host has sent.
        sent, received = ((counts / f"{kind}_bytes").read_text().strip() for kind in ("rx", "tx"))
        print(f"host {host} has sent {sent} and received {received} bytes")


def entering(host, command):
    """Return the command that runs a shell command on a host."""
    # Ranks of Open MPI and of UCX that see each other's processes or System V memory use them.
    unshared = ("unshare", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child")
    shell = ("sh", "-euc", INSIDE, "-", name_of(host), command)
    return ("ip", "netns", "exec", name_of(host), *unshared, "--mount-proc", *shell)


def enter(host, command):
    """Become a shell command on a host."""
    words = entering(host, command)
    os.execvp(words[0], words)


def run(options):
    """Run an MPI program on the hosts and return its exit status."""
    available = hosts()
    if not available:
        sys.exit("hosts: there are none: hosts.py up 2")
    lock = os.open(Path(tempfile.gettempdir(), f"{BRIDGE}.lock"), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("hosts: another job runs there; set PENCILS_HOSTS to a number of your own")
    program = shutil.which(options.command[0])
    if program is None:
        sys.exit(f"hosts: no program {options.command[0]}")
    mpiexec = Path(program).with_name("mpiexec")
    per_host = options.per_host or -(-options.n // len(available))
    if per_host * len(available) < options.n:
        sys.exit(f"hosts: {len(available)} hosts have no place for {options.n} ranks")
    is_openmpi = "Open MPI" in call(str(mpiexec), "--version")
    template, arguments = open_mpi(mpiexec) if is_openmpi else mpich()
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as file:
        file.writelines(template.format(f"{NETWORK}.{host}", per_host) for host in available)
        file.flush()
        where = ["--hostfile" if is_openmpi else "-f", file.name, "-n", str(options.n)]
        return end_with([str(mpiexec), *arguments, *where, *options.command])


def mpich():
    """Return how MPICH writes a host, and the arguments that its mpiexec needs."""
    launcher = ["-launcher", "ssh", "-launcher-exec", SELF]
    return "{}:{}\n", [*launcher, "-iface", BRIDGE]


def open_mpi(mpiexec):
    """Return how Open MPI writes a host, and the arguments that its mpiexec needs."""
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    launcher = ["--prefix", str(mpiexec.parent.parent), "--prtemca", "plm_ssh_agent", SELF]
    network = ["--prtemca", "prte_if_include", f"{NETWORK}.0/24"]
    components = {"pml": "ob1", "btl": "tcp,sm,self", "btl_tcp_if_include": "eth0", "osc": "^ucx"}
    chosen = [word for pair in components.items() for word in ("--mca", *pair)]
    return "{} slots={}\n", ["--bind-to", "none", *launcher, *network, *chosen]


def end_with(command):
    """Run a command; whatever ends this program ends it, and what it has started on the hosts."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        end_programs()


def parse(words):
    """Return the function to call and its arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)

    def add(function, name=None, **arguments):
        command = commands.add_parser(name or function.__name__)
        for argument, kind in arguments.items():
            command.add_argument(argument, type=kind)
        command.set_defaults(call=lambda found: function(*(getattr(found, n) for n in arguments)))

    for function in check, down:
        add(function)
    add(show_bytes, "bytes")
    add(up, count=int)
    add(rate, speed=str)
    for function in cut, mend:
        add(function, host=int)
    command = commands.add_parser("on")
    command.add_argument("host", type=int)
    command.add_argument("command", nargs=argparse.REMAINDER)
    command.set_defaults(call=lambda found: enter(found.host, shlex.join(found.command)))
    command = commands.add_parser("run")
    command.add_argument("-n", type=int, default=2, help="number of ranks")
    command.add_argument("--per-host", type=int, help="number of ranks of each host, in turn")
    command.add_argument("command", nargs=argparse.REMAINDER)
    command.set_defaults(call=run)
    return parser.parse_args(words)


def main():
    """Do what the command line says, or what mpiexec asks for as if this were ssh."""
    words = sys.argv[1:]
    place = next((n for n, word in enumerate(words[:2]) if word.startswith(f"{NETWORK}.")), None)
    if place is not None:
        enter(int(words[place].rpartition(".")[2]), " ".join(words[place + 1 :]))
    options = parse(words)
    sys.exit(options.call(options))


if __name__ == "__main__":
    main()
