"""What it means that a function of a field agrees with NumPy."""

import warnings

import numpy as np
from fields import assert_holds, in_memory_order

import pencils


def kept(a, axis, ndim, function, *args, front=0, **options):
    """Reduce global data with NumPy the way fields do: axes of space stay.

    `front` is the number of new axes in front of the result.
    """
    if axis is None:
        return function(a, *args, **options)
    full = function(a, *args, axis=axis, keepdims=True, **options)
    axes = axis if isinstance(axis, tuple) else (axis,)
    lead = a.ndim - ndim
    gone = [front + i % a.ndim for i in axes if i % a.ndim < lead]
    return full.squeeze(tuple(gone))


def assert_agrees(result, expected, *, rtol=0.0):
    """Check a field, an array or a scalar: shape, element type and values."""
    if isinstance(result, pencils.PencilArray):
        assert_holds(result, expected, rtol=rtol)
        assert in_memory_order(result)
        return
    assert np.shape(result) == np.shape(expected)
    assert result.dtype == np.asarray(expected).dtype
    if rtol:
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=rtol)
    else:
        np.testing.assert_array_equal(result, expected)


def bits_of(value):
    """Return the bytes of a result; some of those of long doubles mean nothing."""
    if isinstance(value, list | tuple):
        return [bits_of(one) for one in value]
    value = np.asarray(value)
    return repr(value) if value.dtype.char in "gG" else (str(value.dtype), value.tobytes())


def identical(comm, value):
    """Whether a value has the same bits on all ranks. *Collective*."""
    everywhere = comm.allgather(bits_of(value))
    return everywhere == everywhere[:1] * comm.size


def outcome(call):
    """Return the result of a call, the texts of its warnings, and its error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result, error = call(), None
        except Exception as raised:  # noqa: BLE001 - compared with that of NumPy
            result, error = None, raised
    kinds = {(one.category.__name__, str(one.message)) for one in caught}
    return result, kinds, error
