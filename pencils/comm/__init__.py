"""Move bytes between ranks: raw NumPy arrays and communicators, no pencils.

Begin with `exchange`, whose head has a glossary; `mpi` is the only import of mpi4py.
"""
