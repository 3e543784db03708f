"""Reductions that the core does not have: their functions, and what they take.

The built-in ones are named by strings, as the core's are:

- "logical_and", "logical_or", "logical_xor" of numbers and booleans; zero is false. The result is 0
  or 1 in the elements' type.
- "bitwise_and", "bitwise_or", "bitwise_xor" of integers and booleans.
- "minloc" and "maxloc" of NumPy arrays of a structured type of two fields, a real number and an
  integer, as `np.dtype([("value", "f8"), ("index", "i8")])`. The result is the least or the
  greatest value with its index; of equal values, the one with the least index. A NaN counts as less
  and as greater than every number.

An `Operation`, a NumPy ufunc or another function of two arrays may be given as `op` in their place.
"""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from unisono import _unisono as native
from unisono.arguments import guard
from unisono.errors import ArgumentTypeError, MisuseError

__all__ = ["Operation", "Reduction", "resolved"]

Combine = Callable[[Any, Any], Any]


class Operation:
    """A reduction by a function of two arrays.

    Contributions are combined from rank 0 on: with three ranks, `f(f(x0, x1), x2)`. The result of
    one contribution is the contribution itself. Arrays are in CPU memory.

    Attributes:
        name: What errors call it.
        commutative: Whether ranks may be combined in any order.
        elementwise: Whether an element of the result depends on that element of the arguments only.
    """

    def __init__(
        self,
        function: Combine,
        *,
        name: str | None = None,
        commutative: bool = False,
        elementwise: bool | None = None,
    ) -> None:
        """Declares a function as a reduction.

        Args:
            function: A NumPy ufunc of two arguments and one result, or a function that takes two
                arrays of one shape and type, and returns one of that shape and type. It may
                overwrite its arguments. It must be associative, up to rounding.
            name: The name; None takes the function's.
            commutative: Allow any order of ranks. np.add, np.multiply, np.minimum and np.maximum
                then run by the core's plans, for the types that it has.
            elementwise: Large arrays are cut into parts if it is true, which ranks combine in
                parallel; else every rank that gets a result receives the arrays of all ranks. None:
                true for ufuncs without a signature, false for other functions.
        """
        is_ufunc = isinstance(function, np.ufunc)
        if not callable(function):
            raise ArgumentTypeError(f"function is {function!r}; it must take two arrays")
        self.name = name or getattr(function, "__name__", type(function).__name__)
        if isinstance(function, np.ufunc) and (function.nin, function.nout) != (2, 1):
            raise MisuseError(
                f"{self.name} is a ufunc of {function.nin} arguments and {function.nout} results; "
                "a reduction needs one of 2 arguments and 1 result"
            )
        self.commutative = commutative
        self.elementwise = (
            is_ufunc and getattr(function, "signature", None) is None
            if elementwise is None
            else elementwise
        )
        self._function = function

    def __repr__(self) -> str:
        return f"<unisono.Operation {self.name}>"

    def check_type(self, dtype: Any, where: str) -> None:
        """Raises MisuseError for elements that the operation does not take, as far as is known.

        Args:
            dtype: Their NumPy type.
            where: Which array has them: "the input of all_reduce on rank 3".
        """
        if not isinstance(self._function, np.ufunc):
            return
        none = np.empty((0,) if self._function.signature is None else (0, 0), dtype)
        try:
            self._function(none, none, out=none)
        except (TypeError, ValueError) as error:
            raise MisuseError(
                f"{where} has elements of type {dtype}, for which there is no {self.name}: {error}"
            ) from None

    def combine(self, total: Any, other: Any) -> None:
        """Writes f(total, other) to total.

        Raises:
            MisuseError: The function returned something else than an array like `total`.
        """
        if isinstance(self._function, np.ufunc):
            self._function(total, other, out=total)
            return
        made = self._function(total, other)
        got = np.asarray(made)
        if got.shape != total.shape or got.dtype != total.dtype:
            what = f"shape {got.shape} and type {got.dtype}" if made is not None else "None"
            raise MisuseError(
                f"the operation {self.name} returned {what}; for two arrays of shape {total.shape} "
                f"and type {total.dtype} it must return one such array"
            )
        total[...] = got


class _Located(Operation):
    """Minloc or maxloc."""

    def __init__(self, name: str, is_better: Combine) -> None:
        super().__init__(
            partial(_located, is_better), name=name, commutative=True, elementwise=True
        )

    def check_type(self, dtype: Any, where: str) -> None:
        kinds = [dtype[field].kind for field in dtype.names or ()]
        if len(kinds) != 2 or kinds[0] not in "biuf" or kinds[1] not in "iu":
            raise MisuseError(
                f"{where} has elements of type {dtype}; {self.name} takes a structured type of two "
                "fields, a real number and an integer: "
                'np.dtype([("value", "f8"), ("index", "i8")])'
            )


def _located(is_better: Combine, total: Any, other: Any) -> Any:
    value, index = total.dtype.names
    ours, theirs = total[value], other[value]
    is_nan, is_their_nan = ours != ours, theirs != theirs
    is_equal = (ours == theirs) | (is_nan & is_their_nan)
    is_theirs = np.where(
        is_equal,
        other[index] < total[index],
        ~is_nan & (is_their_nan | is_better(theirs, ours)),
    )
    return np.where(is_theirs, other, total)


Reduction = str | Operation | Combine

_BUILT_IN: dict[str, Operation] = {
    **{
        function.__name__: Operation(function, commutative=True)
        for function in (
            np.logical_and, np.logical_or, np.logical_xor,
            np.bitwise_and, np.bitwise_or, np.bitwise_xor,
        )
    },
    "minloc": _Located("minloc", operator.lt),
    "maxloc": _Located("maxloc", operator.gt),
}  # fmt: skip
_COMPLEX = ("complex64", "complex128")
_NUMBERS = tuple(name for name, _ in native.data_types())
# By the name of a commutative ufunc: the core's operation that is the same, and for which types.
_IN_CORE = {
    "add": ("sum", (*_NUMBERS, *_COMPLEX)),
    "multiply": ("product", _NUMBERS),
    "minimum": ("min", ("bool", *_NUMBERS)),
    "maximum": ("max", ("bool", *_NUMBERS)),
    "logical_and": ("min", ("bool",)),
    "bitwise_and": ("min", ("bool",)),
    "logical_or": ("max", ("bool",)),
    "bitwise_or": ("max", ("bool",)),
}


def resolved(op: Reduction, x: object) -> str | Operation:
    """The core's name of a reduction of the elements of x; else the operation to fold with.

    Args:
        op: What a call was given.
        x: The input; what is wrong with it is found later.
    """
    if isinstance(op, str):
        if op not in _BUILT_IN:
            return op
        op = _BUILT_IN[op]
    elif not isinstance(op, Operation):
        op = Operation(op)
    function = op._function
    if op.commutative and isinstance(function, np.ufunc) and function.__name__ in _IN_CORE:
        name, types = _IN_CORE[function.__name__]
        if str(getattr(x, "dtype", "")).rpartition(".")[2] in types:
            return name
    return op


guard(globals(), without=["resolved"])
