"""Programs repeat themselves: where a rank's calls part from what it did in its earlier rounds."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np

from unisono.doctor.waits import Waits

__all__ = ["Change", "Departure", "departure"]

Array = np.ndarray[Any, Any]
# Calls of a round: longer rounds are not looked for.
_LONGEST = 512
# So many rounds must be alike, and no more calls are looked at than these take.
_LEAST_ROUNDS = 2
_WINDOW = 4 * _LONGEST
_SIGNATURE = ("group", "kind", "type", "size", "root", "peer")


class Change(Enum):
    """How a rank's calls differ from its earlier rounds."""

    skipped = auto()
    swapped = auto()
    other = auto()


@dataclass(frozen=True)
class Departure:
    """The first call that differs.

    Attributes:
        row: The call that was made.
        usual: The call of an earlier round that would have been due.
        is_last: Whether the rank has made no call since, so that a call that it skipped and one
            that it meant to make later look alike.
    """

    change: Change
    row: int
    usual: int
    is_last: bool


def departure(waits: Waits, process: int) -> Departure | None:
    """Where the calls of a process last began to differ from its rounds before.

    None where they do not, or where it has made too few calls to tell what a round is.
    """
    rows = waits.all_rows(process)[-_WINDOW:]
    calls = waits.job.calls
    table = np.stack([calls[name][rows].astype(np.int64) for name in _SIGNATURE])
    _, signs = np.unique(table, axis=1, return_inverse=True)
    found = _first_unlike(signs)
    if found is None:
        return None
    at, period = found
    following = signs[at + 1] if at + 1 < len(signs) else -1
    # The call before this one in the earlier round is due; the one after it has been made.
    if signs[at] == signs[at - period + 1]:
        swapped = following == signs[at - period]
        change = Change.swapped if swapped else Change.skipped
    else:
        change = Change.other
    return Departure(change, int(rows[at]), int(rows[at - period]), at == len(signs) - 1)


def _first_unlike(signs: Array) -> tuple[int, int] | None:
    """The place of the first call unlike the one a period before it, and the period.

    Of the periods that explain most of the calls before it, the shortest counts.
    """
    count = len(signs)
    for period in range(1, min(_LONGEST, count // _LEAST_ROUNDS) + 1):
        unlike = np.flatnonzero(signs[period:] != signs[:-period]) + period
        if not len(unlike):
            return None
        # The last place after which nothing differs for the rounds before the departure.
        starts = np.concatenate(([period - 1], unlike))
        lengths = np.diff(np.concatenate((starts, [count]))) - 1
        fits = np.flatnonzero(lengths[:-1] >= (_LEAST_ROUNDS - 1) * period)
        if len(fits) and _is_late(at := int(unlike[fits[-1]]), period, count):
            return at, period
        if lengths[-1] >= _LEAST_ROUNDS * period:
            return None
    return None


def _is_late(at: int, period: int, count: int) -> bool:
    """Whether a call belongs to the last round, or to the one that ended before it."""
    return at >= count - 2 * period
