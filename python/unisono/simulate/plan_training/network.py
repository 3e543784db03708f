"""What the collectives of a layout take: NCCL's model, for groups of ranks that are apart."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from unisono.simulate import nccl
from unisono.simulate.nccl_times import End, Times


@dataclass(frozen=True)
class Pass:
    """Nanoseconds of one layer's forward or backward pass, on one rank.

    Attributes:
        compute: Its kernels.
        exposed: What they wait for, by kind of parallelism.
    """

    compute: float
    exposed: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Both."""
        return self.compute + sum(self.exposed.values())


class Network:
    """Times of NCCL for groups of a layout.

    Args:
        machine: Where.
        end: Predicted times, or the lower or upper ends of their intervals.
    """

    def __init__(self, machine: nccl.MachineFile, end: End = "time") -> None:
        self.times = Times(machine, end)
        self.local = self.times.local
        # `layer_passes` keeps its results here, for layouts whose layers are alike.
        self.passes: dict[Hashable, tuple[Pass, Pass]] = {}

    def nodes(self, ranks: int, stride: int) -> int:
        """The nodes of a group whose ranks are `stride` apart."""
        inside = max(1, min(ranks, self.local // stride)) if stride < self.local else 1
        return -(-ranks // inside)

    def us(self, collective: str, size_bytes: float, ranks: int, stride: int) -> float:
        """A collective.

        Args:
            collective: "all_gather" and so on.
            size_bytes: The larger of input and output.
            ranks: Of the group.
            stride: How far its ranks are apart.

        Raises:
            MisuseError: The group has several nodes and the machine has no network.
        """
        if ranks == 1 or size_bytes <= 0:
            return 0.0
        return self.times.us(collective, round(size_bytes), ranks, self.nodes(ranks, stride))

    def hop_us(self, size_bytes: float, stride: int) -> float:
        """A message to a rank that is `stride` apart."""
        return self.times.message_us(round(size_bytes), self.nodes(2, stride))
