"""What a run leaves out unless it is asked for all with ``--all``.

Without it every behaviour is tested, once: each value of each parameter, but not each combination
of values; some of the random cases; no repetition of what is tested elsewhere at greater length.
"""

from collections import defaultdict
from itertools import product
from operator import eq

from hypothesis import settings
from mpi4py import MPI

A_DOZEN = 12
ALL = False  # set from the command line before any test module is imported


def thin(items):
    """Choose as few cases of each test as have each value of each of its parameters.

    Tests of up to a dozen cases run whole. On one process, those that run on three ranks as well,
    with all values, run in one case. From test to test of a module, and from one number of ranks to
    another, other values meet.
    """
    tests = defaultdict(list)
    for item in items:
        tests[item.parent.nodeid, getattr(item, "originalname", item.name)].append(item)
    numbers = defaultdict(int)
    chosen = set()
    for (module, _), cases in tests.items():
        numbers[module] += 1
        if MPI.COMM_WORLD.size == 1 and is_for_several(cases[0]):
            chosen.add(cases[numbers[module] % len(cases)])
        elif len(cases) <= A_DOZEN:
            chosen.update(cases)
        else:
            chosen.update(diagonal(cases, numbers[module] + MPI.COMM_WORLD.size))
    return [item for item in items if item in chosen]


def is_for_several(item):
    """Whether a test runs on three ranks, too."""
    mark = item.get_closest_marker("parallel")
    return mark is not None and 3 in mark.args[0]


def diagonal(cases, shift):
    """Choose the cases in which all parameters step forward with the one that has most values.

    Where these miss a value, because not all combinations are cases, choose all.
    """
    positions = [positions_of(values) for values in zip(*map(values_of, cases), strict=True)]
    positions.sort(key=max, reverse=True)
    counts = [1 + max(position) for position in positions]
    chosen = {}
    for case, (first, *others) in zip(cases, zip(*positions, strict=True), strict=True):
        meets = ((first + n * shift) % count for n, count in enumerate(counts[1:], 1))
        if all(map(eq, others, meets)):
            chosen[case] = first, *others
    seen = [len(set(values)) for values in zip(*chosen.values(), strict=True)]
    return chosen if seen == counts else cases


def values_of(item):
    """Give what a case has of each decorator ``parametrize``, and of each fixture with params."""
    params = dict(item.callspec.params)
    values = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        names = names.replace(",", " ").split() if isinstance(names, str) else names
        values.append(tuple(id(params.pop(name)) for name in names))
    return values + [id(value) for value in params.values()]


def positions_of(values):
    """Replace values by their positions among the different ones."""
    known = {value: n for n, value in enumerate(dict.fromkeys(values))}
    return [known[value] for value in values]


def combined(*axes):
    """Give all combinations of values; without ``--all`` as few as have each value of each axis."""
    if ALL:
        return list(product(*axes))
    return [tuple(axis[n % len(axis)] for axis in axes) for n in range(max(map(len, axes)))]


def up_to(most, few):
    """Give `most`; without ``--all`` only `few`."""
    return most if ALL else few


def examples(most):
    """Let Hypothesis draw `most` examples; without ``--all`` a quarter of them."""
    return settings(max_examples=up_to(most, -(-most // 4)))
