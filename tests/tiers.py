"""Which test cases run without the option ``--all``, and which ones with ``--rest``.

Without it every behaviour is tested once: each value of each parameter, but not each combination of
values, and some of the random cases. Nothing is repeated that another test checks more thoroughly.

``--rest`` runs the other cases of ``--all``: both parts together have each case once, but repeat
random cases less often than ``--all`` does.
"""

from collections import defaultdict
from itertools import product
from operator import eq

from hypothesis import settings
from mpi4py import MPI

from simmpi.world import active

A_DOZEN = 12
MANY = 3  # ranks
STARTERS = frozenset({"hide", "mpirun", "on_ranks", "program", "simulated"})  # fixtures
SIMULATED = active() is not None
# On simulated ranks one case out of so many runs, and which one, by number of ranks.
SHARES = {2: (8, 0), 4: (16, 2), 6: (16, 12), 16: (48, 38)}
SEED = 0  # of simulated ranks; set from the command line
PART = None  # "few", "others" or "each"; set from the command line
FEW = 6  # one case out of so many is one of the few
ALL = False  # set from the command line before any test module is imported
REST = False  # of the cases with ALL, only those that do not run without it


def chosen(items):
    """Choose the cases of this run."""
    if ALL and not REST:
        return items
    few = thin([item for item in items if item.get_closest_marker("thorough") is None])
    if not REST:
        return few
    known = set(few)
    return [item for item in items if item not in known]


def thin(items):
    """Choose the fewest cases of each test that have each value of each of its parameters.

    All cases of a test with up to a dozen cases run. On one process, a test that also runs on three
    ranks runs in one case. Values are combined differently for each test of a module, and for each
    number of ranks. Inside mpiexec on more than three ranks, which share few cores, every second
    case runs: on six ranks those that do not run on four. On 2 simulated ranks, every eighth case
    runs, on 4, 6 and 16 of them fewer: others on each number of ranks, and with another seed.
    ``--part few`` makes a part of these cases, ``--part others`` those that it leaves out, and
    ``--part each`` one of each test: see `part_of`.
    """
    tests = defaultdict(list)
    for item in items:
        tests[item.parent.nodeid, getattr(item, "originalname", item.name)].append(item)
    numbers = defaultdict(int)
    chosen = set()
    for (module, _), cases in tests.items():
        numbers[module] += 1
        number, size = numbers[module], MPI.COMM_WORLD.size
        if size == 1 and is_for_several(cases[0]):
            found = [cases[number % len(cases)]]
        else:
            found = cases if len(cases) <= A_DOZEN else [*diagonal(cases, number + size)]
        chosen.update(part_of(some_of(found, number), number))
    return [item for item in items if item in chosen]


def some_of(cases, number):
    """Choose the cases of a test with this number that run on this number of ranks."""
    size = MPI.COMM_WORLD.size
    if SIMULATED:
        share, place = SHARES.get(size, (8, size))
        return cases[(number + place + SEED) % share :: share]
    if size > MANY:
        cases = cases[(number + size // 2) % 2 :: 2] or cases
    return cases


def part_of(cases, number):
    """Choose the cases of a test with this number for the part that is asked for, if any.

    With "each", this is one case, always the same one. The few are one case out of `FEW`: on one
    process at least one of each test, but for those that start programs.
    """
    if PART is None or not cases:
        return cases
    if PART == "each":
        return [cases[number % len(cases)]]
    each = MPI.COMM_WORLD.size == 1 and not starts_programs(cases[0])
    first = number % (min(FEW, len(cases)) if each else FEW)
    few = cases[first::FEW]
    return few if PART == "few" else [case for case in cases if case not in few]


def starts_programs(item):
    """Whether a test starts other programs, which takes it a second or more."""
    return not STARTERS.isdisjoint(item.fixturenames)


def is_for_several(item):
    """Whether a test also runs on three ranks."""
    mark = item.get_closest_marker("parallel")
    return mark is not None and 3 in mark.args[0]


def diagonal(cases, shift):
    """Choose one case for each value of the longest parameter; the others advance with it.

    If some value is missing then, because not all combinations are cases, choose all cases.
    """
    positions = [positions_of(values) for values in zip(*map(values_of, cases), strict=True)]
    positions.sort(key=max, reverse=True)
    counts = [1 + max(position) for position in positions]
    chosen = {}
    for case, (first, *others) in zip(cases, zip(*positions, strict=True), strict=True):
        expected = ((first + n * shift) % count for n, count in enumerate(counts[1:], 1))
        if all(map(eq, others, expected)):
            chosen[case] = first, *others
    seen = [len(set(values)) for values in zip(*chosen.values(), strict=True)]
    return chosen if seen == counts else cases


def values_of(item):
    """Return the values of a case for each ``parametrize`` and each fixture with parameters."""
    params = dict(item.callspec.params)
    values = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        names = names.replace(",", " ").split() if isinstance(names, str) else names
        values.append(tuple(id(params.pop(name)) for name in names))
    return values + [id(value) for value in params.values()]


def positions_of(values):
    """Replace each value by its number among the distinct values."""
    known = {value: n for n, value in enumerate(dict.fromkeys(values))}
    return [known[value] for value in values]


def combined(*axes):
    """Return all combinations of values; without ``--all`` the fewest with each value of each."""
    if ALL:
        return list(product(*axes))
    return [tuple(axis[n % len(axis)] for axis in axes) for n in range(max(map(len, axes)))]


def up_to(most, few):
    """Return how often to repeat: `most` with ``--all``; `few` without it, and with ``--rest``."""
    return most if ALL and not REST else few


def examples(most):
    """Make Hypothesis generate `most` examples; a quarter of them where `up_to` gives few."""
    return settings(max_examples=up_to(most, -(-most // 4)))
