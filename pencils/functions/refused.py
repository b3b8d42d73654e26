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
_OWN = "write u.local for the own block, and make a field of the result with PencilArray"

# Names of functions of NumPy and of methods of its arrays, and what to write instead.
_INSTEAD: Mapping[str, str] = {
    "reshape ravel resize flatten": "blocks cannot be given another shape; write u.local for the "
    "own block, pencils.gather(u) for the global array on one rank",
    "transpose swapaxes moveaxis rollaxis permute_dims T mT matrix_transpose "
    "linalg.matrix_transpose": "axes keep their numbers; write pencils.Pencil(..., order=) for "
    "another memory order, pencils.transpose(u, pencil) for other blocks, "
    "numpy.einsum('ij...->ji...', u) for component axes",
    "squeeze": "dimensions of space never vanish, and singletons broadcast; u.component(0) drops "
    "a component axis",
    "expand_dims atleast_1d atleast_2d atleast_3d": "singletons broadcast; write numpy.stack([u]) "
    "for a component axis of extent 1",
    "broadcast_to broadcast_arrays": "fields broadcast in expressions; write u + "
    "pencils.zeros(pencil)",
    "append insert delete vstack hstack dstack column_stack row_stack block": "write "
    "numpy.concatenate([u, v], axis), also of sections, or numpy.stack([u, v])",
    "split array_split hsplit vsplit dsplit": "write sections, u[:n] and u[n:], or u.unstack() "
    "for components",
    "take_along_axis": "write u.take_points(index) for points of any rank, u[1:-1] for ranges",
    "put put_along_axis": "write u.put_points(index, values) for points of any rank, u[1:-1] = "
    "values for ranges",
    "place putmask fill_diagonal": "write u[mask] = value, or numpy.copyto(u, values, where=mask)",
    "nonzero argwhere flatnonzero extract compress trim_zeros": "the number of points differs "
    "between ranks; write pencils.functions.own_points(mask) for the global indices of own points, "
    "numpy.where(mask, x, y) to choose values, numpy.count_nonzero(mask) to count, "
    "u.local[mask.local] for own values",
    "choose": "write numpy.select([u == 0, u == 1], [x, y])",
    "diag diagonal diagflat trace linalg.diagonal linalg.trace": "write "
    "numpy.einsum('ii...->i...', u) for component axes, u.take_points((i, i)) for points on a "
    "diagonal of space",
    "tril": "write numpy.where(numpy.tri(*u.shape[-2:]), u, 0)",
    "triu": "write numpy.where(numpy.tri(*u.shape[-2:], k=-1), 0, u)",
    "tril_indices_from triu_indices_from diag_indices_from": "it needs the shape only: pass "
    "numpy.empty(u.shape[-2:])",
    "sort_complex lexsort partition argpartition msort": "write numpy.sort(u, axis) or "
    "numpy.argsort(u, axis), numpy.median or numpy.quantile for the values of all ranks",
    "convolve correlate lib.stride_tricks.sliding_window_view": "write a stencil of u.shift() "
    "after u.exchange_halo(), or a product of transforms of pencils.fft.PencilFFT",
    "cov corrcoef": "write numpy.vdot(u - u.mean(), v - v.mean()) / u.size",
    "dot inner linalg.multi_dot": "write numpy.vdot(u, v) for the sum over all points, "
    "numpy.einsum('i...,i...->...', u, v) for products of components, u * v for those of points",
    "outer kron linalg.outer": "write u * v: extents of 1 broadcast against each other",
    "matmul matvec vecmat linalg.matmul linalg.tensordot": MATRICES,
    "meshgrid ix_": "write pencils.localgrid(pencil, axes) for coordinates on each rank",
    "ediff1d": "write numpy.diff(u, axis=axis)",
    "rot90": "dimensions cannot be exchanged; numpy.flip(u, axis) reverses their points",
    "apply_over_axes": "pass all axes to the reduction: u.sum(axis=(0, 1))",
    "real_if_close": "its element type depends on all values; write u.real",
    "lib.scimath lib._scimath_impl": "its element type depends on the values, which differ "
    "between ranks; convert first: numpy.sqrt(u.astype(complex))",
    "in1d": "write numpy.isin(u, values)",
    "array_equiv": "write numpy.array_equal(u, v)",
    "array_repr array_str array2string": "write repr(u), or pass u.local",
    "save savez savez_compressed savetxt tofile dump dumps": 'write pencils.save("u.h5", {"u": '
    "u}), which all ranks call",
    "common_type min_scalar_type can_cast": "pass u.dtype",
    "shares_memory may_share_memory byte_bounds": "pass u.padded",
    "linspace logspace geomspace": "ends are numbers; write u + s * (v - u) for s in "
    "numpy.linspace(0, 1, n)",
    "union1d intersect1d setdiff1d setxor1d": "write numpy.unique(u) first, whose result is a "
    "NumPy array on all ranks",
    "unique_all unique_inverse": "write numpy.unique(u, return_counts=True)",
    "trapz": "write numpy.trapezoid(u, axis=axis)",
    "poly polyadd polyder polydiv polyfit polyint polymul polysub roots vander "
    "polynomial.polynomial": "coefficients are replicated NumPy arrays; numpy.polyval(p, u) takes "
    "a field of points",
    "packbits unpackbits unravel_index ravel_multi_index datetime_as_string busday_count "
    "busday_offset is_busday einsum_path strings char lib.recfunctions": _OWN,
    "arange array asanyarray asarray ascontiguousarray asfortranarray empty eye frombuffer "
    "fromfile fromfunction fromiter fromstring full genfromtxt identity loadtxt ones require tri "
    "zeros": "like= makes no fields; write pencils.zeros(u.pencil) or numpy.zeros_like(u), "
    "pencils.partition(u.pencil, data)",
    "fft": "write pencils.fft.PencilFFT(u.pencil), which transforms dimensions that are "
    "decomposed, too; numpy.roll(u, shift, axis) shifts frequencies",
    "linalg.vector_norm linalg.matrix_norm": "write u.norm(ord), or numpy.linalg.norm(u, axis=0) "
    "for vectors of components",
    "linalg": "its matrices are the last two axes, which are space; for matrices of components, "
    "pass numpy.moveaxis(u.local, (0, 1), (-2, -1)), and make a field of the result with "
    "PencilArray",
}
# Methods of ufuncs.
_METHODS: Mapping[str, str] = {
    "at": "write numpy.add(u, value, out=u, where=mask) for a mask, u.put_points(index, values, "
    "reduce=pencils.indexer.ReduceOp.SUM) for points of any rank",
    "accumulate": "write numpy.cumsum(u, axis) for sums, numpy.cumprod(u, axis) for products",
    "outer": "write u * v, or another operator: extents of 1 broadcast against each other",
    "reduceat": "reduce sections: u[:n].sum(axis=0) and u[n:].sum(axis=0)",
    "reduce": "reductions are those of numpy.add, multiply, minimum, maximum, logical_and and "
    "logical_or, of a field",
}
# Attributes of NumPy arrays whose texts are not those of a function.
_ATTRIBUTES: Mapping[str, str] = {
    "data ctypes flags flat strides device to_device setflags": "write u.local for the memory of "
    "the own block, u.padded with its halo",
    "tolist": "write u.local.tolist() for the own block, pencils.gather(u, root=None).tolist() "
    "for all blocks on each rank",
    "tobytes": "write u.local.tobytes() for the own block",
    "view getfield byteswap": "write PencilArray(u.pencil, u.local.view(dtype)) for other "
    "elements in the same memory, u.astype(dtype) for converted ones",
    "setfield": "write u.real, u.imag or u.local[name][...] = values for a part of each element",
    "repeat": "write numpy.repeat(u, n, axis)",
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
