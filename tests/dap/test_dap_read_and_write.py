"""What is read with a warning, described in words, and emitted and read again."""

from dataclasses import replace

import numpy as np
import pytest
from dap_cases import any_dims, block, cyclic, old, undistributed, unstructured, versions, wrap
from hypothesis import given
from hypothesis import strategies as st

from pencils.dap import (
    BlockMap,
    CyclicMap,
    DAPError,
    DAPWarning,
    UnsupportedError,
    VersionError,
    describe,
    emit,
    iter_issues,
    validate,
)


@pytest.mark.parametrize(
    ("odd", "key"),
    [
        (wrap(block(colour="red")), "colour"),
        (wrap(cyclic(periodic=True)), "periodic"),
        (old(cyclic(padding=(1, 1))), "padding"),
    ],
)
def test_unknown_keys_are_ignored_with_a_warning(odd, key):
    with pytest.warns(DAPWarning, match=f"key '{key}': the key is unknown here"):
        found = validate(odd)
    assert found.dims[0].extent == 5
    assert not found.dims[0].periodic
    assert [issue.code for issue in iter_issues(odd)] == ["unknown-key"]


@pytest.mark.parametrize("listed", [wrap() | {"dim_data": [block()]}, wrap(block(padding=[0, 0]))])
def test_lists_are_read_if_lenient(listed):
    with pytest.raises(DAPError, match="got a list"):
        validate(listed)
    with pytest.warns(DAPWarning, match="a list was read as"):
        assert validate(listed, lenient=True).local_shape == listed["buffer"].shape


@pytest.mark.parametrize("version", ["0.9.0", "0.10.0"])
@pytest.mark.parametrize("indices", [[4, 3, 2, 1, 0], [], [-7, np.int32(3)]])
def test_lists_of_indices_are_read_as_printed_in_the_texts(version, indices):
    dim = unstructured([], size=len(indices)) | {"indices": indices}
    listed = wrap(dim, shape=len(indices), version=version)
    with pytest.warns(DAPWarning, match="a list was read as.*K7"):
        assert validate(listed).dims[0].owned.tolist() == indices


def test_lists_of_something_else_are_wrong_even_if_lenient():
    lists = ([0.5], [None], [True], ["1"], [2**64], [2**63], [2**63, -1])
    unfit = [wrap(unstructured([1]) | {"indices": indices}) for indices in lists]
    for wrong in (*unfit, wrap(block(padding=[1]))):
        codes = [issue.code for issue in iter_issues(wrong, lenient=True)]
        assert codes == ["K7", "U1" if "indices" in wrong["dim_data"][0] else "B5"]


FIRST = BlockMap(size=10, nprocs=2, start=0, stop=5, ghosts=(0, 1))


@pytest.mark.parametrize(
    ("mislabelled", "dim"),
    [
        (wrap(block(padding=(0, 1)), shape=6), FIRST),
        (old(block(stop=6, padding=(0, 1)), shape=6), FIRST),
        (
            old(undistributed(padding=(2, 1), periodic=True)),
            BlockMap(size=5, start=0, stop=5, periodic=True, boundary=(2, 1)),
        ),
        (
            wrap(block(0, 0, 10, proc_grid_size=1, padding=(2, 2), periodic=True), shape=14),
            BlockMap(size=10, start=0, stop=10, periodic=True, ghosts=(2, 2)),
        ),
    ],
)
def test_extents_of_the_other_version_are_read_if_lenient(mislabelled, dim):
    with pytest.raises(DAPError, match=r"fits version 0\.(9|10); lenient=True reads it so"):
        validate(mislabelled)
    with pytest.warns(DAPWarning, match="were read as in version.*K6"):
        assert validate(mislabelled, lenient=True).dims == (dim,)


@pytest.mark.parametrize(
    ("export", "lines"),
    [
        (wrap(shape=()), []),
        (wrap({}), ["dimension 0: not distributed, 5 points"]),
        (
            wrap(block(1, 4, 10, padding=(1, 2)), shape=6),
            ["block 1 of 2, owns 5..9 of 10 points", "below: 1 ghost; above: 2 boundary"],
        ),
        (
            old(block(periodic=True, padding=(2, 0)), shape=7),
            ["0..4 of 10 points, period", "below: 2 ghosts"],
        ),
        (wrap(block(1, 10, 10), shape=0), ["block 1 of 2, owns nothing of 10 points"]),
        (wrap(cyclic(1)), ["cyclic part 1 of 2, owns 1, 3, 5, 7, 9 of 10 points"]),
        (
            wrap(cyclic(block_size=3, size=30), shape=15),
            ["cyclic in blocks of 3 part 0 of 2, owns 0, 1, 2, 6, 7, 8, 12, 13, ... (15 in all)"],
        ),
        (wrap(unstructured([7, -3]), shape=2), ["unstructured part 0 of 2, owns 7, -3 of"]),
        (
            wrap(block(padding=(0, 1)), shape=6),
            ["0..4 of 10", "above: 1 ghost", "! dimension 0: the"],
        ),
        (wrap(block(colour=1)), ["block 0 of 2", "! dimension 0, key 'colour': the key is"]),
    ],
)
def test_exports_are_described_in_words(export, lines):
    text = describe(export)
    version, shape = export["__version__"], export["buffer"].shape
    assert text.startswith(f"Distributed Array Protocol {version}: float64, local shape {shape}")
    for line in lines:
        assert line in text


def test_what_is_wrong_is_described_too():
    text = describe(wrap(block(start=-1, stop=20)))
    assert text.startswith("This is not a valid export:\n  ! dimension 0, key 'start': got -1")
    assert describe(None).count("\n") == 1


@given(
    versions.flatmap(
        lambda version: st.tuples(st.just(version), st.lists(any_dims(version), max_size=3))
    ),
    st.sampled_from(["n", "b", None]),
)
def test_what_is_emitted_is_read_again(drawn, undistributed):
    version, along = drawn
    dims = tuple(parts[-1] for parts in along)
    dim_data = emit(dims, version, undistributed=undistributed)
    export = wrap(*dim_data, shape=[dim.extent for dim in dims], version=version)
    assert validate(export).dims == dims
    for entry in dim_data:
        assert {type(value) for value in entry.values()} <= {str, int, tuple, bool, np.ndarray}
        assert entry.get("periodic", True)
        assert entry.get("one_to_one", True)
        assert entry.get("padding") != (0, 0)


def test_padding_is_said_everywhere_if_any_process_has_it():
    half = BlockMap(size=10, nprocs=2, start=0, stop=5)
    assert "padding" not in emit([half], "0.9.0")[0]
    assert emit([half], "0.9.0", padded=[True])[0]["padding"] == (0, 0)


def test_undistributed_dimensions_are_named_as_wanted():
    whole = [BlockMap(size=5, start=0, stop=5)]
    assert emit(whole, "0.9.0") == ({"dist_type": "n", "size": 5},)
    spelled = {"dist_type": "b", "size": 5, "proc_grid_size": 1, "proc_grid_rank": 0}
    spelled |= {"start": 0, "stop": 5}
    assert emit(whole, "0.9.0", undistributed="b") == emit(whole) == (spelled,)


RING = BlockMap(size=5, start=0, stop=5, periodic=True)


@pytest.mark.parametrize(
    ("dim", "version", "text"),
    [
        (replace(RING, ghosts=(1, 1)), "0.10.0", "ghosts inside"),
        (replace(RING, boundary=(1, 1)), "0.9.0", "boundary points nowhere"),
        (CyclicMap(size=5, periodic=True), "0.10.0", "use version 0.9.0"),
    ],
)
def test_what_a_version_cannot_say_is_refused(dim, version, text):
    with pytest.raises(UnsupportedError, match=text):
        emit([dim], version)
    other = "0.9.0" if version == "0.10.0" else "0.10.0"
    assert emit([dim], other)


def test_only_two_versions_are_spoken():
    with pytest.raises(VersionError, match=r"got '0.11.0', expected one of \('0.9.0'"):
        emit([], "0.11.0")
