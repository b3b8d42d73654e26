"""A run that stops on N processes goes on, on M others, as if it had never stopped."""

import h5py
import numpy as np
import pytest

import pencils

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

COUNTS = [1, 2, 3, 4, 6]
SHAPE = (7, 6, 5)


def pairs(size):
    """All numbers of processes before and after of which one is the size of the job."""
    fit = [count for count in COUNTS if count <= size]
    return [(n, m) for n in fit for m in fit if max(n, m) == size]


def some_pencil(comm, rng):
    dims = [int(dim) for dim in rng.permutation(3)]
    return pencils.Pencil(
        SHAPE,
        comm,
        decomp=dims[: int(rng.integers(1, 4))],
        order=[int(dim) for dim in rng.permutation(3)],
        splits=str(rng.choice(["first", "last", "floor", "ceil"])),
    )


def state_on(pencil, arrays, halo=0):
    return {name: pencils.partition(pencil, array, halo=halo) for name, array in arrays.items()}


@pytest.mark.parametrize("seed", range(3))
def test_from_n_to_m_processes(comm, mpi_tmp_path, seed, lab):
    rng = np.random.default_rng(seed)
    arrays = {
        "u": lab.numbers((2, *SHAPE), "c16"),
        "fluid/p": lab.numbers(SHAPE, "f4"),
        "profile": lab.numbers((1, 6, 1)),
    }
    draws = np.random.default_rng(3)
    draws.normal(size=5)
    for number, (n, m) in enumerate(pairs(comm.size)):
        path = mpi_tmp_path / f"{number}.h5"
        halo = int(rng.integers(3))
        seeds = rng.integers(2**32, size=2)
        first, last = comm.Split(int(comm.rank >= n)), comm.Split(int(comm.rank >= m), -comm.rank)
        if comm.rank < n:
            old = some_pencil(first, np.random.default_rng(seeds[0]))
            fields = state_on(old, arrays, halo if halo == 1 else 0)
            pencils.save(path, {**fields, "rng": draws, "dt": 0.1}, step=n, time=0.5)
        comm.barrier()
        if comm.rank < m:
            new = some_pencil(last, np.random.default_rng(seeds[1]))
            state = pencils.load(path, new, halo=[halo, 0, 0] if number % 2 else 0)
            for name, array in arrays.items():
                assert np.array_equal(state[name].local, array[state[name].local_slices])
            assert (state.step, state.time, state["dt"]) == (n, 0.5, 0.1)
            assert state["rng"].bit_generator.state == draws.bit_generator.state
            assert pencils.verify(path, last) == ["dt", "fluid/p", "profile", "rng", "u"]
        first.Free()
        last.Free()


def test_checksums_are_the_same_on_every_process_grid(comm, mpi_tmp_path, lab):
    def sums(path):
        with h5py.File(path) as file:
            return {name: int(file[name].attrs["pencils_checksum"]) for name in arrays}

    arrays = {
        kind: lab.numbers((2, *SHAPE), kind) for kind in ("f8", ">f4", "c16", "i1", "S5", "?")
    }
    arrays["line"] = lab.numbers((1, 6, 1))
    seen = []
    for number, pencil in enumerate([*lab.some_pencils(SHAPE, 6, seed=3)]):
        path = mpi_tmp_path / f"{number}.h5"
        pencils.save(path, state_on(pencil, arrays))
        seen.append(lab.on_root(sums, path))
    alone = pencils.Pencil(SHAPE, comm.Split(comm.rank))
    path = mpi_tmp_path / f"alone-{comm.rank}.h5"
    pencils.save(path, state_on(alone, arrays))
    seen.append(sums(path))
    assert all(one == seen[0] for one in seen)


def advance(u, steps, rng):
    """Diffuse and stir: a scheme whose result does not depend on the decomposition."""
    for _ in range(steps):
        u.exchange_halo()
        u.fill_boundary("edge")
        curvature = u.shift((1, 0, 0)) - 2 * u + u.shift((-1, 0, 0))
        u[...] = u + 0.1 * curvature + 0.01 * rng.normal()
    return u


def test_a_run_that_was_interrupted_ends_like_one_that_was_not(comm, mpi_tmp_path, lab):
    pencil = pencils.Pencil(SHAPE, comm)
    u, rng = pencils.random.normal(pencil, rng=1, halo=1), np.random.default_rng(2)
    half = advance(u.copy(), 5, rng)
    path = mpi_tmp_path / "half.h5"
    pencils.save(path, {"u": half, "rng": rng}, step=5)
    straight = advance(half, 5, rng)
    for other in (pencil.with_(decomp=2), pencil.with_(decomp=(1, 0), order=(2, 0, 1))):
        state = pencils.load(path, other, halo=1)
        rest = advance(state["u"], 10 - state.step, state["rng"])
        again = pencils.transpose(rest, pencil)
        assert lab.everywhere(again.local.tobytes() == straight.local.tobytes())


def test_the_navier_stokes_equations_go_on_bit_by_bit_on_another_grid(
    comm, mpi_tmp_path, monkeypatch
):
    """Waves are saved: another Fourier transform of the velocity would round once more."""
    pytest.importorskip("scipy")
    from pencils.tools import demo

    def flow_on(comm, grid):
        pen = pencils.Pencil((12, 12, 12), comm, decomp=(0, 1), grid=grid)
        monkeypatch.setattr(demo, "cube", lambda *_: pen)
        return demo.NavierStokes(12, 0.01)

    def steps(flow, u_hat, count):
        for _ in range(count):
            u_hat = flow.step(u_hat, 0.01)
        return u_hat

    path = mpi_tmp_path / "flow.h5"
    flow = flow_on(comm, (0, 0))
    u_hat = steps(flow, flow.start(demo.taylor_green(demo.cube(12))), 3)
    pencils.save(path, {"waves": u_hat}, step=3)
    end = pencils.gather(steps(flow, u_hat, 3), root=None)
    for count in range(1, comm.size + 1):
        part = comm.Split(int(comm.rank >= count), -comm.rank)
        if comm.rank < count:
            other = flow_on(part, (count, 1))  # (1, count) would transform x before y
            again = steps(other, pencils.load(path, other.fft.output_pencil)["waves"], 3)
            assert again.local.tobytes() == end[again.local_slices].tobytes()
        part.Free()
