"""The lines of a log, and the prefixes that launchers put before the lines of a rank."""

import re
from collections.abc import Iterator, Sequence

from unisono.records.logs.events import Line
from unisono.records.parts import MAX_RANKS

__all__ = ["MOST_LINE", "lines_of"]

# A progress bar without an end may be megabytes long; texts of errors are not.
MOST_LINE = 4096
_SAMPLE = 2000
_ENDS = re.compile(rb"[\r\n]+")
_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
# Ray and collectors of logs put a name, a process or a time before all of these, and PyTorch's
# prefix follows.
_COLLECTED = re.compile(r".{0,80}?[ |)](?=\[rank\d{1,7}\]:)")
# PyTorch writes [rank3]:, torchrun [default3]:, Open MPI [1,3]<stderr>:, unisono run and MPICH [3],
# and srun 3:.
_RANK = re.compile(r"\[rank(\d{1,7})\]:? ?")
_LOCAL = re.compile(r"\[default(\d{1,7})\]:? ?")
_MPI = re.compile(r"\[\d{1,9},(\d{1,7})\](?:<std\w{3}>)?: ?")
_BARE = re.compile(r"\[(\d{1,7})\] |\s{0,8}(\d{1,7}): ")


def lines_of(contents: bytes) -> Iterator[Line]:
    """The lines, cut to `MOST_LINE` bytes, without their colours and prefixes."""
    raw = _ENDS.split(contents)
    takes_bare = _bare_are_ranks(raw[:_SAMPLE])
    for number, one in enumerate(raw):
        if one:
            text = one[:MOST_LINE].decode("utf-8", "replace")
            if "\x1b" in text:
                text = _COLOURS.sub("", text)
            yield _without_prefixes(number + 1, text, takes_bare)


def _bare_are_ranks(sample: Sequence[bytes]) -> bool:
    """Whether numbers that lines begin with are ranks; a number that no two lines share is not."""
    found = [one[0] for line in sample
             if (one := _BARE.match(line[:32].decode("utf-8", "replace")))]  # fmt: skip
    return len(found) < 3 or len(set(found)) < len(found)


def _without_prefixes(number: int, text: str, takes_bare: bool) -> Line:
    rank = local = -1
    if found := _COLLECTED.match(text):
        text = text[found.end() :]
    for _ in range(4):
        if found := _RANK.match(text) or _MPI.match(text):
            rank = int(found[1])
        elif found := _LOCAL.match(text):
            local = int(found[1])
        elif found := _BARE.match(text):
            if takes_bare and rank < 0:
                rank = int(found[1] or found[2])
        else:
            break
        text = text[found.end() :]
    return Line(number, text, rank if rank < MAX_RANKS else -1, local)
