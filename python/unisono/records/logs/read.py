"""Logs: NCCL's, PyTorch's, launchers', programs' and the kernel's, in any mixture in one file."""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from unisono.records.logs.c10d import read_c10d
from unisono.records.logs.events import Event, Line, What
from unisono.records.logs.kernel import read_kernel
from unisono.records.logs.launchers import Slurm, Torchrun, read_launcher
from unisono.records.logs.lines import lines_of
from unisono.records.logs.nccl import read_nccl
from unisono.records.logs.programs import Tracebacks, read_unisono_error
from unisono.records.parts import COLUMNS, Part
from unisono.records.whose import rank_in_name

__all__ = ["FORMAT", "MOST_LOG_BYTES", "is_text", "read_log"]

FORMAT = "log"
# A larger log is read at its beginning, where ranks say who they are, and at its end.
MOST_LOG_BYTES = 64 << 20
_MOST_EVENTS = 200_000
_READERS = (
    # A text that all lines of a reader have, or one of them.
    (re.compile(r" NCCL (?:INFO|WARN) "), read_nccl),
    (re.compile(r"Rank \d|pair\.cc|TCPStore\.cpp"), read_c10d),
    (re.compile(r"rank \d|RUNNING AT |return code"), read_launcher),
    (re.compile(r"\(rank \d|disagree on"), read_unisono_error),
    (re.compile(r"NVRM: Xid|ut of memory|[Ll]ink "), read_kernel),
)


def is_text(contents: bytes) -> bool:
    """Whether a file may be a log."""
    return b"\0" not in contents[:4096]


def read_log(contents: bytes, file: str) -> list[Part]:
    """What a log says: one part with its events; none where no line says anything."""
    events: list[Event] = []
    has_timed_out = False
    for event in _events(contents):
        has_timed_out = has_timed_out or event.what is What.timed_out
        # An exception after a call has timed out is no reason why it did.
        if has_timed_out and event.what is What.raised:
            event = replace(event, reason="follows")
        events.append(event)
        if len(events) == _MOST_EVENTS:
            break
    if not events:
        return []
    empty = {name: np.zeros(0, kind) for name, kind in COLUMNS.items()}
    return [Part(file, FORMAT, "", (FORMAT, 0), [], empty, [], [],
                 events=_of_one_rank(events, file))]  # fmt: skip


def _events(contents: bytes) -> Iterator[Event]:
    torchrun, slurm, tracebacks = Torchrun(), Slurm(), Tracebacks()
    for line in lines_of(contents):
        yield from torchrun.read(line)
        yield from slurm.read(line)
        # In torchrun's block, the traceback of a rank is indented, and begins in its member.
        if torchrun.rank >= 0:
            inner = replace(line, text=line.text.partition("traceback : ")[2] or line.text[2:])
            yield from tracebacks.read(inner, torchrun.rank)
        else:
            yield from tracebacks.read(line, line.rank)
        yield from _of_line(line)


def _of_line(line: Line) -> Iterator[Event]:
    for keyword, read in _READERS:
        if keyword.search(line.text):
            yield from read(line)


# A rank says these of itself.
_OWN = (What.timed_out, What.progress, What.device, What.raised, What.lost, What.network,
        What.accused, What.absent)  # fmt: skip


def _of_one_rank(events: list[Event], file: str) -> tuple[Event, ...]:
    """The events; in a file of one rank, those that do not say whose they are get that rank.

    Its lines tell the rank before its name does.
    """
    ranks = {event.rank for event in events if event.what in _OWN and event.rank >= 0}
    is_launchers = any(
        event.what in (What.ended, What.out_of_memory, What.link)
        or (event.what is What.device and event.code) for event in events
    )  # fmt: skip
    if is_launchers or len(ranks) > 1:
        return tuple(events)
    processes = {(one.host, one.process) for one in events if one.what is What.place}
    if len(processes) > 1:
        return tuple(events)
    rank = (
        next(iter(ranks)) if ranks else -1 if processes else (rank_in_name(file, needs_word=True))
    )
    return tuple(
        replace(event, rank=rank) if event.rank < 0 and event.what in _OWN else event
        for event in events
    )
