"""Transposes: moving fields to another pencil of the same shape.

Imports fields (`pencils.array`), the base of plans and what is below. Begin with `transpose`: the
functions. `plan` has the reusable plan `Transposition`, which chooses in `pencils.comm` what moves
messages; `sides` lists these.
"""
