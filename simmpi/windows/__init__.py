"""Windows of simulated ranks: memory that other ranks read and write.

Begin reading with `windows`; `synchronization` opens and closes the epochs of `epochs`, in which
the accesses of `one_sided` are made and checked.
"""
