"""What a custom program asks of its data, checked: chunks that are given, sums that are wanted."""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unisono.errors import ProgramError

if TYPE_CHECKING:
    from unisono.lang.program import Given, Shape, Wanted

__all__ = ["Conditions", "check_whole"]


def check_whole(home: str, name: str, value: Any) -> int:
    """The value, which must be a whole number and no bool.

    Raises:
        ProgramError: It is something else; `home` begins the text, `name` says what it is.
    """
    if not isinstance(value, bool | np.bool_):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise ProgramError(f"{home}{name} is {value!r}; it is a whole number")


@dataclass(frozen=True)
class Conditions:
    """The conditions of one program, for one shape.

    Attributes:
        name: The program's.
        shape: For which it is compiled.
        inputs: Chunks of the input of each rank.
        outputs: Chunks of the output of each rank.
    """

    name: str
    shape: "Shape"
    inputs: int
    outputs: int

    def given(self, function: "Given | None") -> list[bool]:
        """By rank and input chunk: whether it holds data at the start."""
        if function is None:
            return [True] * (self.shape.ranks * self.inputs)
        return [self._is_given(function, *one) for one in self._chunks(self.inputs)]

    def wanted(self, function: "Wanted") -> list[list[int]]:
        """By rank and output chunk: the numbers of the input chunks that it is the sum of; none
        where anything may be.
        """
        return [self._sum(function, *one) for one in self._chunks(self.outputs)]

    def _chunks(self, chunks: int) -> Iterable[tuple[int, int]]:
        return ((rank, index) for rank in range(self.shape.ranks) for index in range(chunks))

    def _is_given(self, function: Callable[..., Any], rank: int, index: int) -> bool:
        value = function(self.shape, rank, index)
        if not isinstance(value, bool | np.bool_):
            raise ProgramError(
                f"program {self.name}: the precondition of input[{index}] of rank {rank} is "
                f"{value!r}; it is True or False"
            )
        return bool(value)

    def _sum(self, function: Callable[..., Any], rank: int, index: int) -> list[int]:
        places = function(self.shape, rank, index)
        if places is None:
            return []
        home = f"program {self.name}: the postcondition of output[{index}] of rank {rank} "
        found: list[int] = []
        for place in places:
            if not (isinstance(place, tuple | list) and len(place) == 2):
                raise ProgramError(f"{home}has {place!r}; it names input chunks, as (rank, index)")
            source, chunk = (check_whole(home, "a part of a place", part) for part in place)
            if not (0 <= source < self.shape.ranks and 0 <= chunk < self.inputs):
                raise ProgramError(
                    f"{home}asks for input[{chunk}] of rank {source}; there are "
                    f"{self.shape.ranks} ranks with {self.inputs} chunks"
                )
            number = source * self.inputs + chunk
            if number in found:
                raise ProgramError(
                    f"{home}names input[{chunk}] of rank {source} twice; a sum has each chunk once"
                )
            found.append(number)
        if not found:
            raise ProgramError(f"{home}names no input chunk; None says that anything may be there")
        return found
