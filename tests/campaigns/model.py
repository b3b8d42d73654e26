"""A random program of verbs, and the global arrays that NumPy computes beside it.

All ranks draw the same steps, each step from its own numbers, so that steps can be left out.
"""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from world import numbers

import pencils
from pencils import Pencil

DTYPES = ("f8", "f8", "f4", "c16", "i8", ">f8")
LARGEST = 1009  # of whole numbers, so that sums are exact
FIELDS, PENCILS, FLIGHTS, PLANS = 6, 5, 4, 4


@dataclass(eq=False)
class Variable:
    """A field and its global data; busy while an exchange of it is under way."""

    name: str
    u: pencils.PencilArray
    data: np.ndarray
    busy: bool = False

    def reset(self, ghosts):
        """Set the ghosts to a number, and the own block again."""
        self.u.padded[...] = ghosts
        self.u.local[...] = self.data[self.u.local_slices]

    def check(self):
        """Compare the own block."""
        assert self.u.shape == self.data.shape, (self.name, self.u.shape, self.data.shape)
        expected = self.data[self.u.local_slices]
        if not np.array_equal(self.u.local, expected):
            wrong = np.argwhere(self.u.local != expected)
            raise AssertionError(
                f"{self.name}: {len(wrong)} of {expected.size} local values are wrong, first at "
                f"{wrong[0].tolist()}"
            )


@dataclass(eq=False)
class Flight:
    """What was started: the handle, its fields, and what to do with its result."""

    handle: Any
    variables: list
    finish: Any
    text: str


@dataclass(eq=False)
class Kept:
    """A plan, and what fields it takes."""

    plan: Any
    source: Pencil
    target: Pencil
    options: dict = field(default_factory=dict)


class Program:
    """A program on the ranks of a communicator; `table` has the functions of its steps."""

    def __init__(self, comm, seed, folder, table, depth=0):
        self.table = table
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.seed, self.folder, self.depth = seed, folder, depth
        self.rng = random.Random(f"start {seed}")
        ndim = self.rng.choice((1, 2, 2, 3, 3))
        self.shape = tuple(self.rng.choice((1, 2, 3, 5, 6, 8, 9)) for _ in range(ndim))
        self.pens: list[Pencil] = []
        self.variables: list[Variable] = []
        self.flights: list[Flight] = []
        self.plans: list[Kept] = []
        self.files: dict[str, np.ndarray] = {}
        self.log: list[str] = []
        self.number = -1
        self.made = 0
        self.new_pencil()

    def run(self, steps, skip=frozenset()):
        """Do the steps of these numbers."""
        for number in range(steps):
            if number in skip:
                continue
            self.number = number
            self.rng = random.Random(f"{self.seed} {number}")
            for _ in range(10):  # until one is possible
                step = self.rng.choice(self.table)
                if step(self) is not False:
                    break

    def end(self):
        """Complete all exchanges, check all fields, and free all plans."""
        while self.flights:
            self.land(self.flights[0])
        for variable in self.variables:
            variable.check()
        while self.plans:
            self.plans.pop().plan.free()

    def note(self, text):
        self.log.append(f"{'  ' * self.depth}{self.number}: {text}")

    # Choices, the same on all ranks.

    def new_pencil(self):
        rng, ndim = self.rng, len(self.shape)
        decomp = rng.sample(range(ndim), rng.randint(1, ndim))
        order = rng.sample(range(ndim), ndim)
        pen = Pencil(
            self.shape,
            self.comm,
            decomp=decomp,
            order=order,
            periodic=[rng.random() < 0.5 for _ in range(ndim)],
            splits=rng.choice(("first", "last", "floor", "ceil")),
        )
        self.pens.append(pen)
        del self.pens[:-PENCILS]
        return pen

    def choose_pencil(self):
        return self.rng.choice(self.pens)

    def free(self, condition=None):
        """List the fields that no exchange uses."""
        idle = [each for each in self.variables if not each.busy]
        return idle if condition is None else list(filter(condition, idle))

    def choose(self, condition=None):
        """Choose a field, or None."""
        found = self.free(condition)
        return self.rng.choice(found) if found else None

    def add(self, u, data):
        """Keep a field and its data, instead of an old one if there are many."""
        self.made += 1
        variable = Variable(f"u{self.made}", u, np.array(data))
        variable.check()
        others = self.free()
        if len(self.variables) >= FIELDS and others:
            self.variables.remove(others[0])
        self.variables.append(variable)
        return variable

    def spec(self):
        """Draw what a new field is like."""
        rng, ndim = self.rng, len(self.shape)
        dims = sorted(rng.sample(range(ndim), rng.randint(1, ndim)))
        options = {
            "dtype": rng.choice(DTYPES),
            "components": rng.choice(((), (), (), (2,), (2, 1))),
            "dims": dims if rng.random() < 0.2 else None,
        }
        if rng.random() < 0.4 and options["dims"] is None:
            options["halo"] = [(rng.randint(0, 2), rng.randint(0, 3)) for _ in range(ndim)]
        if rng.random() < 0.3:
            options["shared"] = True
        return options

    def create(self, pen, **options):
        """Make a field of known numbers."""
        u = pencils.zeros(pen, **options)
        data = numbers(u.shape, u.dtype.str, self.rng.randrange(100))
        u.local[...] = data[u.local_slices]
        return self.add(u, data)

    def key(self, shape):
        """Draw a basic index of global data."""
        rng = self.rng
        key = []
        for extent in shape:
            # A singleton cannot be cut to nothing.
            start, stop = (
                sorted(rng.randint(0, extent) for _ in range(2)) if extent > 1 else (0, extent)
            )
            key.append(slice(start, stop, rng.choice((1, 1, 2, 3))))
        return tuple(key)

    # What is under way.

    def fly(self, handle, variables, finish, text):
        for variable in variables:
            variable.busy = True
        self.flights.append(Flight(handle, variables, finish, text))

    def land(self, flight):
        result = flight.handle.wait()
        self.landed(flight, result)

    def landed(self, flight, result):
        self.flights.remove(flight)
        for variable in flight.variables:
            variable.busy = False
        flight.finish(result)
