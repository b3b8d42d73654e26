"""Groups, attributes, names, and comparisons of communicators."""

from mpi4py import MPI

from .case import error_of, free

COMPARISONS = ("IDENT", "CONGRUENT", "SIMILAR", "UNEQUAL")


def comparison(value):
    return next(name for name in COMPARISONS if getattr(MPI, name) == value)


def members(group, world):
    """Return the ranks in the world of the members of a group."""
    found = MPI.Group.Translate_ranks(group, list(range(group.Get_size())), world)
    return list(found)


def some_ranks(case, name, size):
    """Choose some ranks, in any order, without repetition."""
    order = case.order(size)[: case.integer("taken", 0, size)]
    case.note(**{name: order})
    return order


def arithmetic(case):
    """Make groups out of others."""
    world, group = MPI.COMM_WORLD.Get_group(), case.comm.Get_group()
    ranks = [some_ranks(case, name, case.size) for name in "ab"]
    left, right = (group.Incl(some) for some in ranks)
    step, last = case.integer("step", 1, 3), case.size - 1
    made = [left, right, group.Excl(ranks[0]), MPI.Group.Union(left, right)]
    made += [MPI.Group.Intersection(left, right), MPI.Group.Difference(left, right), group.Dup()]
    made += [group.Range_incl([(0, last, step)]), group.Range_excl([(last, 0, -step)])]
    results = [
        [item.Get_size(), item.Get_rank() != MPI.UNDEFINED, members(item, world)] for item in made
    ]
    compared = [comparison(MPI.Group.Compare(left, item)) for item in made]
    back = [
        n if n != MPI.UNDEFINED else None
        for n in MPI.Group.Translate_ranks(group, list(range(case.size)), right)
    ]
    wrong = error_of(group.Incl, [case.size])
    nulls = [item == MPI.GROUP_EMPTY for item in made[:1] if item.Get_size() == 0]
    free(*(item for item in made if item != MPI.GROUP_EMPTY), world, group)
    return [results, compared, back, wrong, bool(nulls)]


def empty_group(case):
    """Ask the predefined empty group."""
    empty, group = MPI.GROUP_EMPTY, case.comm.Get_group()
    union = MPI.Group.Union(empty, group)
    result = [
        empty.Get_size(),
        empty.Get_rank() == MPI.UNDEFINED,
        comparison(MPI.Group.Compare(union, group)),
        MPI.Group.Translate_ranks(group, [MPI.PROC_NULL], group) == [MPI.PROC_NULL],
        bool(MPI.GROUP_NULL),
        comparison(MPI.Group.Compare(empty, group)) if case.size else None,
    ]
    free(union, group)
    return result


def compare(case):
    """Compare communicators with others."""
    duplicate = case.comm.Dup()
    reverse = case.comm.Split(0, -case.rank)
    single = case.comm.Split(case.rank, 0)
    others = [case.comm, duplicate, reverse, single, MPI.COMM_SELF]
    results = [comparison(MPI.Comm.Compare(case.comm, other)) for other in others]
    results += [case.comm == other for other in others]
    free(duplicate, reverse, single)
    return [*results, duplicate == MPI.COMM_NULL, error_of(MPI.Comm.Compare, case.comm, duplicate)]


def names(case):
    """Name a communicator."""
    duplicate = case.comm.Dup()
    duplicate.Set_name("a name")
    text = duplicate.Get_name()
    duplicate.name = "another"
    results = [text, duplicate.name, MPI.COMM_WORLD.Get_name(), MPI.COMM_SELF.Get_name()]
    free(duplicate)
    return results


def attributes(case):
    """Keep attributes with communicators: copied by Dup, deleted by Free and Delete_attr."""
    log = []
    copies = case.choose("copy", ["function", "always", "never", "not_found"])
    copy_fn = {"always": True, "never": None}.get(copies)

    def copy(_, __, value):
        log.append(("copy", value))
        return NotImplemented if copies == "not_found" else value + 1

    def delete(_, __, value):
        log.append(("delete", value))

    copy_fn = copy if copies in {"function", "not_found"} else copy_fn
    key = MPI.Comm.Create_keyval(copy_fn=copy_fn, delete_fn=delete)
    first = case.comm.Dup()
    results = [first.Get_attr(key)]
    first.Set_attr(key, case.rank)
    results.append(first.Get_attr(key))
    second = first.Dup()
    results.append(second.Get_attr(key))
    first.Set_attr(key, 100)
    if case.flag("delete") and second.Get_attr(key) is not None:
        second.Delete_attr(key)
        results.append(second.Get_attr(key))
    second.Free()
    third = first.Split(0, case.rank)
    results.append(third.Get_attr(key))
    free(third, first)
    MPI.Comm.Free_keyval(key)
    tag_limit = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    return [results, log, tag_limit >= 32767]


def freed(case):
    """Use communicators, groups and requests after they were freed."""
    duplicate, group = case.comm.Dup(), case.comm.Get_group()
    duplicate.Free()
    group.Free()
    return [
        duplicate == MPI.COMM_NULL,
        group == MPI.GROUP_NULL,
        error_of(duplicate.Get_size),
        error_of(duplicate.Barrier),
        error_of(duplicate.Free),
        error_of(group.Get_size),
    ]


def identity(case):
    """Return the rank, size and group of a communicator."""
    comm = case.comm
    group, duplicate = comm.Get_group(), comm.Clone()
    result = [comm.Get_rank(), comm.Get_size(), comm.rank, comm.size, group.Get_rank(), group.size]
    result += [comm.Is_inter(), comm.Is_intra(), bool(comm), bool(MPI.COMM_NULL)]
    result += [isinstance(comm, MPI.Intracomm), type(duplicate).__name__, duplicate == comm]
    result += [MPI.COMM_WORLD.Get_rank(), MPI.COMM_SELF.Get_size(), MPI.COMM_SELF.Get_rank()]
    result += [MPI.Is_initialized(), MPI.Is_finalized(), MPI.Wtime() >= 0]
    result += [MPI.Get_processor_name() != "", MPI.Query_thread() >= MPI.THREAD_SINGLE]
    free(group, duplicate)
    return result
