"""Times of NCCL's calls on a machine, for workloads and plans that ask for the same ones often."""

from typing import Literal

from unisono.simulate import nccl

End = Literal["time", "low", "high"]


class Times:
    """What calls of NCCL take on a machine, each predicted once.

    Args:
        machine: Where.
        end: Predicted times, or the lower or upper ends of their intervals.
    """

    def __init__(self, machine: nccl.MachineFile, end: End = "time") -> None:
        self.machine, self.end = machine, end
        self.local = int(machine.hardware.ranks_per_node.value)
        self._known: dict[tuple[str, int, int, int], tuple[float, str]] = {}

    def us(self, collective: str, size_bytes: int, ranks: int, nodes: int) -> float:
        """A collective of `size_bytes`, the larger of input and output.

        Raises:
            MisuseError: The group has several nodes and the machine has no network.
        """
        return self._predicted(collective, size_bytes, ranks, nodes)[0]

    def choice(self, collective: str, size_bytes: int, ranks: int, nodes: int) -> str:
        """The algorithm and protocol that NCCL takes for it."""
        return self._predicted(collective, size_bytes, ranks, nodes)[1]

    def message_us(self, size_bytes: int, nodes: int) -> float:
        """A message between two ranks, as half of an all-to-all of two."""
        return self.us("all_to_all", 2 * size_bytes, 2, nodes)

    def _predicted(
        self, collective: str, size_bytes: int, ranks: int, nodes: int
    ) -> tuple[float, str]:
        key = (collective, max(1, size_bytes), ranks, nodes)
        if key not in self._known:
            # The model knows groups with as many ranks on each node.
            call = nccl.Call(collective, key[1], nodes * -(-ranks // nodes), nodes)
            one = nccl.predict(self.machine, call)
            ends = {"time": one.time_us, "low": one.low_us, "high": one.high_us}
            chosen = f"{one.choice.algorithm}/{one.choice.protocol}"
            self._known[key] = (ends[self.end], chosen)
        return self._known[key]
