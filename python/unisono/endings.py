"""Which rank failed first: what ranks note for their launcher, and what it concludes.

The order in which ranks end does not say it: those that only suffer from a failure may end before
the rank that caused it. So a rank notes in its launcher's folder that an error of unisono names
another rank, and a rank that failed without such a note failed by itself.
"""

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import unquote, urlsplit

__all__ = ["FOLDER_PREFIX", "Cause", "Ending", "blamed_by", "find_cause", "note", "noted",
           "withdraw"]  # fmt: skip

# The name of a launcher's folder begins so. A rendezvous elsewhere is not a launcher's.
FOLDER_PREFIX = "unisono-job-"

_hooked = False
_is_final = False


@dataclass(frozen=True)
class Ending:
    """How a rank failed: its exit code, or minus its signal; `look` counts up with time."""

    code: int
    look: int


@dataclass(frozen=True)
class Cause:
    """Why a job failed.

    Attributes:
        rank: The rank that failed first.
        witness: The failed rank whose ending is the job's: the same one, unless that one had not
            failed when others gave up on it.
    """

    rank: int
    witness: int


def note(error: BaseException, rank: int | None, kinds: tuple[type[BaseException], ...]) -> None:
    """Notes that an error names another rank, for a launcher that may watch this process.

    An exception of another kind that ends the program withdraws the note.
    """
    own = os.environ.get("UNISONO_RANK", "")
    path = _note_path(own)
    if path is None or _is_final or not isinstance(error, kinds) or str(rank) == own:
        return
    # The launcher may read at any time.
    with contextlib.suppress(OSError):
        with open(f"{path}.new", "w") as file:  # noqa: PTH123 (in a rank, pathlib may be new)
            file.write("" if rank is None else str(rank))
        os.replace(f"{path}.new", path)  # noqa: PTH105
    _hook(kinds)


def withdraw() -> None:
    """Takes the note back: the job goes on, or ends for another reason."""
    if (path := _note_path(os.environ.get("UNISONO_RANK", ""))) is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108


def noted() -> bool:
    """Whether this process's note is there."""
    path = _note_path(os.environ.get("UNISONO_RANK", ""))
    return path is not None and os.path.exists(path)  # noqa: PTH110


def blamed_by(folder: str, rank: int) -> tuple[int | None] | None:
    """The rank that a rank's note names, which may be unknown; None if there is no note."""
    with contextlib.suppress(OSError, ValueError), open(_name(folder, rank)) as file:  # noqa: PTH123
        text = file.read(20)
        return (int(text) if text else None,)
    return None


def find_cause(
    failed: Mapping[int, Ending],
    notes: Mapping[int, tuple[int | None]],
    unended: Collection[int] = (),
) -> Cause:
    """The rank that failed first, of at least one that failed.

    Args:
        failed: The ranks that failed without having been told to end.
        notes: The ranks that had an error which names another one.
        unended: The ranks that had not ended when the first failure was seen, nor soon after.
    """

    def order(rank: int) -> tuple[int, int]:
        # In one look, a rank that was killed is the cause of the others' errors.
        return failed[rank].look, failed[rank].code

    votes = Counter(notes[rank][0] for rank in failed if rank in notes)
    own = [rank for rank in failed if rank not in notes]
    if own:
        first = min(own, key=lambda rank: (-votes[rank], order(rank)))
        return Cause(first, first)
    witness = min(failed, key=order)
    named = [(count, rank) for rank, count in votes.items() if rank in failed or rank in unended]
    most = max((count for count, _ in named), default=0)
    leading = [rank for count, rank in named if count == most and rank is not None]
    if len(leading) != 1:
        return Cause(witness, witness)
    return Cause(leading[0], leading[0] if leading[0] in failed else witness)


def _name(folder: str, rank: int | str) -> str:
    return f"{folder}/blames-{rank}"


def _note_path(own: str) -> str | None:
    address = urlsplit(os.environ.get("UNISONO_RENDEZVOUS", ""))
    folder = os.path.dirname(unquote(address.path))  # noqa: PTH120
    launched = os.path.basename(folder).startswith(FOLDER_PREFIX)  # noqa: PTH119
    return _name(folder, own) if launched and address.scheme == "file" and own.isdigit() else None


def _hook(kinds: tuple[type[BaseException], ...]) -> None:
    global _hooked
    if _hooked:
        return
    _hooked = True
    before = sys.excepthook

    def see(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _is_final
        if not _stems_from(error, kinds):
            withdraw()
            _is_final = True
        before(kind, error, trace)

    sys.excepthook = see


def _stems_from(error: BaseException | None, kinds: tuple[type[BaseException], ...]) -> bool:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kinds):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False
