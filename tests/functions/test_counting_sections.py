"""Statistics, histograms and medians of sections are those of the same part of global data."""

from functools import partial

import numpy as np
import pytest
from agreement import assert_agrees, kept, outcome
from fields import draw, lay, spread

from pencils.errors import PencilMismatchError

pytestmark = pytest.mark.parallel([1, 2, 3, 4, 6])

KEYS = [np.s_[..., 1:], np.s_[:, ::2], np.s_[:, 1:2], np.s_[1], np.s_[:, 2:2]]


@pytest.fixture(params=["line", "plane", "pencils", "blocks"])
def pencil(request, comm):
    return lay(comm, request.param)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_sections(pencil, key):
    a = draw((2, *pencil.shape))
    a.reshape(-1)[::5] = np.nan
    section, part = spread(pencil, a, halo=1)[key], a[key]
    for name in ("nansum", "nanmin", "nanmean", "nanvar", "nanargmax", "nanmedian"):
        function = getattr(np, name)
        for axis in (None, 0):
            if axis == 0 and name == "nanmedian" and part.ndim == pencil.ndim:
                continue  # cut on several ranks
            expected, texts, error = outcome(lambda: kept(part, axis, pencil.ndim, function))  # noqa: B023
            result, found, raised = outcome(lambda: function(section, axis))  # noqa: B023
            assert isinstance(raised, ValueError if error else type(None)), raised
            if error is None:
                assert_agrees(result, expected, rtol=1e-11)
                assert {text for _, text in found} == {text for _, text in texts}
    for call in (
        partial(np.histogram, bins=[-2, 0, 1]),
        partial(np.unique, return_counts=True),
        partial(np.nanquantile, q=[0.1, 0.9]),
    ):
        (expected, _, _), (result, _, _) = (outcome(partial(call, x)) for x in (part, section))
        both = (result, expected) if isinstance(expected, tuple) else ([result], [expected])
        for mine, theirs in zip(*both, strict=True):
            assert_agrees(mine, theirs)


def test_weights_that_vary_along_whole_dimensions(comm):
    pencil = lay(comm, "pencils")
    a, weights = draw(pencil.shape), draw(pencil.shape, seed=1) ** 2
    u, w = spread(pencil, a), spread(pencil, weights)
    profile = spread(pencil, weights[:1], dims=(1, 2))
    every = np.broadcast_to(weights[:1], a.shape)
    expected = np.average(a[1:-1], weights=every[1:-1])
    assert_agrees(np.average(u[1:-1], weights=profile), expected, rtol=1e-12)
    expected = np.histogram(a[1:-1], 4, weights=weights[1:-1])[0]
    assert_agrees(np.histogram(u[1:-1], 4, weights=w[1:-1])[0], expected, rtol=1e-12)
    with pytest.raises(PencilMismatchError):
        np.average(u[1:], weights=w[:-1])
    planes = np.histogram2d(u[::2], u[::2] ** 2, 3)[0]
    assert_agrees(planes, np.histogram2d(a[::2].ravel(), a[::2].ravel() ** 2, 3)[0])
