"""Transposes: moving fields to another pencil of the same shape.

Imports fields (`pencils.array`), the base of plans and what is below. Begin with `plan`: the
function `transpose` and the reusable plan `Transposition`. `sides` lists the messages of a plan,
`tune` measures which method is fastest, and `alias` makes fields that share memory.
"""
