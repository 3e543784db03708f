"""Results: rows with nccl-tests' columns, and the document that holds them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from unisono.bench.cases import Case, Request
from unisono.bench.machine import machine_facts
from unisono.files import write_whole

FORMAT, VERSION = "unisono-bench", 1


@dataclass(frozen=True)
class Row:
    """A case's result.

    Attributes:
        bytes: The larger of input and output of the rank that has most.
        time_us: Median over repeats of the slowest rank's time for a call.
        algbw_gb_s: bytes / time, in 10^9 bytes a second.
        busbw_gb_s: algbw times the bus factor.
        implementation: The library: "unisono", or one that it is compared with.
        algorithm: The algorithm; the settings of another library.
        wrong: Elements, over all ranks, that were not what they must be.
        calls: How many were made back to back in a repeat; 0 in files of older versions.
        least_us: The time of a call in the shortest repeat; 0 where it was not recorded.
        most_us: In the longest.
        repeats: How many there were.
        outliers: Repeats that took more than 1.5 times the median.
    """

    collective: str
    bytes: int
    type: str
    ranks: int
    nodes: int
    implementation: str
    algorithm: str
    protocol: str
    time_us: float
    algbw_gb_s: float
    busbw_gb_s: float
    wrong: int
    calls: int = 0
    least_us: float = 0.0
    most_us: float = 0.0
    repeats: int = 0
    outliers: int = 0

    @property
    def spread(self) -> float | None:
        """Longest less shortest repeat, as a part of the median; None of one repeat."""
        if self.repeats < 2 or self.time_us <= 0:
            return None
        return (self.most_us - self.least_us) / self.time_us

    @classmethod
    def of(
        cls,
        case: Case,
        nodes: int,
        algorithm: str,
        protocol: str,
        time_us: float,
        wrong: int,
        implementation: str = "unisono",
        calls: int = 0,
    ) -> Self:
        """The row of a case that took `time_us`, by the algorithm and protocol that really ran."""
        algbw = case.bytes / time_us / 1000 if time_us > 0 else 0.0
        return cls(
            case.collective, case.bytes, case.type, case.ranks, nodes, implementation, algorithm,
            protocol, round(time_us, 3), round(algbw, 9),
            round(algbw * bus_factor(case.collective, case.ranks), 9), wrong,
            calls,
        )  # fmt: skip


def bus_factor(collective: str, ranks: int) -> float:
    """What algbw is multiplied by, as nccl-tests does.

    The bus bandwidth is what each rank's link carries in an optimal algorithm, so that it can be
    compared with the hardware whatever the number of ranks.
    """
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("broadcast", "reduce", "send_recv"):
        return 1.0
    return (ranks - 1) / ranks


def to_document(request: Request, rows: Sequence[Row]) -> dict[str, Any]:
    """Rows with what they depend on, as JSON's types."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "request": request.to_json(),
        "rows": [asdict(row) for row in rows],
    }


def write_document(path: Path, request: Request, rows: Sequence[Row]) -> None:
    """Writes `to_document` as JSON, one row a line.

    Raises:
        MachineError: It cannot be written.
    """
    document = to_document(request, rows)
    lines = ",\n".join("    " + json.dumps(row) for row in document.pop("rows"))
    head = json.dumps(document, indent=2)[:-2]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, f'{head},\n  "rows": [\n{lines}\n  ]\n}}\n')
