"""The rank that a file belongs to, for all formats with one file a rank."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from unisono.errors import MisuseError

Trace = TypeVar("Trace")

_NAMED = re.compile(r"(?:^|[^A-Za-z])rank[._-]?(\d{1,9})", re.IGNORECASE)
_LAST = re.compile(r"(\d{1,9})(?:\.[A-Za-z]+)*$")


def rank_of_name(path: Path, example: str) -> int:
    """The rank that a file's name states, where its contents state none.

    A number after "rank" counts, or else the last one, before any suffix.

    Args:
        path: The file.
        example: A right name, for the message.

    Raises:
        MisuseError: The name has no such number.
    """
    found = _NAMED.findall(path.name) or _LAST.findall(path.name)
    if not found:
        raise MisuseError(
            f"{path}: neither its contents nor its name say of which rank it is, as {example} does"
        )
    return int(found[-1])


def by_rank(what: str, found: Iterable[tuple[Path, int, Trace]]) -> dict[int, Trace]:
    """Traces by rank, of all ranks from 0 on.

    Args:
        what: What they are, for messages: "traces".
        found: The file, the rank and the trace of each.

    Raises:
        MisuseError: There is none, one is missing, or two are of one rank.
    """
    traces: dict[int, Trace] = {}
    files: dict[int, Path] = {}
    for path, rank, trace in found:
        if rank in files:
            raise MisuseError(f"{path} and {files[rank].name} are both {what} of rank {rank}")
        traces[rank], files[rank] = trace, path
    if not traces:
        raise MisuseError(f"there are no {what}")
    if max(traces) + 1 > len(traces):
        # A wrong number may be large.
        missing = [rank for rank in range(len(traces) + 10) if rank not in traces]
        named = ", ".join(map(str, [one for one in missing if one < max(traces)][:10]))
        raise MisuseError(f"there are no {what} of ranks {named}; the last one is {max(traces)}")
    return dict(sorted(traces.items()))
