"""What is emitted is read again, and what a version cannot say is refused."""

import numpy as np
import pytest
from dap_cases import any_dims, versions, wrap
from hypothesis import given
from hypothesis import strategies as st

from pencils.dap import BlockMap, CyclicMap, UnsupportedError, VersionError, emit, validate


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


@pytest.mark.parametrize(
    ("dim", "version", "text"),
    [
        (
            BlockMap(size=5, start=0, stop=5, periodic=True, ghosts=(1, 1)),
            "0.10.0",
            "ghosts inside",
        ),
        (
            BlockMap(size=5, start=0, stop=5, periodic=True, boundary=(1, 1)),
            "0.9.0",
            "boundary points nowhere",
        ),
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
