"""The exceptions: one for each kind of failure, by whose fault it is.

Every text names the values and the rank. An error other than `MisuseError` is final for its
communicator: every later call raises it again.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from unisono import endings


class Error(Exception):
    """Base of all errors of unisono.

    Attributes:
        rank: The rank at fault (for a timeout: the one that was waited for), None if none is known.
        reason: What is known about that rank: "gone", "left", "no answer", "not in call", "waits",
            "mismatch", "link", "device", "aborted", "refused" or "unknown".
        finder: The rank that found it at fault, None if that is not known.
        call: The number of the finder's call that needed it, None if there is none.
    """

    def __init__(self, text: str, rank: int | None = None) -> None:
        super().__init__(text)
        self.rank = rank
        self.reason = "unknown"
        self.finder: int | None = None
        self.call: int | None = None


class MisuseError(Error, ValueError):
    """The caller's arguments or order of calls. Nothing was started; the communicator is usable."""


class ArgumentTypeError(MisuseError, TypeError):
    """An argument of a wrong type, missing or unknown, or a number that no integer here holds.

    Attributes:
        suspects: Numbers and texts of which the core has refused one; empty if the text is sure.
    """

    def __init__(self, text: str, suspects: Sequence[int | str] = ()) -> None:
        super().__init__(text)
        self.suspects = suspects


class ProgramError(MisuseError):
    """A program of the language is wrong. The text begins with the place in its source.

    The lines that the text names are a note (`__notes__`), which tracebacks show under it.

    Attributes:
        file: The source file, None where the mistake has no place.
        line: The line in it, or None.
    """

    def __init__(self, text: str, rank: int | None = None) -> None:
        super().__init__(text, rank)
        place = re.match(r"(.+?):(\d+): ", text)
        self.file = place[1] if place else None
        self.line = int(place[2]) if place else None
        if self.file is not None and self.line is not None:
            numbers = {int(one) for one in re.findall(re.escape(self.file) + r":(\d+)", text)}
            if shown := _source_lines(self.file, numbers, self.line):
                self.add_note(shown)


def _source_lines(file: str, numbers: set[int], wrong: int) -> str:
    """Lines of a source file with their numbers, the wrong one marked; empty if it is not there."""
    import linecache  # here, so that commands that meet no wrong program do not wait for it

    # A name alone would be looked for in all of sys.path.
    if file not in linecache.cache and not _is_file(file):
        return ""
    sources = {number: linecache.getline(file, number).rstrip() for number in sorted(numbers)}
    width = len(str(max(numbers)))
    return "\n".join(
        f"{'>' if number == wrong else ' '} {number:{width}} | {source}"
        for number, source in sources.items()
        if source
    )


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


class BugError(Error, RuntimeError):
    """An invariant of unisono does not hold. Please report it."""


class MachineError(Error, OSError):
    """The machine, the network or its configuration refused something."""


class PeerError(Error, ConnectionError):
    """Another rank died, or sent what it must not send; `rank` says which."""


class CollectiveTimeoutError(PeerError, TimeoutError):
    """A deadline passed. The text says what was awaited; `rank` is who did not come."""


class AbortedError(Error):
    """The communicator was aborted, here or on another rank (`rank`)."""


# These end a call because of another rank.
PEER_KINDS = (PeerError, AbortedError)


def from_native(
    kind: str,
    timed_out: bool,
    aborted: bool,
    rank: int,
    text: str,
    reason: str = "unknown",
    finder: int = -1,
    call: int = -1,
) -> Error:
    """The exception for a failure of the native core, which calls this; -1 means none."""
    kinds: dict[str, type[Error]] = {
        "misuse": MisuseError,
        "bug in unisono": BugError,
        "environment error": MachineError,
        "peer error": PeerError,
    }
    made = AbortedError if aborted else CollectiveTimeoutError if timed_out else kinds[kind]
    error = made(text, _or_none(rank))
    error.reason, error.finder, error.call = reason, _or_none(finder), _or_none(call)
    endings.note(error, error.rank, PEER_KINDS)
    return error


def _or_none(number: int) -> int | None:
    return number if number >= 0 else None
