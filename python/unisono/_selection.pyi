# ruff: noqa: A002
"""The selection's part of unisono._unisono: a stub only, there is no such module."""

from collections.abc import Sequence

from unisono._unisono import Cost, Placement

class Candidate:
    """A plan that could serve a call, and what the cost model says."""

    @property
    def algorithm(self) -> str: ...
    @property
    def plan_name(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def channels(self) -> int: ...
    @property
    def time_us(self) -> float: ...
    @property
    def cost(self) -> Cost: ...

class SelectionRow:
    """A row of the selection table: serves calls of min_bytes to max_bytes."""

    @property
    def min_bytes(self) -> int: ...
    @property
    def max_bytes(self) -> int | None: ...  # None: no limit
    @property
    def algorithm(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def channels(self) -> int: ...
    @property
    def origin(self) -> str: ...  # "cost model", or the file

# In all of them `crowding` is how many ranks share each core where they are most, 1 or more.
def selection_table(
    collective: str, placement: Placement, crowding: float = 1.0
) -> list[SelectionRow]:
    """The rows in the order in which they are tried, with this process's settings."""

def choose(
    collective: str, bytes: int, placement: Placement, crowding: float = 1.0
) -> SelectionRow:
    """The row that decides a call of `bytes` (the larger of a rank's input and output)."""

def candidates(
    collective: str,
    bytes: int,
    placement: Placement,
    crowding: float = 1.0,
    parameters: Sequence[float] | None = None,
) -> list[Candidate]:
    """All plans that could serve, fastest first; with `parameters`, by a cost model of these."""

def cost_parameters() -> list[float]:
    """The cost model's parameters, in the order of src/comm/select/cost_model.cc."""

def explain(collective: str, bytes: int, placement: Placement, crowding: float = 1.0) -> str:
    """Which plan a call would take, and why: a table for a person."""
