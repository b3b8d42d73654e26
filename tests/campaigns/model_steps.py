"""The steps of random programs; each returns False where it is not possible."""

import model
import numpy as np
from world import check_ghosts, numbers

import pencils
from pencils import HaloExchange, Transposition

STEPS = []


def any_field(_):
    return True


def step(weight=1, of=None):
    """Add a step, drawn as often as its weight is large; `of`: one of such a field, if any."""

    def add(function):
        def run(p):
            v = p.choose(of)
            return False if v is None else function(p, v)

        STEPS.extend([run if of else function] * weight)
        return function

    return add


def text_of(variable):
    u = variable.u
    return (
        f"{variable.name}({u.dtype}, {u.components}, {sorted(u.singletons)}, halo {u.halo}, "
        f"decomp {u.pencil.decomp} grid {u.pencil.grid} order {u.pencil.order})"
    )


@step(2)
def new_pencil(p):
    pen = p.new_pencil()
    p.note(f"{pen!r}")


@step(4)
def create(p):
    variable = p.create(p.choose_pencil(), **p.spec())
    p.note(f"create {text_of(variable)}")


@step(1)
def create_full(p):
    pen, value = p.choose_pencil(), float(p.rng.randrange(100))
    u = pencils.full(pen, value, shared=p.rng.random() < 0.3)
    p.note(f"full {text_of(p.add(u, np.full(pen.shape, value)))}")


@step(2)
def partition(p):
    pen = p.choose_pencil()
    root = p.rng.choice((None, *range(p.size)))
    halo = p.rng.choice((0, 0, 1))
    lead = p.rng.choice(((), (2,)))
    data = numbers((*lead, *pen.shape), p.rng.choice(model.DTYPES), p.rng.randrange(100))
    p.note(f"partition of {data.shape} {data.dtype} by {root} onto {pen!r}")
    given = data.copy() if root is None or root == p.rank else None
    p.add(pencils.partition(pen, given, root=root, halo=halo), data)


@step(2, any_field)
def gather(p, v):
    root, key = p.rng.choice((None, *range(p.size))), p.key(v.data.shape)
    p.note(f"gather {key} of {text_of(v)} at {root}")
    found = pencils.gather(v.u, root=root, key=key)
    if root in (None, p.rank):
        assert np.array_equal(found, v.data[key]), "gather"


@step(1, any_field)
def copy(p, v):
    p.note(f"copy {text_of(v)}")
    p.add(v.u.copy(), v.data)


@step(2, any_field)
def assign(p, v):
    key, value = p.key(v.data.shape), p.rng.randrange(100)
    p.note(f"{text_of(v)}[{key}] = {value}")
    v.u[key] = value
    v.data[key] = value
    v.check()


def _bounded(u):
    return u if u.dtype.kind == "c" else np.mod(u, u.dtype.type(model.LARGEST))


@step(4, any_field)
def combine(p, v):
    w = p.choose(
        lambda w: (
            w.u.pencil.shares_blocks(v.u.pencil)
            and w.u.dtype == v.u.dtype
            and w.u.components == v.u.components
            and w.u.singletons == v.u.singletons
        )
    )
    if v.u.dtype.kind == "c" and abs(v.data).max(initial=0) > 1e9:
        return False
    function = p.rng.choice((np.add, np.subtract, np.maximum))
    p.note(f"{function.__name__} of {text_of(v)} and {text_of(w)}")
    p.add(_bounded(function(v.u, w.u)), _bounded(function(v.data, w.data)))
    return None


@step(3, lambda v: v.u.dtype.kind != "c")
def change(p, v):
    p.note(f"change {text_of(v)}")
    v.u += v.u.dtype.type(3)
    np.mod(v.u, v.u.dtype.type(model.LARGEST), out=v.u)
    v.data += v.data.dtype.type(3)
    np.mod(v.data, v.data.dtype.type(model.LARGEST), out=v.data)
    v.check()


@step(3, lambda v: v.data.size)
def reduce(p, v):
    names = ["sum", "max", "min", "any", "argmax"]
    name = p.rng.choice(names[:1] if v.u.dtype.kind == "c" else names)
    p.note(f"{name} of {text_of(v)}")
    found, expected = getattr(v.u, name)(), getattr(v.data, name)()
    assert np.array_equal(found, expected), (name, found, expected)
    if name in ("sum", "max", "min"):
        axis = p.rng.randrange(v.u.ndim)
        along = getattr(v.u, name)(axis=axis, keepdims=True)
        expected = getattr(v.data, name)(axis=axis, keepdims=True)
        if isinstance(along, pencils.PencilArray):
            assert np.array_equal(along.local, expected[along.local_slices]), (name, axis)


@step(2, any_field)
def section(p, v):
    """Change a part of a field in place."""
    key = p.key(v.data.shape)
    p.note(f"section {key} of {text_of(v)}")
    v.u[key] += v.u.dtype.type(1)
    v.data[key] += v.data.dtype.type(1)
    v.check()


@step(3, any_field)
def transpose(p, v):
    pen = p.choose_pencil()
    p.note(f"transpose {text_of(v)} to {pen!r}")
    p.add(pencils.transpose(v.u, pen), v.data)


def _same_kind(u):
    """Return what a field like this one on another pencil is made with."""
    dims = [dim for dim in range(u.pencil.ndim) if dim not in u.singletons]
    return {"dtype": u.dtype, "components": u.components, "dims": dims}


@step(2, any_field)
def transpose_into(p, v):
    pen = p.choose_pencil()
    out = pencils.zeros(pen, **_same_kind(v.u), shared=p.rng.random() < 0.3)
    p.note(f"transpose {text_of(v)} into {pen!r}")
    p.add(pencils.transpose(v.u, pen, out=out), v.data)


@step(3, any_field)
def make_plan(p, v):
    pen = p.choose_pencil()
    if len(p.plans) >= model.PLANS:
        return False
    method = p.rng.choice(("auto", "messages", "hybrid", "alltoallw"))
    options = _same_kind(v.u)
    more = {"method": method, "check": p.rng.random() < 0.7}
    if p.rng.random() < 0.2:
        more["max_buffer_bytes"] = 100
    p.note(f"plan {options} {more} from {v.u.pencil!r} to {pen!r}")
    plan = Transposition(v.u.pencil, pen, **options, **more)
    p.plans.append(model.Kept(plan, v.u.pencil, pen, options))
    return None


def _fits(kept, v):
    return v.u.pencil == kept.source and _same_kind(v.u) == kept.options


def _plan_and_field(p):
    if not p.plans:
        return None, None
    kept = p.rng.choice(p.plans)
    v = p.choose(lambda v: _fits(kept, v))
    return kept, p.create(kept.source, **kept.options) if v is None else v


@step(4)
def use_plan(p):
    kept, v = _plan_and_field(p)
    if kept is None:
        return False
    out = pencils.zeros(kept.target, **kept.options)
    p.note(f"{kept.plan.method} plan moves {text_of(v)}")
    p.add(kept.plan(v.u, out), v.data)
    return None


@step(6)
def start_plan(p):
    kept, v = _plan_and_field(p)
    if kept is None or len(p.flights) >= model.FLIGHTS:
        return False
    out = pencils.zeros(kept.target, **kept.options)
    p.note(f"{kept.plan.method} plan starts {text_of(v)}")
    data = v.data.copy()
    p.fly(kept.plan.start(v.u, out), [v], lambda found: p.add(found, data), "plan")
    return None


@step(2)
def free_plan(p):
    """Free a plan, perhaps while exchanges of it are under way."""
    if not p.plans:
        return False
    kept = p.plans.pop(p.rng.randrange(len(p.plans)))
    p.note(f"free {kept.plan.method} plan")
    kept.plan.free()
    return None


def _is_padded(v):
    return any(map(any, v.u.halo))


@step(3, _is_padded)
def exchange_halo(p, v):
    p.note(f"exchange halo of {text_of(v)}")
    v.reset(ghosts=77)
    v.u.exchange_halo()
    check_ghosts(Checker, v.u, v.data, 77)


class Checker:
    """Compares arrays, as the world of a case does."""

    @staticmethod
    def equal(found, expected):
        assert np.array_equal(found, expected), "ghosts"


@step(5, _is_padded)
def start_halo(p, v):
    if len(p.flights) >= model.FLIGHTS:
        return False
    p.note(f"start halo of {text_of(v)}")
    v.reset(ghosts=77)

    def finish(_):
        v.check()
        check_ghosts(Checker, v.u, v.data, 77)

    p.fly(v.u.start_halo_exchange(), [v], finish, "halo")
    return None


@step(2, _is_padded)
def exchange_halos(p, v):
    found = p.free(lambda w: _is_padded(w) and w.u.pencil.same_blocks(v.u.pencil))
    p.note(f"exchange halos of {[text_of(w) for w in found]}")
    for w in found:
        w.reset(ghosts=77)
    if p.rng.random() < 0.5:
        pencils.halo.exchange_halos([w.u for w in found])
    else:
        route = p.rng.choice(("direct", "sweeps"))
        method = p.rng.choice(("auto", "messages", "hybrid"))
        with HaloExchange([w.u for w in found], route=route, method=method) as plan:
            plan(*(w.u for w in found))
    for w in found:
        check_ghosts(Checker, w.u, w.data, 77)


@step(1, lambda v: _is_padded(v) and all(v.u.pencil.periodic) and v.u.dtype.kind != "b")
def add_halo(p, v):
    p.note(f"add zero ghosts of {text_of(v)}")
    v.reset(ghosts=0)
    v.u.accumulate_halo()
    v.check()


@step(5)
def wait(p):
    if not p.flights:
        return False
    flight = p.rng.choice(p.flights)
    p.note(f"wait for {flight.text} of {[v.name for v in flight.variables]}")
    p.land(flight)
    return None


@step(3)
def wait_in_any_order(p):
    """Ranks wait in different orders, and make no other call meanwhile."""
    if not p.flights:
        return False
    p.note(f"wait for all {len(p.flights)}, in other orders")
    flights = list(p.flights)
    mine = np.random.default_rng([p.number, p.rank]).permutation(len(flights))
    results = {number: flights[number].handle.wait() for number in mine}
    for number, flight in enumerate(flights):
        p.landed(flight, results[number])
    return None


@step(1)
def parts(p):
    """Run two programs on two parts of the ranks."""
    if p.depth or p.size == 1:
        return False
    color = p.rng.randrange(1, 4)
    mine = int(p.rank % (color + 1) == 0)
    p.note(f"two parts, modulo {color + 1}")
    comm = p.comm.Split(mine, p.rank if color % 2 else -p.rank)
    inner = model.Program(comm, f"{p.seed} {p.number} {mine}", p.folder, p.table, depth=1)
    inner.run(8)
    inner.end()
    p.log += inner.log
    comm.Free()
    return None
