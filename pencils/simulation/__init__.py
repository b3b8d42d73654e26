"""Simulated ranks: an MPI in one Python process, in pure Python and NumPy.

Every simulated rank is a thread, and exactly one of them runs at a time. The datatypes, buffers,
messages and collectives here need no MPI library. This folder imports only `pencils.errors` and
`pencils.process`. Begin reading with `datatypes`, `buffers` and `scheduler`.
"""
