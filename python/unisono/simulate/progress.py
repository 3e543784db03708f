"""How far simulations are, readable from other threads."""

from typing import Self

from unisono._unisono import SimulationProgress


class Part:
    """One simulation of a `Progress`: ended when it is left as a context.

    Attributes:
        native: What the simulator reports to.
    """

    def __init__(self, work: float) -> None:
        self.work = work
        self.native = SimulationProgress()
        self.has_ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.has_ended = True


class Progress:
    """How far one simulation is, or several that are one sweep.

    A step is one of a thread block's, tile by tile; of GOAL an operation.
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def part(self, work: float = 1.0) -> Part:
        """Another simulation, whose `work` is so many times that of others, as far as is known."""
        self._parts.append(Part(work))
        return self._parts[-1]

    @property
    def done(self) -> int:
        """Steps."""
        return sum(part.native.done for part in self._parts)

    @property
    def total(self) -> int:
        """Steps; of simulations that have not begun, as those that have let expect. 0: unknown."""
        begun = [part for part in self._parts if part.native.total > 0]
        known = sum(part.native.total for part in begun)
        if known == 0:
            return 0
        steps = known / sum(part.work for part in begun)
        rest = sum(
            part.work for part in self._parts if part.native.total == 0 and not part.has_ended
        )
        return known + round(rest * steps)

    def stop(self) -> None:
        """All end soon, with a MisuseError."""
        for part in self._parts:
            part.native.stop()
