"""Sizes at which communication changes; looked up at each use, so that tests can lower them."""

# One MPI call moves at most this many bytes, or units of a datatype: counts are 32-bit integers.
MOST_BYTES = 2**30
MOST_UNITS = 2**30
# Blocks of at least so many bytes get a message of their own, which saves packing them.
ALONE = 2**18
