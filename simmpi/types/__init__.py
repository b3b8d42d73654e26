"""Datatypes, buffers and operations of the simulated MPI: which bytes a message has.

Nothing here communicates. Begin reading with `kinds` and `derived` for datatypes, `buffers` for
what programs pass to calls, `operations` for reductions.
"""
