"""The axes of charts: where values are, and which of them are marked."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unisono.draw.numbers import plain


@dataclass(frozen=True)
class Axis:
    """An axis: its label, whether it is logarithmic, and how its values are written."""

    label: str
    logarithmic: bool = False
    write: Callable[[float], str] = plain
    base: int = 10


class Scale:
    """Where values are along an axis, and which of them are marked."""

    def __init__(self, axis: Axis, values: Sequence[float]) -> None:
        self._axis = axis
        low, high = (min(values), max(values)) if values else (1.0, 1.0)
        if axis.logarithmic:
            self.low = float(axis.base) ** math.floor(self._log(low) + 1e-9)
            self.high = float(axis.base) ** math.ceil(self._log(high) - 1e-9)
            if self.high <= self.low:
                self.high = self.low * axis.base
        else:
            self.low, self.high = min(0.0, low), high if high > min(0.0, low) else low + 1.0

    def _log(self, value: float) -> float:
        return math.log(value) / math.log(self._axis.base)

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self._axis.logarithmic:
            low = self._log(self.low)
            return (self._log(value) - low) / (self._log(self.high) - low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int = 10) -> list[float]:
        """About so many values, or fewer."""
        if self._axis.logarithmic:
            first, last = round(self._log(self.low)), round(self._log(self.high))
            every = max(1, -(-(last - first) // most))
            return [float(self._axis.base) ** power for power in range(first, last + 1, every)]
        rough = (self.high - self.low) / min(6, most)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step)
        return [step * i for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
