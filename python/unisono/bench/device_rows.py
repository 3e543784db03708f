"""What the bench on CUDA devices is asked, and what it finds."""

from dataclasses import dataclass, field
from typing import Any, Self

from unisono.bench.rows import bus_factor


@dataclass(frozen=True)
class DeviceRequest:
    """What a run measures.

    Attributes:
        collectives: Their names; "send_recv" is a ring: to the next rank and from the one before.
        sizes: Bytes, of the larger of a rank's input and output.
        types: Element types.
        modes: "eager" and "graph".
        in_place: Which to measure: False, True, or both.
        repeats: Measurements of each, alternating.
        peer: What unisono is compared with: "nccl", "symm_mem", or nothing.
        nccl: The path of NCCL's library, where that is the peer.
        options: Those of unisono's calls (CallOptions), without what is left open.
        memory: Where the buffers are: "cuda", or "nccl", by ncclMemAlloc, which NCCL registers with
            its peers.
    """

    collectives: list[str]
    sizes: list[int]
    types: list[str] = field(default_factory=lambda: ["bfloat16"])
    modes: list[str] = field(default_factory=lambda: ["graph"])
    in_place: list[bool] = field(default_factory=lambda: [False])
    repeats: int = 5
    peer: str = ""
    nccl: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    memory: str = "cuda"

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Reads `asdict`'s values."""
        return cls(**values)


@dataclass(frozen=True)
class DeviceRow:
    """What was measured of one call.

    Attributes:
        time_us: Microseconds of a call of unisono: the slowest rank's, median over repeats.
        wrong: Wrong elements of unisono's result, on all ranks.
        peer_us: The same of the library it is compared with; 0 where it was not measured.
        peer_wrong: Wrong elements of the peer's result, on all ranks.
        peer_algorithm: Which of the peer's ways was the fastest, where it offers several.
        push_gb_s: What plain stores of 16 bytes into all peers at once brought out of each device
            in the same run, each device sending as much as in an all-gather of as many bytes; 0
            where that was not measured.
    """

    collective: str
    bytes: int
    type: str
    mode: str
    in_place: bool
    ranks: int
    time_us: float
    wrong: int
    peer_us: float = 0.0
    peer_wrong: int = 0
    peer_algorithm: str = ""
    push_gb_s: float = 0.0

    @property
    def ratio(self) -> float:
        """How many times as fast as the peer."""
        return self.peer_us / self.time_us if self.time_us else 0.0

    @property
    def busbw_gb_s(self) -> float:
        """Bytes that leave each device in an optimal algorithm, over the time, in GB/s."""
        return 1e-3 * self.bytes * bus_factor(self.collective, self.ranks) / self.time_us

    @property
    def push_share(self) -> float:
        """The share of the push limit that was reached; 0 where there is none."""
        return self.busbw_gb_s / self.push_gb_s if self.push_gb_s else 0.0


# Calls in one measurement: a few hundred microseconds at least, and never many seconds.
# Up to so many bytes, so many calls: ranks that begin some microseconds apart cost each call less
# the more there are.
_CALLS = ((256 << 10, 100), (4 << 20, 20), (64 << 20, 5))
_LARGE_CALLS = 2


def calls_of(size_bytes: int) -> int:
    """How many calls of a size are timed together."""
    return next((calls for limit, calls in _CALLS if size_bytes <= limit), _LARGE_CALLS)
