"""Move bytes between ranks: raw NumPy arrays and communicators, no pencils.

Imports `pencils.errors` and `pencils.layout` only. `mpi` is the only import of mpi4py, `memory` the
only file that uses memory addresses. Begin with `exchange`, whose head has a glossary; `topology`
has the private communicators, `agree` the checks before collectives.
"""
