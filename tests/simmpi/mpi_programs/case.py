"""One operation of a random program: its random choices, its text, and its messages."""

import hashlib

import numpy as np
from mpi4py import MPI

INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
FLOATS = ("f4", "f8", "g")
COMPLEX = ("c8", "c16")
DTYPES = (*INTEGERS, *FLOATS, *COMPLEX, "?")
TAGS = 128  # of each operation
SHOWN = 40  # elements of an array that a result shows


class Case:
    """What an operation gets. All ranks of its communicator make the same random choices."""

    def __init__(self, index, seed, slot, slots):
        self.index = index
        self.seed = seed
        self.slot = slot
        self.slots = slots
        self.rng = np.random.default_rng(seed)
        self.words = []

    def text(self, name):
        """Return the operation with its choices, for people."""
        size = self.comm.Get_size() if self.comm else "null"
        return " ".join([name, f"on communicator {self.slot} of {size}:", *self.words])

    @property
    def comm(self):
        """The communicator of the operation."""
        return self.slots[self.slot]

    rank = property(lambda self: self.comm.Get_rank())
    size = property(lambda self: self.comm.Get_size())
    first_tag = property(lambda self: self.index * TAGS)  # the first of those of this operation

    def ends(self):
        """Choose a shift; return the ranks to send to and to receive from."""
        shift = self.integer("shift", 0, self.size)
        return (self.rank + shift) % self.size, (self.rank - shift) % self.size

    def note(self, **words):
        """Add choices to the text of the operation."""
        self.words += [f"{name}={value}" for name, value in words.items()]

    def choose(self, name, options):
        """Choose one of the options."""
        options = list(options)
        chosen = options[self.rng.integers(len(options))]
        self.note(**{name: chosen})
        return chosen

    def integer(self, name, low, high):
        """Choose an integer from low to high, both included."""
        chosen = int(self.rng.integers(low, high + 1))
        self.note(**{name: chosen})
        return chosen

    def integers(self, name, low, high, count):
        """Choose some integers from low to high, both included."""
        chosen = self.rng.integers(low, high + 1, count).tolist()
        self.note(**{name: chosen})
        return chosen

    def flag(self, name):
        """Choose True or False."""
        return self.choose(name, [False, True])

    def order(self, count):
        """Choose a permutation."""
        return self.rng.permutation(count).tolist()

    def data(self, dtype, shape, *key, high=5):
        """Make an array of small integers that depends on the operation and the key only."""
        rng = np.random.default_rng([self.seed, *key])
        dtype = np.dtype(dtype)
        low = 0 if dtype.kind in "ub" else -high
        values = rng.integers(low, high + 1, shape)
        if dtype.kind == "c":
            return (values + 1j * rng.integers(low, high + 1, shape)).astype(dtype)
        return (values % 2 if dtype.kind == "b" else values).astype(dtype)


def plain(value):
    """Return the text of a result: equal for equal results of different MPI libraries."""
    if isinstance(value, np.ndarray):
        return text_of_array(value)
    if isinstance(value, np.generic):
        return plain(float(value) if value.dtype.char == "g" else value.item())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"bytes {bytes(value)!r}"
    if isinstance(value, dict):
        items = (f"{plain(key)}: {plain(item)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(plain, value)) + "]"
    if isinstance(value, (str, int, float, complex, bool, type(None))):
        return repr(value)
    raise TypeError(f"a result of a program cannot be {type(value).__name__}")


def text_of_array(array):
    """Return type, shape and elements; of structured arrays, without padding."""
    if array.dtype.names:
        return plain({name: array[name] for name in array.dtype.names})
    values = array.astype("f8") if array.dtype.char == "g" else array  # no padding
    if values.dtype.kind in "fc":
        values = values + values.dtype.type(0)  # no negative zeros, which depend on the algorithm
    elements = repr(values.ravel()[:SHOWN].tolist())
    rest = "" if array.size <= SHOWN else hashlib.sha1(values.tobytes()).hexdigest()
    return f"{array.dtype.str}{list(array.shape)} {elements} {rest}"


def name_of(rank):
    """Return the rank, or the name of a constant, whose value differs between MPI libraries."""
    return {MPI.PROC_NULL: "PROC_NULL", MPI.ANY_SOURCE: "ANY_SOURCE"}.get(rank, rank)


def status_of(status, datatype=None):
    """Return what a status holds that all MPI libraries agree about."""
    found = [name_of(status.Get_source()), status.Get_tag(), status.Is_cancelled()]
    if datatype is not None:
        found += [status.Get_count(datatype), status.Get_elements(datatype)]
    return found


def error_of(function, *args, **kwargs):
    """Return the name of the class of the MPI error that a call raises."""
    try:
        function(*args, **kwargs)
    except MPI.Exception as error:
        return class_of(error)
    return "no error"


def class_of(error):
    """Return the name of the class of an MPI error."""
    names = (name for name in dir(MPI) if name.startswith("ERR_"))
    code = error.Get_error_class()
    return next((name for name in names if getattr(MPI, name) == code), f"class {code}")


def free(*objects):
    """Free communicators, groups, datatypes, ... that exist."""
    for item in objects:
        if item:
            item.Free()


def complete(request, how):
    """Complete one request."""
    if how == "wait":
        request.Wait()
    elif how == "test":
        while not request.Test():
            pass
    else:
        requests = [request]
        while not MPI.Request.Testall(requests):
            pass


FORMS = ("blocking", "blocking", "nonblocking", "nonblocking", "persistent")


def call(case, verb, *args, again=True, forms=FORMS):
    """Make a collective call in a random form: blocking, nonblocking or persistent."""
    form = case.choose("form", forms)
    how = case.choose("complete", ["wait", "test", "testall"])
    repeat = case.integer("starts", 1, 2 if again else 1)
    if form == "blocking":
        getattr(case.comm, verb)(*args)
        return
    if form == "nonblocking":
        complete(getattr(case.comm, "I" + verb.lower())(*args), how)
        return
    how = "test" if how == "testall" else how  # MPICH 5.0: MPI_Testall fails
    request = getattr(case.comm, verb + "_init")(*args)
    for _ in range(repeat):
        request.Start()
        complete(request, how)
    request.Free()
