"""Rails of a netbed that are cut, and come back, while a program runs on it."""

import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from unisono.errors import MisuseError

_SYNTAX = re.compile(
    r"(?P<rail>\d+)@(?P<start>\d+(?:\.\d+)?)(?:-(?P<end>\d+(?:\.\d+)?))?(?P<silent>:silent)?"
)


@dataclass(frozen=True)
class Cut:
    """One rail of all nodes is cut for a time.

    Attributes:
        start: Seconds after the beginning, which the user of `CutSchedule` defines.
        end: When the rail is back; None for never.
        silent: The links stay up and every packet vanishes at the switch. Otherwise the nodes'
            interfaces lose their carrier.
    """

    rail: int
    start: float
    end: float | None = None
    silent: bool = False

    def describe(self) -> str:
        """For a person."""
        return f"rail {self.rail} at {self.start:g} s"


def parse_cut(text: str, rails: int) -> Cut:
    """Reads "1@5" (rail 1 after 5 s), "1@5-8" (back after 8 s), and either with ":silent"."""
    found = _SYNTAX.fullmatch(text)
    if not found:
        raise MisuseError(
            f"cannot read '{text}' as a cut; write rail@seconds, as in 1@5, 1@5-8 or 1@5:silent"
        )
    cut = Cut(
        int(found["rail"]),
        float(found["start"]),
        float(found["end"]) if found["end"] else None,
        bool(found["silent"]),
    )
    if cut.rail >= rails:
        raise MisuseError(f"'{text}' cuts rail {cut.rail}; the rails are 0 to {rails - 1}")
    if cut.end is not None and cut.end <= cut.start:
        raise MisuseError(f"'{text}' ends before it begins")
    return cut


class Rails(Protocol):
    """What can be cut: a `Netbed`."""

    def cut(self, rail: int, *, silent: bool) -> None:
        """Cuts a rail of all nodes."""

    def restore(self, rail: int) -> None:
        """Undoes it."""


class CutSchedule:
    """A thread that cuts rails at their times after `begin`, for as long as the block lasts.

    The end of the block raises what a cut failed with.
    """

    def __init__(self, rails: Rails | None, cuts: Sequence[Cut]) -> None:
        self._rails = rails
        self._missed = list(cuts)
        events = [(cut.start, cut, False) for cut in self._missed]
        events += [(cut.end, cut, True) for cut in self._missed if cut.end is not None]
        self._events = sorted(events, key=lambda event: event[0])
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._began = 0.0
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="cuts of rails")

    def __enter__(self) -> Self:
        if self._events:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._events:
            return
        self._ended.set()
        self._begun.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def begin(self) -> None:
        """Times count from the first call on."""
        if not self._begun.is_set():
            self._began = time.monotonic()
            self._begun.set()

    @property
    def missed(self) -> list[Cut]:
        """Cuts whose time has not come yet."""
        return list(self._missed)

    def _run(self) -> None:
        self._begun.wait()
        for seconds, cut, is_back in self._events:
            if self._ended.wait(max(0.0, self._began + seconds - time.monotonic())):
                return
            try:
                self._apply(cut, is_back)
            except Exception as error:
                self._failure = error
                return

    def _apply(self, cut: Cut, is_back: bool) -> None:
        assert self._rails is not None
        if is_back:
            self._rails.restore(cut.rail)
            return
        self._rails.cut(cut.rail, silent=cut.silent)
        self._missed.remove(cut)
