"""Where the time of collectives went."""

from dataclasses import dataclass

import numpy as np

from unisono.profile.calls import Calls, Collective

__all__ = ["Part", "breakdown"]


@dataclass(frozen=True)
class Part:
    """Collectives of one group, kind and size; times are seconds, means over ranks and calls.

    Attributes:
        queued: From when a call was made until it began.
        waited: Until the last rank whose data it needs had begun.
        connected: In which connections were made and their memory registered, after that.
        reduced: In which data were combined; 0 where that was not measured.
        moved: The rest.
    """

    group: str
    kind: str
    bytes: int
    ranks: int
    calls: int
    queued: float
    waited: float
    connected: float
    reduced: float
    moved: float

    @property
    def total(self) -> float:
        """From when a call was made to its end."""
        return self.queued + self.waited + self.connected + self.reduced + self.moved

    @property
    def share_waited(self) -> float:
        """Of the total."""
        return self.waited / self.total if self.total > 0 else 0.0


def breakdown(calls: Calls) -> list[Part]:
    """The parts; those that took most time come first."""
    alike: dict[tuple[str, str, int], list[Collective]] = {}
    for one in calls.collectives:
        alike.setdefault((one.group, one.kind, one.bytes), []).append(one)
    parts = [
        Part(
            group, kind, size, len(ones[0].ranks), len(ones),
            _mean([one.started - one.scheduled for one in ones]),
            _mean([one.waited() for one in ones]),
            _mean([one.connected() for one in ones]),
            _mean([one.reduced() for one in ones]),
            _mean([one.active() - one.connected() - one.reduced() for one in ones]),
        )
        for (group, kind, size), ones in alike.items()
    ]  # fmt: skip
    return sorted(parts, key=lambda one: -one.total * one.calls)


def _mean(times: list[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> float:
    return float(np.concatenate(times).mean()) / 1e9
