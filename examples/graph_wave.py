"""Sound in a periodic box: one function computes a step with arrays, or builds a graph of it.

python examples/graph_wave.py
mpiexec -n 4 python -m pencils run examples/graph_wave.py 512

The equations are p_t = -(u_x + v_y), u_t = -p_x, v_t = -p_y for pressure and velocity, with central
differences and the steps of Heun, whose two stages need the ghosts of three fields each. The graph
is built once. While messages are on their way, the graph computes what does not depend on them.
"""

import sys
from functools import partial
from time import perf_counter

import numpy as np

import pencils
from pencils import graph

n = int(sys.argv[1]) if len(sys.argv) > 1 else 64
spacing = 2 * np.pi / n
dt, steps = spacing / 4, 50
pen = pencils.Pencil((n, n), decomp=(0, 1), periodic=True)


def rates(state, pad):
    p, u, v = map(pad, state)
    p_x, u_x = ((f[2:, 1:-1] - f[:-2, 1:-1]) / (2 * spacing) for f in (p, u))
    p_y, v_y = ((f[1:-1, 2:] - f[1:-1, :-2]) / (2 * spacing) for f in (p, v))
    return -(u_x + v_y), -p_x, -p_y


def step(state, pad):
    first = rates(state, pad)
    second = rates([f + dt * rate for f, rate in zip(state, first, strict=True)], pad)
    return [f + dt / 2 * (a + b) for f, a, b in zip(state, first, second, strict=True)]


def pad_at_once(block):
    field = pencils.empty(pen, halo=1)
    field.local = block
    field.exchange_halo(corners=False)
    return field.padded


pad_later = partial(graph.halo_exchange, pencil=pen, halo=1, corners=False)
nodes = [graph.make_placeholder(name, pen.local_shape) for name in "puv"]
new = graph.make_dict_of_named_arrays(dict(zip("puv", step(nodes, pad_later), strict=True)))
partition = graph.find_distributed_partition(pen.comm, new)
parts = graph.generate_code_for_partition(partition)  # each part waits for all its messages


def by_graph(state, programs=None):
    inputs = dict(zip("puv", state, strict=True))
    execute = partial(graph.execute_distributed_partition, partition, programs, None, pen.comm)
    return list(execute(input_args=inputs).values())


def run(advance):
    state = advance(start)
    pen.comm.Barrier()
    begin = perf_counter()
    for _ in range(steps - 1):
        state = advance(state)
    pen.comm.Barrier()
    return np.array(state), (perf_counter() - begin) / (steps - 1) * 1e3


p = pencils.zeros(pen)
x, y = pencils.localgrid(pen, [np.arange(n) * spacing] * 2)
p[...] = np.cos(x) * np.cos(y)
start = [p.local, *np.zeros((2, *pen.local_shape))]
expected, eager = run(partial(step, pad=pad_at_once))
(others, waiting), (result, overlapped) = run(partial(by_graph, programs=parts)), run(by_graph)
assert np.allclose(expected[0], np.cos(np.sqrt(2) * steps * dt) * p.local, atol=100 / n**2)
assert np.allclose([others, result], expected, rtol=0, atol=1e-14)
if pen.rank == 0:
    print(f"milliseconds per step: {eager:.3f} at once, {overlapped:.3f} as a graph")
    print(f"the overlap of computation and messages saves {waiting - overlapped:.3f} of these")
