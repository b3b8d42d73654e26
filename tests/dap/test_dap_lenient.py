"""What is accepted with a warning: always, or only by those who are lenient."""

import numpy as np
import pytest
from dap_cases import block, cyclic, old, undistributed, unstructured, wrap

from pencils.dap import BlockMap, DAPError, DAPWarning, iter_issues, validate


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


@pytest.mark.parametrize(
    ("mislabelled", "dim"),
    [
        (
            wrap(block(padding=(0, 1)), shape=6),
            BlockMap(size=10, nprocs=2, start=0, stop=5, ghosts=(0, 1)),
        ),
        (
            old(block(stop=6, padding=(0, 1)), shape=6),
            BlockMap(size=10, nprocs=2, start=0, stop=5, ghosts=(0, 1)),
        ),
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
