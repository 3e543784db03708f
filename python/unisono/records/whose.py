"""Which rank a file is of, where only its name says it."""

import re
from pathlib import PurePath

from unisono.records.parts import MAX_RANKS

__all__ = ["rank_in_name", "without_compression"]

_NAMED = re.compile(r"(?<![a-z])rank[_.=-]{0,2}(\d{1,7})(?!\d)", re.IGNORECASE)
_LAST = re.compile(r"(?<!\d)(\d{1,7})(?:\.[A-Za-z]+)*$")
_COMPRESSED = (".gz", ".zst")


def without_compression(file: str) -> str:
    """The name of what a compressed file holds."""
    for ending in _COMPRESSED:
        file = file.removesuffix(ending)
    return file


def rank_in_name(file: str, *, needs_word: bool = False) -> int:
    """The rank that a path names; -1 if it names none.

    The number after the word rank, in the file's name or a folder's, counts before the number that
    ends the name: a name may have its host and its date, too. With `needs_word`, only the former
    counts.
    """
    path = PurePath(without_compression(file))
    for part in (path.name, *reversed(path.parts[:-1])):
        if named := _NAMED.findall(part):
            return int(named[-1]) if int(named[-1]) < MAX_RANKS else -1
    found = None if needs_word else _LAST.search(path.name)
    return int(found[1]) if found and int(found[1]) < MAX_RANKS else -1
