"""Transpositions: moving fields to another pencil of the same shape.

Imports fields (`pencils.array`), the base of plans and what is below. Begin with `plan`: the
reusable plan `Transposition`. `sides` lists its messages, `transpose` is the function that keeps
plans, `tune` measures which method is fastest, and `alias` makes fields that share memory.
"""
