"""Operations that make communicators out of others. Each returns the communicator."""

from mpi4py import MPI


def dup(case):
    verb = case.choose("verb", ["Dup", "Clone", "Dup_with_info", "Idup"])
    if verb == "Dup_with_info":
        return case.comm.Dup_with_info(MPI.INFO_NULL)
    if verb == "Idup":
        made, request = case.comm.Idup()
        request.Wait()
        return made
    return getattr(case.comm, verb)()


def split(case):
    colors = case.integers("colors", -1, 2, case.size)
    keys = case.integers("keys", -2, 2, case.size)
    color = colors[case.rank]
    return case.comm.Split(color if color >= 0 else MPI.UNDEFINED, keys[case.rank])


def split_type(case):
    keys = case.integers("keys", -2, 2, case.size)
    left_out = case.integer("left_out", 0, 2 * case.size)
    kind = MPI.COMM_TYPE_SHARED if case.rank != left_out else MPI.UNDEFINED
    return case.comm.Split_type(kind, keys[case.rank])


def create(case):
    """Make a communicator from a group: Create of all, Create_group of its members only."""
    ranks = case.order(case.size)[: case.integer("taken", 1, case.size)]
    case.note(ranks=ranks)
    world = case.comm.Get_group()
    group = world.Incl(ranks)
    if case.flag("create_group"):
        made = MPI.COMM_NULL
        if case.rank in ranks:
            made = case.comm.Create_group(group, case.first_tag)
    else:
        made = case.comm.Create(group)
    world.Free()
    group.Free()
    return made


# On fewer ranks, MPICH 5.0 gives these the group of the old communicator: see `fewer`.
def cart(case):
    """Make a Cartesian grid of all ranks, with extents of 1 and 2 too."""
    return make_cart(case, [grid for grid in grids(case.size) if volume(grid) == case.size])


def make_cart(case, shapes):
    """Make a Cartesian grid of one of the shapes."""
    dims = case.choose("dims", shapes)
    periods = [bool(p) for p in case.integers("periods", 0, 1, len(dims))]
    if case.flag("defaults") and not any(periods):
        return case.comm.Create_cart(dims)
    return case.comm.Create_cart(dims, periods, reorder=False)


def grids(size):
    """Return all shapes of grids of up to three dimensions for up to `size` ranks."""
    return [
        [a, b, c][:n]
        for n in (1, 2, 3)
        for a in range(1, size + 1)
        for b in (range(1, size + 1) if n > 1 else [1])
        for c in (range(1, size + 1) if n > 2 else [1])
        if a * b * c <= size
    ]


def volume(dims):
    product = 1
    for extent in dims:
        product *= extent
    return product


def cart_sub(case):
    """Make a grid of some dimensions of a Cartesian grid."""
    dims = case.comm.Get_dim()
    remain = [bool(r) for r in case.integers("remain", 0, 1, dims)]
    if not any(remain):
        remain[0] = True
    return case.comm.Sub(remain)


def graph(case):
    """Make a graph of all ranks, with symmetric edges."""
    return make_graph(case, case.size)


def make_graph(case, nodes):
    """Make a graph of some ranks; mpi4py takes where edges end, and where they start and end."""
    pairs = {tuple(sorted(pair)) for pair in pairs_of(case, nodes)}
    adjacent = [[] for _ in range(nodes)]
    for a, b in sorted(pairs):
        adjacent[a].append(b)
        if a != b:
            adjacent[b].append(a)
    index = [sum(map(len, adjacent[: i + 1])) for i in range(nodes)]
    starts = [0] if index[0] == 0 or case.flag("starts") else []
    edges = [b for some in adjacent for b in some]
    return case.comm.Create_graph([*starts, *index], edges, reorder=False)


def fewer(case):
    """Make a grid or a graph of fewer ranks, ask it, use it, and free it."""
    if case.flag("graph"):
        made = make_graph(case, case.integer("nodes", 1, case.size))
    else:
        made = make_cart(case, grids(case.size))
    if made == MPI.COMM_NULL:
        return "not a member"
    degrees = [made.indegree, made.outdegree]
    results = [made.Get_size(), made.Get_rank(), made.allgather(case.rank), degrees]
    results += [made.neighbor_allgather((made.rank, "x"))]
    made.Free()
    return results


def pairs_of(case, nodes):
    count = case.integer("edges", 0, 2 * nodes)
    ends = case.integers("ends", 0, nodes - 1, 2 * count)
    return list(zip(ends[::2], ends[1::2], strict=True))


def dist_graph(case):
    """Make a distributed graph, from its edges at both ends or anywhere."""
    edges = sorted(set(pairs_of(case, case.size)))
    weight = {edge: i + 1 for i, edge in enumerate(edges)}
    weighted = case.flag("weighted")
    if case.flag("adjacent"):
        sources = [a for a, b in edges if b == case.rank]
        destinations = [b for a, b in edges if a == case.rank]
        weights = ([], [])
        if weighted:
            weights = (
                [weight[a, case.rank] for a in sources],
                [weight[case.rank, b] for b in destinations],
            )
        more = weights if weighted else ()
        return case.comm.Create_dist_graph_adjacent(sources, destinations, *more)
    givers = case.integers("givers", 0, case.size - 1, len(edges))
    own = [edge for edge, giver in zip(edges, givers, strict=True) if giver == case.rank]
    sources, destinations = [a for a, _ in own], [b for _, b in own]
    more = [[weight[edge] for edge in own]] if weighted else []
    return case.comm.Create_dist_graph(sources, [1] * len(own), destinations, *more)
