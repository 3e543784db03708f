"""Where the time of collectives went."""

from dataclasses import dataclass

import numpy as np

from unisono.profile.calls import Calls, Collective

__all__ = ["Part", "breakdown"]

# Fewer calls like the first one do not say how long it takes once all is connected.
_LEAST_LATER = 3


@dataclass(frozen=True)
class Part:
    """Collectives of one group, kind and size; times are seconds, means over ranks and calls.

    Attributes:
        queued: From when a call was made until it began.
        waited: Until the last rank whose data it needs had begun.
        moved: The rest: data moved, and were reduced, which the record does not tell apart.
        first_extra: By how much the first one's `moved` was longer than the median of the others:
            it connects and registers; negative where the record no longer has it, or too few
            others.
    """

    group: str
    kind: str
    bytes: int
    ranks: int
    calls: int
    queued: float
    waited: float
    moved: float
    first_extra: float

    @property
    def total(self) -> float:
        """From when a call was made to its end."""
        return self.queued + self.waited + self.moved

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
            _mean([one.waited() for one in ones]), _mean([one.moved() for one in ones]),
            _first_extra(ones),
        )
        for (group, kind, size), ones in alike.items()
    ]  # fmt: skip
    return sorted(parts, key=lambda one: -one.total * one.calls)


def _mean(times: list[np.ndarray[tuple[int], np.dtype[np.int64]]]) -> float:
    return float(np.concatenate(times).mean()) / 1e9


def _first_extra(ones: list[Collective]) -> float:
    if ones[0].number != 0 or len(ones) <= _LEAST_LATER:
        return -1.0
    later = np.median([one.moved().mean() for one in ones[1:]])
    return max(float(ones[0].moved().mean() - later), 0.0) / 1e9
