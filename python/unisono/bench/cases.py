"""What is measured: cases, and their list for a request."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from unisono import _unisono as native
from unisono import plans
from unisono.errors import MisuseError
from unisono.names import check_names, collectives, element_bytes

_REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")
# Their count is of the whole buffer, not of a block.
_WHOLE = ("all_reduce", "reduce", "broadcast", "send_recv")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


@dataclass(frozen=True)
class Case:
    """One call to measure.

    Attributes:
        count: Elements, as the collective counts them (`include/unisono/communicator.h`): of a
            block where data is made of blocks. In all_to_all_v, the mean of all parts.
        algorithm: Empty leaves it to the selection table.
        protocol: Empty leaves it to the selection table.
    """

    collective: str
    count: int
    type: str
    ranks: int
    algorithm: str = ""
    protocol: str = ""
    operation: str = "sum"
    root: int = 0
    in_place: bool = False

    @property
    def is_reduction(self) -> bool:
        """Whether elements are combined."""
        return self.collective in _REDUCTIONS

    @property
    def bytes(self) -> int:
        """The larger of input and output of the rank that has most, as nccl-tests counts."""
        if self.collective == "barrier":
            return 0
        return self.count * self._blocks(self.collective) * element_bytes(self.type)

    def input_count(self, rank: int) -> int:
        """Elements of a rank's input."""
        if self.collective in ("broadcast", "scatter") and rank != self.root:
            return 0
        return self._elements(rank, several=("reduce_scatter", "scatter", "all_to_all"))

    def output_count(self, rank: int) -> int:
        """Elements of a rank's output."""
        if self.collective in ("reduce", "gather") and rank != self.root:
            return 0
        return self._elements(rank, several=("all_gather", "gather", "all_to_all"))

    def part_counts(self, rank: int) -> list[int]:
        """all_to_all_v: elements for each rank, from none to twice the mean, the mean on average.

        A rank receives as much as it sends, so that its input and output are equally large.
        """
        shifts = [2 * ((rank + peer) % self.ranks) + 1 for peer in range(self.ranks)]
        return [self.count * shift // self.ranks for shift in shifts]

    def _elements(self, rank: int, several: Sequence[str]) -> int:
        if self.collective == "barrier":
            return 0
        if self.collective == "all_to_all_v":
            return sum(self.part_counts(rank))
        return self.count * (self.ranks if self.collective in several else 1)

    def _blocks(self, collective: str) -> int:
        return 1 if collective in _WHOLE else self.ranks


@dataclass(frozen=True)
class Request:
    """What a run of the bench measures.

    Attributes:
        collectives: Their names; empty for all.
        algorithms: Names, "all" for every algorithm that can serve, "auto" for the table's choice.
        protocols: Names, "all", or "auto" for the table's choice.
        sizes: Bytes, of the larger of a rank's input and output.
        iterations: Calls in a measurement; 0 takes as many as fit in `seconds`.
        seconds: How long a case may be measured, roughly.
        netbed: Whether nodes are network namespaces; with links of `rate` (as "200mbit", or one
            for each rail, as "200mbit,20mbit"; empty for no limit) to each of `rails` switches.
        delay: The delay of every message between nodes, as "1ms"; empty for none.
        cuts: Rails of the netbed that are cut, as `parse_cut` reads them, in seconds after the
            first timed call of the first case begins.
    """

    collectives: list[str] = field(default_factory=list)
    ranks: int = 2
    nodes: int = 1
    sizes: list[int] = field(default_factory=lambda: [8, 1024, 1 << 20])
    algorithms: list[str] = field(default_factory=lambda: ["auto"])
    protocols: list[str] = field(default_factory=lambda: ["auto"])
    type: str = "float32"
    operation: str = "sum"
    root: int = 0
    in_place: bool = False
    iterations: int = 0
    seconds: float = 0.1
    netbed: bool = False
    rate: str = ""
    rails: int = 1
    delay: str = ""
    cuts: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As JSON's types."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Reads `to_json`'s values."""
        return cls(**values)


def sizes_between(smallest: int, largest: int, factor: int) -> list[int]:
    """From the smallest size, each `factor` times the one before; ends with the largest."""
    if not 0 < smallest <= largest:
        raise MisuseError(f"sizes from {smallest} to {largest} bytes; 0 < smallest <= largest")
    if factor < 2:
        raise MisuseError(f"the factor between sizes is {factor}; it must be at least 2")
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return sizes if sizes[-1] == largest else [*sizes, largest]


def list_cases(request: Request) -> list[Case]:
    """All cases of a request, by collective, algorithm, protocol and size.

    An algorithm that cannot serve (a power of two is needed, say) is left out, unless it was named.

    Raises:
        MisuseError: A name is unknown (the text has the near ones), or nothing is left.
    """
    check_names("collective", request.collectives, collectives())
    check_names("type", [request.type], [name for name, _ in native.data_types()])
    check_names("operation", [request.operation], native.reduce_operations())
    known = [entry.name for entry in plans.algorithms()]
    check_names("algorithm", request.algorithms, [*known, "all", "auto"])
    check_names("protocol", request.protocols, [*native.protocols(), "all", "auto"])
    if not 0 <= request.root < request.ranks:
        raise MisuseError(f"root is {request.root}; it must be 0 to {request.ranks - 1}")
    cases = dict.fromkeys(
        case
        for collective in request.collectives or collectives()
        for algorithm, protocol in _choices(request, collective)
        for case in _sized(request, collective, algorithm, protocol)
    )
    if not cases:
        raise MisuseError(
            f"nothing to measure: no algorithm of {', '.join(request.algorithms)} serves "
            f"{', '.join(request.collectives) or 'any collective'} on {request.ranks} ranks"
        )
    return list(cases)


def _choices(request: Request, collective: str) -> Iterator[tuple[str, str]]:
    """Pairs of algorithm and protocol that can serve."""
    placement = plans.Placement(request.ranks, request.nodes)
    protocols = native.protocols() if "all" in request.protocols else request.protocols
    for name in request.algorithms:
        if name == "auto":
            yield from (("", "" if protocol == "auto" else protocol) for protocol in protocols)
            continue
        for entry in plans.algorithms(collective):
            if name not in ("all", entry.name):
                continue
            for protocol in protocols:
                reason = entry.why_not(
                    placement,
                    root=request.root,
                    in_place=request.in_place,
                    protocol="simple" if protocol == "auto" else protocol,
                )
                if not reason:
                    yield entry.name, "" if protocol == "auto" else protocol
                elif name != "all" and len(request.collectives) == 1:
                    raise MisuseError(reason)


def _sized(request: Request, collective: str, algorithm: str, protocol: str) -> Iterator[Case]:
    one = Case(
        collective, 1, request.type, request.ranks, algorithm, protocol,
        request.operation if collective in _REDUCTIONS else "",
        request.root if collective in _ROOTED else 0,
        request.in_place and collective not in ("barrier", "all_to_all_v"),
    )  # fmt: skip
    if collective == "barrier":
        yield one
        return
    for size in request.sizes:
        count = max(1, size // one.bytes)
        yield Case(**{**asdict(one), "count": count})


def write_cases(cases: Sequence[Case]) -> str:
    """Cases as JSON."""
    return json.dumps([asdict(case) for case in cases])


def read_cases(text: str) -> list[Case]:
    """Reads `write_cases`'s text."""
    return [Case(**values) for values in json.loads(text)]
