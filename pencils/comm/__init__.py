"""Move bytes between ranks: raw NumPy arrays and communicators, no pencils.

Imports `pencils.errors`, `pencils.layout` and, where no MPI library is, simmpi. `mpi` is the only
import of mpi4py, `memory` the only file that uses memory addresses. Begin with `exchange`, whose
head has a glossary; `topology` has the private communicators, `agree` the checks before
collectives, `staging` what the ranks of a node put in shared memory for each other.
"""
