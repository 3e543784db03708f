"""Element types for NumPy, including those that NumPy lacks, and exact rounding into them."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Element:
    """An element type.

    Attributes:
        name: As unisono calls it.
        storage: The NumPy type that holds it; unsigned integers for what NumPy lacks.
        exact_limit: All integers up to this one are exactly representable. For wide types less
            than they could hold: values stay exact in float64, in which results are predicted.
        signed: Whether negative values exist.
    """

    name: str
    storage: np.dtype[Any]
    exact_limit: int
    signed: bool = True

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer type; its average is a sum, divided and rounded towards zero."""
        return "int" in self.name

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return self.storage.itemsize

    def encode(self, values: Array) -> Array:
        """Values, rounded to the nearest element (ties to even), as an array of `storage`."""
        if self.name == "bfloat16":
            return _encode_bfloat16(values)
        if self.name in _EIGHT_BIT_FLOATS:
            return _encode_float8(values, self.name)
        return values.astype(self.storage)

    def scales_exactly(self, quotients: Array, ranks: int) -> Array:
        """Which quotients come back when their products with `ranks` are scaled for an average.

        The products must be elements, and times 1 / `ranks` be rounded to the quotients.
        """
        products = quotients * ranks
        are_elements = np.abs(products) <= self.exact_limit
        if self.bytes < 4:  # rounded to far fewer bits than those of the factor
            return np.asarray(are_elements)
        wide = self.storage.type
        return np.asarray(are_elements & (products.astype(wide) * wide(1 / ranks) == quotients))


# An integer p bits wide (the significand with its hidden bit) holds all integers up to 2^p.
_CAP = 1 << 24
_EIGHT_BIT_FLOATS = {"float8_e4m3": (4, 3), "float8_e5m2": (5, 2)}  # exponent, mantissa bits


def element(name: str) -> Element:
    """The element type of a name, which must be one of `unisono.data_types()`."""
    if name.startswith(("int", "uint")):
        storage = np.dtype(name)
        limit = min(int(np.iinfo(storage).max), _CAP)
        return Element(name, storage, limit, signed=name.startswith("int"))
    floats = {
        "float16": ("float16", 1 << 11),
        "bfloat16": ("uint16", 1 << 8),
        "float8_e4m3": ("uint8", 1 << 4),
        "float8_e5m2": ("uint8", 1 << 3),
        "float32": ("float32", _CAP),
        "float64": ("float64", _CAP),
    }
    stored, limit = floats[name]
    return Element(name, np.dtype(stored), limit)


def _encode_bfloat16(values: Array) -> Array:
    bits = values.astype(np.float32).view(np.uint32)
    # Adding half of the cut-off part, less one when the kept part is even, rounds ties to even.
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


@cache
def _finite_values(name: str) -> Array:
    """The values of the non-negative finite codes, in their order, which is also by size."""
    exponent_bits, mantissa_bits = _EIGHT_BIT_FLOATS[name]
    bias = (1 << (exponent_bits - 1)) - 1
    # e4m3 has no infinities and one NaN, the last code; in e5m2 the last exponent is not finite.
    codes = np.arange(0x7F if name == "float8_e4m3" else 0x7C)
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    normal = (1 + fraction) * np.exp2(exponent - bias)
    return np.asarray(np.where(exponent > 0, normal, fraction * np.exp2(1 - bias)))


def _encode_float8(values: Array, name: str) -> Array:
    table = _finite_values(name)
    size = np.abs(values).astype(np.float64)
    above = np.minimum(np.searchsorted(table, size), len(table) - 1)
    below = np.maximum(above - 1, 0)
    to_above, to_below = table[above] - size, size - table[below]
    take_below = (to_below < to_above) | ((to_below == to_above) & (below % 2 == 0))
    code = np.where(take_below & (table[above] != size), below, above)
    return (code | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)
