"""The Navier-Stokes demo against known figures and a serial solver, and what it does with files."""

import argparse
import re
import sys

import h5py
import numpy as np
import pytest

import pencils
from pencils.tools import demo

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

# Kinetic energy that the spectral solver test of mpi4py-fft asserts.
ENERGY = "t=0.1 energy=0.124953117517 dissipation=0.000469062413893"


def run(capsys, *argv):
    """Run the demo; return the lines that rank 0 printed, on all ranks."""
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    demo.run(parser.parse_args([str(arg) for arg in argv]))
    out = capsys.readouterr().out
    comm = pencils.Pencil(1).comm
    assert comm.rank == 0 or out == ""
    return comm.bcast(out).splitlines()


def numbers(line):
    found = re.fullmatch(r"t=(\S+) energy=(\S+) dissipation=(\S+)", line)
    assert found, line
    return np.array([float(number) for number in found.groups()])


def some_velocity(n):
    """Return a smooth field that is neither free of divergence nor symmetric."""
    x, y, z = np.ix_(*[np.arange(n) * 2 * np.pi / n] * 3)
    return np.stack(
        [
            np.sin(x) * np.cos(2 * y) + np.cos(z) + 0.5,
            np.cos(x + z) - np.sin(2 * y) * np.cos(x),
            np.sin(x + y) + 0.3 * np.cos(3 * z - y),
        ]
    )


def serial(u, viscosity, dt, steps):
    """Energy and dissipation after some steps, by NumPy alone and with full complex transforms."""
    n = u.shape[-1]
    k = np.stack(np.meshgrid(*[np.fft.fftfreq(n, 1 / n)] * 3, indexing="ij"))
    k2 = (k**2).sum(axis=0)
    kept = (abs(k) < n / 3).all(axis=0)

    def forward(f):
        f = np.fft.fftn(f, axes=(1, 2, 3)) * kept
        return f - k * (k * f).sum(axis=0) / np.where(k2 == 0, 1, k2)

    def backward(f):
        return np.fft.ifftn(f, axes=(1, 2, 3)).real

    def vorticity(f):
        return backward(1j * np.cross(k, f, axis=0))

    def rate(f):
        return forward(np.cross(backward(f), vorticity(f), axis=0)) - viscosity * k2 * f

    f = forward(u)
    for _ in range(steps):
        k1 = rate(f)
        k2_ = rate(f + dt / 2 * k1)
        k3 = rate(f + dt / 2 * k2_)
        k4 = rate(f + dt * k3)
        f = f + dt / 6 * (k1 + 2 * k2_ + 2 * k3 + k4)
    energy = (backward(f) ** 2).sum(axis=0).mean() / 2
    return energy, viscosity * (vorticity(f) ** 2).sum(axis=0).mean()


def test_taylor_green_vortex_has_the_known_energy(capsys):
    lines = run(capsys, "--n", 32, "--viscosity", 0.000625, "--dt", 0.01, "--time", 0.1)
    assert len(lines) == 11
    assert lines[0] == "t=0 energy=0.125 dissipation=0.00046875"
    assert lines[-1] == ENERGY


@pytest.mark.parametrize("n", [16, 15, 5])
def test_input_array_evolves_as_in_a_serial_solver(capsys, mpi_tmp_path, comm, n):
    u = some_velocity(n)
    if comm.rank == 0:
        np.save(mpi_tmp_path / "u.npy", u)
    args = "--viscosity", 0.01, "--dt", 0.02, "--time", 0.1
    lines = run(capsys, "--input", mpi_tmp_path / "u.npy", *args)
    np.testing.assert_allclose(numbers(lines[0])[1:], serial(u, 0.01, 0.02, 0), rtol=1e-11)
    np.testing.assert_allclose(numbers(lines[-1])[1:], serial(u, 0.01, 0.02, 5), rtol=1e-11)


def test_kinds_of_input_give_the_same(capsys, mpi_tmp_path, comm):
    u = some_velocity(12)
    whole = (10 * some_velocity(8)).astype(np.int32)
    if comm.rank == 0:
        np.save(mpi_tmp_path / "u.npy", u)
        for kind in ("i4", "f4", ">f8"):
            np.save(mpi_tmp_path / f"{kind}.npy", whole.astype(kind))
        with h5py.File(mpi_tmp_path / "u.h5", "w") as file:
            file["velocity"] = u
            file["pressure"] = u[0]
        with h5py.File(mpi_tmp_path / "only.h5", "w") as file:
            file.create_dataset("fluid/u", data=u, chunks=(1, 5, 5, 12), compression="gzip")
    one = run(capsys, "--input", mpi_tmp_path / "u.npy", "--time", 0.02)
    assert run(capsys, "--input", mpi_tmp_path / "u.h5", "--time", 0.02) == one
    assert run(capsys, "--input", mpi_tmp_path / "only.h5", "--n", 12, "--time", 0.02) == one
    for kind in ("i4", "f4", ">f8"):
        (line,) = run(capsys, "--input", mpi_tmp_path / f"{kind}.npy", "--time", 0)
        np.testing.assert_allclose(numbers(line)[1], serial(whole, 1, 1, 0)[0], rtol=1e-11)


@pytest.mark.parametrize("name", ["u.npy", "u.h5"])
def test_input_is_read_on_rank_0_only(capsys, mpi_tmp_path, comm, monkeypatch, name):
    u = some_velocity(8)
    if comm.rank == 0:
        np.save(mpi_tmp_path / "u.npy", u)
        with h5py.File(mpi_tmp_path / "u.h5", "w") as file:
            file["velocity"] = u
        path = mpi_tmp_path / name
    else:  # which need not see the file, nor have h5py
        path = mpi_tmp_path / "elsewhere" / name
        monkeypatch.setitem(sys.modules, "pencils.io.hdf5", None)
        monkeypatch.delattr(pencils.io, "hdf5", raising=False)
        monkeypatch.setitem(sys.modules, "h5py", None)
    (line,) = run(capsys, "--input", path, "--time", 0)
    np.testing.assert_allclose(numbers(line)[1], serial(u, 1, 1, 0)[0], rtol=1e-11)


@pytest.mark.parametrize("n", [12, 9])
def test_a_restart_ends_with_the_same_bits_on_another_process_grid(
    capsys, mpi_tmp_path, comm, monkeypatch, n
):
    half, end, again = (mpi_tmp_path / f"{name}.h5" for name in ("half", "end", "again"))
    if comm.rank == 0:
        np.save(mpi_tmp_path / "u.npy", some_velocity(n))
    args = "--input", mpi_tmp_path / "u.npy", "--viscosity", 0.01, "--dt", 0.01
    straight = run(capsys, *args, "--time", 0.1, "--checkpoint", end)
    first = run(capsys, *args, "--time", 0.05, "--checkpoint", half)
    # Whole lines along y would be transformed before those along x, which rounds differently.
    monkeypatch.setattr(
        demo, "cube", lambda n, *_: pencils.Pencil((n, n, n), decomp=(1, 0), grid=(1, comm.size))
    )
    rest = run(capsys, "--restart", half, "--time", 0.1, "--checkpoint", again)
    assert rest[0].split()[0] == first[-1].split()[0]
    for one, other in zip(straight, first + rest[1:], strict=True):
        np.testing.assert_allclose(numbers(one), numbers(other), rtol=2e-12)
    pencil = pencils.Pencil((n, n, n // 2 + 1))
    one, other = (pencils.load(path, pencil) for path in (end, again))
    assert one["waves"].local.tobytes() == other["waves"].local.tobytes()
    assert one.attrs == other.attrs
    assert (one.attrs["step"], one.attrs["viscosity"], one.attrs["n"]) == (10, 0.01, n)


def test_checkpoints_and_the_command_line(capsys, mpi_tmp_path):
    path = mpi_tmp_path / "flow.h5"
    run(capsys, "--n", 8, "--dt", 0.02, "--viscosity", 0.5, "--time", 0.04, "--checkpoint", path)
    lines = run(capsys, "--restart", path, "--time", 0.06, "--dt", 0.005, "--checkpoint", path)
    times = [0.04, 0.045, 0.05, 0.055, 0.06]
    assert [numbers(line)[0] for line in lines] == times
    attrs = pencils.load(path, pencils.Pencil(1), names=()).attrs
    expected = {"n": 8, "dt": 0.005, "viscosity": 0.5, "step": 6}
    assert {name: float(attrs[name]) for name in expected} == expected
    # It holds no velocity to start anew from.
    with pytest.raises(pencils.errors.PencilsError, match="complex128"):
        run(capsys, "--input", path)
    # A checkpoint holds the waves of the velocity.
    path, n = mpi_tmp_path / "flow.h5", 16
    (line,) = run(capsys, "--n", n, "--time", 0, "--checkpoint", path)
    waves = pencils.gather(pencils.load(path, pencils.Pencil((n, n, 9)))["waves"], root=None)
    velocity = np.fft.irfftn(waves, (n, n, n), axes=(1, 2, 3))
    x, y, z = np.ix_(*[np.arange(n) * 2 * np.pi / n] * 3)
    assert np.allclose(velocity[0], np.sin(x) * np.cos(y) * np.cos(z), atol=1e-14)
    assert (velocity**2).sum() / n**3 / 2 == pytest.approx(numbers(line)[1], rel=1e-11)


def write_array(*shape, dtype=float):
    return lambda path: np.save(path, np.ones(shape, dtype))


def write_datasets(**shapes):
    def write(path):
        with h5py.File(path, "w") as file:
            for name, shape in shapes.items():
                file[name] = h5py.Empty(float) if shape is None else np.ones(shape)

    return write


@pytest.mark.parametrize(
    ("name", "write", "complaint"),
    [
        ("u.npy", lambda _: None, "No such file"),
        ("u.npy", lambda path: path.write_text("no array"), "cannot read .*u.npy"),
        ("u.npy", write_array(), r"u.npy has float64 of shape \(\)"),
        ("u.npy", write_array(8, 8, 8), r"u.npy has float64 of shape \(8, 8, 8\)"),
        ("u.npy", write_array(2, 8, 8, 8), r"u.npy has float64 of shape \(2, 8, 8, 8\)"),
        ("u.npy", write_array(3, 8, 8, 4), r"u.npy has float64 of shape \(3, 8, 8, 4\)"),
        ("u.npy", write_array(3, 1, 8, 8), r"u.npy has float64 of shape \(3, 1, 8, 8\)"),
        ("u.npy", write_array(3, 0, 0, 0), r"u.npy has float64 of shape \(3, 0, 0, 0\)"),
        ("u.npy", write_array(3, 8, 8, 8, dtype=complex), "u.npy has complex128"),
        ("u.h5", lambda _: None, "u.h5"),
        ("u.h5", lambda path: path.write_text("no array"), "not an HDF5 file"),
        ("u.h5", write_datasets(), "'velocity'; it holds no dataset at all"),
        ("u.h5", write_datasets(u=(3, 8, 8, 8), v=(3, 8, 8, 8)), "'velocity'; it holds u, v"),
        ("u.h5", write_datasets(velocity=(3, 8, 8, 4)), r"float64 of shape \(3, 8, 8, 4\)"),
        ("u.h5", write_datasets(velocity=None), "is empty"),
    ],
)
def test_bad_input_raises_the_same_on_every_rank(capsys, mpi_tmp_path, name, write, complaint):
    path, comm = mpi_tmp_path / name, pencils.Pencil(1).comm
    if comm.rank == 0:
        write(path)
    comm.barrier()
    with pytest.raises((pencils.errors.PencilsError, OSError), match=complaint) as caught:
        run(capsys, "--input", path)
    assert len(set(comm.allgather(str(caught.value)))) == 1


@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_files_that_are_not_those_asked_for_are_refused(capsys, mpi_tmp_path, comm, suffix):
    path, flow = mpi_tmp_path / f"u.{suffix}", mpi_tmp_path / "flow.h5"
    for shape in (3, 8, 8, 8), (3, 1, 1, 1):
        if comm.rank == 0:
            (write_array(*shape) if suffix == "npy" else write_datasets(u=shape))(path)
        comm.barrier()
        with pytest.raises(pencils.errors.PencilsError, match="n=12"):
            run(capsys, "--n", 12, "--input", path)
    if suffix == "npy":  # a restart wants a checkpoint
        with pytest.raises(pencils.errors.PencilsError, match=r"u\.npy is not an HDF5 file"):
            run(capsys, "--restart", path)
    run(capsys, "--n", 8, "--time", 0, "--checkpoint", flow)
    with pytest.raises(pencils.errors.PencilsError, match="8, 8, 5"):
        run(capsys, "--n", 12, "--restart", flow)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--n", [0, -4]),
        ("--dt", [0, -0.01, "nan", "inf"]),
        ("--viscosity", [-1, "nan", "inf", "-inf"]),
        ("--time", [-0.1, "nan", "inf", "-inf"]),
    ],
)
def test_senseless_numbers_are_refused_before_anything_runs(capsys, monkeypatch, option, values):
    monkeypatch.setattr(demo, "PencilFFT", None)
    for value in values:
        with pytest.raises(pencils.errors.PencilsError, match=rf"\b{option[2:]}=.*finite"):
            run(capsys, f"{option}={value}")


def test_the_picture_shows_the_vorticity(capsys, mpi_tmp_path, comm, monkeypatch):
    pytest.importorskip("matplotlib")
    drawn, save_picture = [], pencils.plot.save_picture
    monkeypatch.setattr(
        pencils.plot, "save_picture", lambda path, ax: (drawn.append(ax), save_picture(path, ax))
    )
    path = mpi_tmp_path / "vortex.png"
    printed = run(capsys, "--n", 8, "--time", 0, "--picture", path)
    assert printed[-1] == f"vorticity drawn in {path}"
    if comm.rank == 0:
        (mesh,) = drawn[0].collections
        x, y = np.ix_(*[np.arange(8) * 2 * np.pi / 8] * 2)
        strength = (np.cos(x) * np.sin(y)) ** 2 + (np.sin(x) * np.cos(y)) ** 2
        strength = np.sqrt(strength / 2 + 2 * (np.sin(x) * np.sin(y)) ** 2)  # where z = π/4
        np.testing.assert_allclose(np.ravel(mesh.get_array()), strength.T.ravel(), atol=1e-14)
    comm.barrier()
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_checkpoint_must_have_a_place_before_the_first_step(capsys, mpi_tmp_path, comm):
    comm.barrier()
    for path in mpi_tmp_path / "missing" / "flow.h5", mpi_tmp_path:
        with pytest.raises(OSError, match=f"cannot save {path}"):
            run(capsys, "--n", 8, "--checkpoint", path)
        assert capsys.readouterr().out == ""
    comm.barrier()
    assert list(mpi_tmp_path.iterdir()) == []
    # Main prints one line and leaves with an error on rank 0.
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    args = parser.parse_args(["--restart", str(mpi_tmp_path / "missing.h5")])
    if comm.rank == 0:
        with pytest.raises(SystemExit, match=r"error: .*missing\.h5"):
            demo.main(args)
    else:
        demo.main(args)
    assert capsys.readouterr().out == ""
