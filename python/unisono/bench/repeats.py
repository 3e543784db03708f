"""How many calls a repeat has: so many that the unequal starts of its ranks do not count.

A barrier ends at different times on different ranks, on slow links by as much as a message takes.
A repeat that lasts 20 times as long as a barrier has at most a twentieth of that in its time.
"""

import math
from collections.abc import Sequence

# How many times as long as a barrier a repeat lasts.
BARRIERS = 20
# A repeat is so long at least that reading the clock does not count.
REPEAT_SECONDS = 0.002
MAX_REPEATS = 9
# A repeat has more calls only where a barrier takes longer than a hundredth of REPEAT_SECONDS.
USUAL_CALLS = 1000
MAX_CALLS = 20_000
# A call that takes so many barriers is not timed again before its repeats.
_CERTAIN_BARRIERS = 100
_LEAST_SECONDS = 1e-7
# A repeat that takes so many times the median was disturbed by something else.
_OUTLIER = 1.5


def repeat_seconds(barrier_seconds: float) -> float:
    """How long a repeat must last at least."""
    return max(REPEAT_SECONDS, BARRIERS * barrier_seconds)


def fitting_calls(seconds: float, call_seconds: float, most: int = MAX_CALLS) -> int:
    """Calls that last so long together, from 1 to `most`."""
    # The quotient of two times that were rounded may be just above a whole number.
    return min(most, max(1, math.ceil(seconds / max(call_seconds, _LEAST_SECONDS) - 1e-9)))


def plan_repeats(
    call_seconds: float, budget_seconds: float, iterations: int = 0, barrier_seconds: float = 0.0
) -> tuple[int, int]:
    """Repeats, and calls in each.

    Args:
        call_seconds: What a call takes.
        budget_seconds: How long all repeats may last, unless one takes longer.
        iterations: Calls in all repeats; 0 takes as many as fit the budget.
        barrier_seconds: What a barrier takes.
    """
    needed = fitting_calls(BARRIERS * barrier_seconds, call_seconds)
    if iterations > 0:
        repeats = min(MAX_REPEATS, iterations // min(iterations, needed))
        # So few repeats can have all the calls between them.
        while repeats < MAX_REPEATS and iterations % repeats:
            repeats -= 1
        return repeats, iterations // repeats
    calls = max(needed, fitting_calls(REPEAT_SECONDS, call_seconds, USUAL_CALLS))
    repeats = int(budget_seconds / (calls * max(call_seconds, _LEAST_SECONDS)))
    return min(MAX_REPEATS, max(1, repeats)), calls


def count_outliers(seconds: Sequence[float], median: float) -> int:
    """Repeats that took much longer than the median of all."""
    return sum(one > _OUTLIER * median for one in seconds)


def must_guess_again(row_seconds: float, calls: int, barrier_seconds: float) -> bool:
    """Whether a row of calls was too short to say what one of them takes."""
    if calls == 1:
        return row_seconds < _CERTAIN_BARRIERS * barrier_seconds
    return row_seconds < repeat_seconds(barrier_seconds) / 2


def skew_seconds(single_seconds: float, call_seconds: float, calls: int) -> float:
    """What the ranks' unequal starts added to a call timed alone.

    Args:
        single_seconds: The time of a repeat of one call.
        call_seconds: The time of a call in a repeat of `calls`.
        calls: More than 1.
    """
    return max(0.0, single_seconds - call_seconds) * calls / (calls - 1)
