"""Values of a checkpoint besides its fields: numbers, text, small arrays, random generators.

All ranks hold the same values, so the file has each once: as an array, with a word that names its
type.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from pencils.array.allocation import Array
from pencils.array.normalize import as_dtype

# `Stored.kind` of coordinates, which `save` adds by itself.
COORDINATE = "coordinate"
_ARRAY = "numpy"
_PLAIN = {kind.__name__: kind for kind in (bool, int, float, complex)}
_GENERATOR = "Generator"
_BITS = "BitGenerator"
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


class Stored(NamedTuple):
    """A value as it is stored in a file.

    Parameters
    ----------
    kind : str
        What it was: ``"int"``, ``"str"``, ``"numpy"``, ``"Generator"``, and so on.
    data : numpy.ndarray
        Its elements; text is one element, in UTF-8.
    """

    kind: str
    data: Array

    def __repr__(self) -> str:
        """Text that is the same for equal values only, for ranks to compare."""
        if self.data.size == 1 and self.kind not in (_GENERATOR, _BITS):
            return f"{self.kind} {self.data.item()!r:.80} of {self.data.dtype}{self._digest()}"
        return f"{self.kind} of {self.data.dtype} {self.data.shape}{self._digest()}"

    def _digest(self) -> str:
        return f" [{blake2b(self.data.tobytes(), digest_size=6).hexdigest()}]"


def encode(value: object) -> Stored:
    """Make an array of a value.

    Raises
    ------
    TypeError
        If it is none that can be stored.

    Examples
    --------
    >>> decode(encode(0.25)), decode(encode("Green")), decode(encode(np.arange(3)))
    (0.25, 'Green', array([0, 1, 2]))
    >>> rng = np.random.default_rng(7)
    >>> float(decode(encode(rng)).random()) == float(rng.random())
    True
    """
    if isinstance(value, np.random.Generator):
        return Stored(_GENERATOR, _text(_describe(value.bit_generator)))
    if isinstance(value, np.random.BitGenerator):
        return Stored(_BITS, _text(_describe(value)))
    if isinstance(value, str):
        return Stored("str", _text(str(value)))
    if isinstance(value, np.ma.MaskedArray):
        msg = "the mask of an array cannot be stored; store its data and its mask as two arrays"
        raise TypeError(msg)
    if isinstance(value, np.ndarray | np.generic):
        as_dtype(value.dtype)
        return Stored(_ARRAY, np.asarray(value))
    kind = type(value).__name__
    if _PLAIN.get(kind) is type(value):
        data = np.asarray(value)
        if data.dtype.hasobject:
            msg = f"the integer {value} has more than 64 bits; store it as text"
            raise TypeError(msg)
        return Stored(kind, data)
    msg = (
        f"{kind} cannot be stored; a checkpoint takes PencilArrays, numbers, strings, NumPy arrays "
        "and NumPy's random generators"
    )
    raise TypeError(msg)


def decode(stored: Stored) -> Any:
    """Make the value again; what is of a kind that is not known here stays an array."""
    kind, data = stored
    if kind in _PLAIN:
        return _PLAIN[kind](data.item())
    if kind == "str":
        return data.item().decode()
    if kind in (_GENERATOR, _BITS):
        bits = _restore(data.item().decode())
        return np.random.Generator(bits) if kind == _GENERATOR else bits
    return data if data.ndim else data[()]


def _text(value: str) -> Array:
    if "\0" in value:
        msg = f"{value!r:.80} holds a NUL character, which cannot be stored in text"
        raise TypeError(msg)
    return np.asarray(value.encode() or b"\0")


def _describe(bits: np.random.BitGenerator) -> str:
    name = type(bits).__name__
    if name not in _BIT_GENERATORS or type(bits) is not getattr(np.random, name):
        msg = f"random numbers of {type(bits)} cannot be stored; use one of {_BIT_GENERATORS}"
        raise TypeError(msg)
    sequence = bits.seed_seq  # from which generators are spawned
    seed = sequence.state if isinstance(sequence, np.random.SeedSequence) else None
    return json.dumps({"state": bits.state, "seed": seed}, default=lambda data: data.tolist())


def _restore(text: str) -> np.random.BitGenerator:
    found = json.loads(text)
    name = found["state"]["bit_generator"]
    if name not in _BIT_GENERATORS:
        msg = f"there is no bit generator {name!r} in NumPy"
        raise ValueError(msg)
    make = getattr(np.random, name)
    seed = found["seed"] and np.random.SeedSequence(**found["seed"])
    bits: np.random.BitGenerator = make(seed)
    bits.state = _like(bits.state, found["state"])
    return bits


def _like(known: Any, found: Any) -> Any:
    """Turn lists into arrays where the state of a generator has arrays."""
    if isinstance(known, dict):
        return {name: _like(value, found[name]) for name, value in known.items()}
    return np.asarray(found, known.dtype) if isinstance(known, np.ndarray) else found
