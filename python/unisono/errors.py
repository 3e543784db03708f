"""The exceptions: one for each kind of failure, by whose fault it is.

Every text names the values and the rank. An error other than `MisuseError` is final for its
communicator: every later call raises it again.
"""

import re
from collections.abc import Sequence


class Error(Exception):
    """Base of all errors of unisono.

    Attributes:
        rank: The rank at fault (for a timeout: the one that was waited for), None if none is known.
    """

    def __init__(self, text: str, rank: int | None = None) -> None:
        super().__init__(text)
        self.rank = rank


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

    Attributes:
        file: The source file, None where the mistake has no place.
        line: The line in it, or None.
    """

    def __init__(self, text: str, rank: int | None = None) -> None:
        super().__init__(text, rank)
        place = re.match(r"(.+?):(\d+): ", text)
        self.file = place[1] if place else None
        self.line = int(place[2]) if place else None


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


def from_native(kind: str, timed_out: bool, aborted: bool, rank: int, text: str) -> Error:
    """The exception for a failure of the native core, which calls this; rank -1 means none."""
    at_fault = rank if rank >= 0 else None
    if aborted:
        return AbortedError(text, at_fault)
    if timed_out:
        return CollectiveTimeoutError(text, at_fault)
    kinds: dict[str, type[Error]] = {
        "misuse": MisuseError,
        "bug in unisono": BugError,
        "environment error": MachineError,
        "peer error": PeerError,
    }
    return kinds[kind](text, at_fault)
