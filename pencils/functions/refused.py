"""What to write instead of functions and attributes of NumPy that fields do not have.

Such functions would compute something of one block only, or results whose points belong to no rank.
Each text completes the sentence "numpy.reshape does not take a PencilArray: ...".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pencils.errors.missing import by_word

MATRICES = (
    "the last two axes are space; write numpy.einsum('ij...,j...->i...', a, u) for matrices of "
    "components, numpy.vdot(u, v) for the sum over all points"
)
AXES = (
    "axes of space keep their numbers; write pencils.Pencil(..., order=) for another memory order, "
    "pencils.transpose(u, pencil) for other blocks, numpy.swapaxes(u, 0, 1) for component axes"
)
DOT = (
    "write numpy.vdot(u, v) for the sum over all points, numpy.einsum('i...,i...->...', u, v) for "
    "products of components, u * v for those of points"
)
SQUEEZED = (
    "dimensions of space never vanish, and singletons broadcast; write numpy.squeeze(u, 0) for a "
    "component axis"
)
_OWN = "write u.local for the own block, and make a field of the result with PencilArray"

# Names of functions of NumPy and of methods of its arrays, and what to write instead.
_INSTEAD: Mapping[str, str] = {
    "reshape ravel resize flatten": "blocks cannot be given another shape; write u.local for the "
    "own block, pencils.gather(u) for the global array on one rank",
    "matrix_transpose": AXES,
    "insert row_stack": "write numpy.concatenate([u, v], axis), also of sections, or "
    "numpy.stack([u, v])",
    "put put_along_axis": "write u.put_points(index, values) for points of any rank, u[1:-1] = "
    "values for ranges",
    "fill_diagonal": "write u[mask] = value, or numpy.copyto(u, values, where=mask)",
    "nonzero argwhere flatnonzero extract compress trim_zeros": "the number of points differs "
    "between ranks; write pencils.functions.own_points(mask) for the global indices of own points, "
    "numpy.where(mask, x, y) to choose values, numpy.count_nonzero(mask) to count, "
    "u.local[mask.local] for own values",
    "diag diagonal diagflat": "write "
    "numpy.einsum('ii...->i...', u) for component axes, u.take_points((i, i)) for points on a "
    "diagonal of space",
    "tril_indices_from triu_indices_from diag_indices_from": "it needs the shape only: pass "
    "numpy.empty(u.shape[-2:])",
    "sort_complex lexsort msort": "write numpy.sort(u, axis) or "
    "numpy.argsort(u, axis), numpy.median or numpy.quantile for the values of all ranks",
    "convolve correlate lib.stride_tricks.sliding_window_view": "write a stencil of u.shift() "
    "after u.exchange_halo(), or a product of transforms of pencils.fft.PencilFFT",
    "cov corrcoef": "write numpy.vdot(u - u.mean(), v - v.mean()) / u.size",
    "linalg.lstsq": "write numpy.linalg.pinv(u) @ v, the least squares at each point",
    "outer kron": "write u * v: extents of 1 broadcast against each other",
    "meshgrid ix_": "write pencils.localgrid(pencil, axes) for coordinates on each rank",
    "rot90": "dimensions cannot be exchanged; numpy.flip(u, axis) reverses their points",
    "lib.scimath lib._scimath_impl": "its element type depends on the values, which differ "
    "between ranks; convert first: numpy.sqrt(u.astype(complex))",
    "in1d": "write numpy.isin(u, values)",
    "array_repr array_str array2string": "write repr(u), or pass u.local",
    "save savez savez_compressed savetxt tofile dump dumps": 'write pencils.save("u.h5", {"u": '
    "u}), which all ranks call",
    "common_type": "pass u.dtype",
    "shares_memory may_share_memory byte_bounds": "pass u.padded",
    "unique_all unique_inverse": "write numpy.unique(u, return_counts=True)",
    "trapz": "write numpy.trapezoid(u, axis=axis)",
    "poly polyadd polyder polydiv polyfit polyint polymul polysub roots vander "
    "polynomial.polynomial": "coefficients are replicated NumPy arrays; numpy.polyval(p, u) takes "
    "a field of points",
    "packbits unpackbits datetime_as_string einsum_path strings char lib.recfunctions": _OWN,
    "arange array asanyarray asarray ascontiguousarray asfortranarray empty eye frombuffer "
    "fromfile fromfunction fromiter fromstring full genfromtxt identity loadtxt ones require tri "
    "zeros": "like= makes no fields; write pencils.zeros(u.pencil) or numpy.zeros_like(u), "
    "pencils.partition(u.pencil, data)",
    "fft": "write pencils.fft.PencilFFT(u.pencil), which transforms dimensions that are "
    "decomposed, too; numpy.roll(u, shift, axis) shifts frequencies",
    "linalg": "for matrices of components, write numpy.linalg.solve(u, v), or pass "
    "numpy.moveaxis(u.local, (0, 1), (-2, -1)), and make a field of the result with PencilArray",
}
# Methods of ufuncs.
_METHODS: Mapping[str, str] = {
    "at": "write numpy.add(u, value, out=u, where=mask) for a mask, u.put_points(index, values, "
    "reduce=pencils.indexer.ReduceOp.SUM) for points of any rank",
    "accumulate": "write numpy.cumsum(u, axis) for sums, numpy.cumprod(u, axis) for products",
    "outer": "write u * v, or another operator: extents of 1 broadcast against each other",
    "reduceat": "reduce sections: u[:n].sum(axis=0) and u[n:].sum(axis=0)",
    "reduce": "reductions of a field are those of numpy.add, multiply, minimum, maximum, fmin, "
    "fmax, logaddexp, logaddexp2, hypot, gcd, and of logical_ and bitwise_ functions",
}
# Attributes of NumPy arrays whose texts are not those of a function.
_ATTRIBUTES: Mapping[str, str] = {
    "T mT transpose swapaxes": AXES,
    "squeeze": SQUEEZED,
    "dot": DOT,
    "choose": "write numpy.choose(u, values)",
    "trace": "write numpy.trace(u)",
    "data ctypes flags flat strides device to_device setflags": "write u.local for the memory of "
    "the own block, u.padded with its halo",
    "tolist": "write u.local.tolist() for the own block, pencils.gather(u, root=None).tolist() "
    "for all blocks on each rank",
    "tobytes": "write u.local.tobytes() for the own block",
    "view getfield byteswap": "write PencilArray(u.pencil, u.local.view(dtype)) for other "
    "elements in the same memory, u.astype(dtype) for converted ones",
    "setfield": "write u.real, u.imag or u.local[name][...] = values for a part of each element",
    "repeat": "write numpy.repeat(u, n, axis)",
    "partition argpartition": "write numpy.partition(u, kth, axis)",
    "searchsorted": "write numpy.searchsorted(edges, u), with edges that all ranks have",
}


_OF_FUNCTIONS, _OF_METHODS = by_word(_INSTEAD), by_word(_METHODS)
_OF_ATTRIBUTES = {
    name: text for name, text in _OF_FUNCTIONS.items() if hasattr(np.ndarray, name)
} | by_word(_ATTRIBUTES)


def explain_function(name: str) -> str:
    """Return the text of the error for a function of NumPy, like "numpy.fft.fft"."""
    key = name.removeprefix("numpy.")
    text = _OF_FUNCTIONS.get(key) or _OF_FUNCTIONS.get(key.rpartition(".")[0])
    if text is None:
        return (
            f"{name} has no global meaning for a PencilArray here; apply it to u.local for the own "
            "block, or to gather(u)"
        )
    return f"{name} does not take a PencilArray: {text}"


def explain_method(ufunc: str, method: str) -> str:
    """Return the text of the error for a ufunc, or one of its methods, that takes no field."""
    if method == "__call__":
        return explain_function(f"numpy.{ufunc}")
    return f"numpy.{ufunc}.{method} does not take a PencilArray: {_OF_METHODS[method]}"


def explain_attribute(name: str) -> str:
    """Return what to write instead of an attribute of NumPy arrays that fields do not have."""
    return _OF_ATTRIBUTES.get(name, _OWN)
