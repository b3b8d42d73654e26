"""Elliptic equations on pencils: grid levels, direct, multigrid and Krylov solvers."""

__all__: list[str] = []
