"""Lines of PyTorch's process groups: the watchdog's, monitored barriers and calls that differ."""

import re
from collections.abc import Iterator
from math import prod

from unisono.records.logs.events import Event, Line, What

__all__ = ["read_c10d"]

_MOST_ELEMENTS = 1 << 62
# [Rank 7], [PG 0 (default_pg) Rank 7], [PG ID 2 PG GUID 5(tensor) Rank 1]
_WHO = re.compile(r"\[(?:PG (?:ID )?(\w{1,40})(?: PG GUID ([^\s(]{1,80}))?\s?"
                  r"(?:\(([^)]{0,80})\))?\s)?Rank (\d{1,7})\]")  # fmt: skip
_TIMED_OUT = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d{1,19}), "
    r"OpType=(\w{1,40})(?:, TensorShape=\[([\d, ]{0,80})\])?(?:, NumelIn=(\d{1,20}))?"
    r"(?:, NumelOut=\d{1,20})?, Timeout\(ms\)=(\d{1,12})\)")  # fmt: skip
_PROGRESS = re.compile(r"last enqueued (?:NCCL )?work: (-?\d{1,19}), "
                       r"last completed (?:NCCL )?work: (-?\d{1,19})", re.IGNORECASE)  # fmt: skip
_AT_WORK = re.compile(r"at (?:NCCL )?work(?: sequence id)?: (\d{1,19})")
_CUDA = re.compile(r"terminated with exception: (CUDA error: [^\n]{1,120})")
_BARRIER = re.compile(r"\[Rank (\d{1,7})\]: Ranks? ([\d, ]{1,2000}) failed to pass "
                      r"monitoredBarrier in (\d{1,12}) ms")  # fmt: skip
_DIFFER = "Detected mismatch between collectives on ranks"
_PRINT = re.compile(r"Rank (\d{1,7}) is running collective: CollectiveFingerPrint\("
                    r"SequenceNumber=(\d{1,19}),? ?OpType=(\w{1,40})"
                    r"(?:, TensorShape=\[([\d, ]{0,200})\])?")  # fmt: skip
_GLOO = re.compile(r"gloo/transport/\w+/pair\.cc:\d+\] ?(?:Connection closed by peer|"
                   r"(?:Read|Write|writev?|readv?) error) ?\[([^\]]{1,80})\]:\d+")  # fmt: skip
_STORE = re.compile(r"TCPStore\.cpp.{0,40}(?:recvValue|sendBytes)\w* failed on "
                    r"SocketImpl\(.{0,200}?remote=\[([^\]]{1,120})\]")  # fmt: skip


def read_c10d(line: Line) -> Iterator[Event]:
    """What a line of PyTorch's process groups says."""
    text, shown = line.text, line.text[:300]
    if found := _BARRIER.search(text):
        peers = tuple(int(one) for one in re.findall(r"\d{1,7}", found[2]))
        yield Event(What.absent, shown, line.number, rank=_rank(line, int(found[1])), peers=peers,
                    call="monitored barrier", timeout_ms=int(found[3]))  # fmt: skip
    elif _DIFFER in text:
        for found in _PRINT.finditer(text):
            yield Event(What.differs, shown, line.number, rank=int(found[1]), call=found[3].lower(),
                        number=int(found[2]), elements=_elements(found[4]))  # fmt: skip
    elif found := _GLOO.search(text):
        yield Event(What.lost, shown, line.number, rank=line.rank, peer=found[1], reason="closed")
    elif found := _STORE.search(text):
        yield Event(What.lost, shown, line.number, rank=line.rank, peer=found[1], reason="store")
    elif who := _WHO.search(text):
        yield from _of_group(line, who)


def _of_group(line: Line, who: re.Match[str]) -> Iterator[Event]:
    text, shown, place = line.text, line.text[who.start() :][:300], int(who[4])
    group, is_default = _group(who)
    rank = _rank(line, place if is_default else -1)
    if found := _TIMED_OUT.search(text):
        elements = int(found[4]) if found[4] else _elements(found[3])
        # A batch has no size of its own, which is written as the largest number.
        elements = elements if elements <= _MOST_ELEMENTS else -1
        yield Event(What.timed_out, shown, line.number, rank=rank, group=group, place=place,
                    number=int(found[1]), call=found[2].lower(), elements=elements,
                    timeout_ms=int(found[5]))  # fmt: skip
    elif found := _PROGRESS.search(text):
        at = _AT_WORK.search(text)
        yield Event(What.progress, shown, line.number, rank=rank, group=group, place=place,
                    enqueued=int(found[1]), completed=int(found[2]),
                    number=int(at[1]) if at else -1)  # fmt: skip
    elif found := _CUDA.search(text):
        yield Event(What.device, shown, line.number, rank=rank, reason=found[1].strip())


def _group(who: re.Match[str]) -> tuple[str, bool]:
    """What the doctor calls a group, empty where the line names none, and if it has all ranks."""
    if who[1] is None:
        return "", True
    name, description = who[2] or who[1], who[3] or ""
    if description == "default_pg" or (not description and who[1] == "0"):
        return "default_pg", True
    return f"{name} ({description})" if description not in ("", "undefined") else name, False


def _rank(line: Line, place: int) -> int:
    return line.rank if line.rank >= 0 else place


def _elements(shape: str | None) -> int:
    if shape is None:
        return -1
    return min(prod(int(one) for one in re.findall(r"\d{1,12}", shape)), _MOST_ELEMENTS)
