"""How far a command's simulations are, and how long the rest will take."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Self, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from unisono.cli.output import progress_console

if TYPE_CHECKING:
    from unisono.simulate import Progress

_Result = TypeVar("_Result")

_LOOK_EVERY_S = 0.1
# Where no bar is shown, as in a log: after so long, and then again as often.
_FIRST_LINE_S, _NEXT_LINE_S = 3.0, 60.0
# Less is not worth a line.
_SHORT_S = 20.0
# A shorter time says nothing about the rest.
_EVIDENCE_S = 2.0


def watch(progress: "Progress", work: Callable[[], _Result]) -> _Result:
    """Does the work in a thread of its own, and shows how far it is.

    On a terminal as a bar, which is gone at the end; elsewhere as a line of standard error, if it
    takes long.
    """
    began = time.monotonic()
    next_line = began + _FIRST_LINE_S
    with (
        ThreadPoolExecutor(1) as pool,
        Bar(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"), console=progress_console(), transient=True) as bar,
    ):  # fmt: skip
        task = bar.add_task("simulating", total=None, left="")
        future = pool.submit(work)
        try:
            while not wait([future], _LOOK_EVERY_S).done:
                now = time.monotonic()
                left = estimate(progress.done, progress.total, now - began)
                if left is None:
                    continue
                bar.update(task, completed=progress.done, total=progress.total,
                           left=f"about {duration(left)} left")  # fmt: skip
                if now < next_line or progress_console().is_terminal:
                    continue
                next_line = now + _NEXT_LINE_S
                if left >= _SHORT_S:
                    progress_console().print(describe(progress.done, progress.total, now - began))
        except BaseException:
            # Nobody waits for the result any more, but for the thread.
            progress.stop()
            raise
        return future.result()


class Counted:
    """Progress in pieces, while the block runs.

    On a terminal it is a bar, which is gone at the end; elsewhere a line of standard error, if it
    takes long.

    Args:
        what: What is done, in words.
        total: The number of pieces; 0 if it is not known.
        clock: Seconds.
    """

    def __init__(
        self, what: str, total: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._total, self._clock = what, total, clock
        self._done = 0
        self._began = clock()
        self._next_line = self._began + _FIRST_LINE_S
        self._bar = Bar(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), console=progress_console(), transient=True,
            disable=not progress_console().is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task(what, total=total or None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self) -> None:
        """A piece is done."""
        self._done += 1
        self._bar.update(self._task, advance=1)
        now = self._clock()
        if progress_console().is_terminal or now < self._next_line:
            return
        self._next_line = now + _NEXT_LINE_S
        progress_console().print(self._line(now - self._began), highlight=False, soft_wrap=True)

    def _line(self, elapsed_s: float) -> str:
        of = f" of {self._total:,}" if self._total else ""
        left = estimate(self._done, self._total, elapsed_s)
        when = "" if left is None else f"; about {duration(left)} left"
        return f"{self._what}: {self._done:,}{of} after {duration(elapsed_s)}{when}"


def estimate(done: int, total: int, elapsed_s: float) -> float | None:
    """Seconds left, if the rest takes as long as before; None where nothing can be said yet."""
    if total == 0 or done == 0 or elapsed_s < _EVIDENCE_S:
        return None
    return elapsed_s * max(total - done, 0) / done


def describe(done: int, total: int, elapsed_s: float) -> str:
    """One line for a log."""
    left = estimate(done, total, elapsed_s)
    when = "" if left is None else f"; about {duration(left)} left"
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    return (
        f"simulated {done / 1e6:,.1f} of {total / 1e6:,.1f} million steps, "
        f"{rate / 1e6:,.2f} million a second{when}"
    )


def duration(seconds: float) -> str:
    """As "40 s", "12 min" or "1 h 5 min"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
