"""Lines of NCCL (`NCCL_DEBUG=WARN` and higher): who is which rank, and whose connections end.

Such a line begins with its host, process, thread and CUDA device.
"""

import re
from collections.abc import Iterator
from typing import Any

from unisono.records.logs.events import Event, Line, What
from unisono.records.parts import MAX_RANKS

__all__ = ["read_nccl"]

_HEAD = re.compile(r"([\w.-]{1,120}):(\d{1,9}):\d{1,9} \[(\d{1,4})\] (?:\S{1,120}:\d{1,6} )?"
                   r"NCCL (?:INFO|WARN) (.*)")  # fmt: skip
_PLACE = re.compile(r"comm (?:0x)?[0-9a-f]{1,16} rank (\d{1,7}) n[Rr]anks (\d{1,7})\b(.*)")
_CARD = re.compile(r" busId ([0-9a-fA-F]{1,12})\b")
_GROUP = re.compile(r" commId (0x[0-9a-f]{1,16})\b")
# An address, and the port in angle brackets.
_END = r"(?:\[\d+\])?([^\s<]{1,200})<\d{1,5}>"
_OWN = re.compile(rf"(?:Bootstrap ?: Using|OOB) (?:\[\d+\])?[\w.-]+:{_END}")
_COMPLETION = re.compile(rf"Got completion from peer {_END} with (?:status=|error )(\d{{1,4}})")
_GIDS = re.compile(r"localGid (\S{1,60}) ")
_CLOSED = re.compile(rf"Connection closed by remote peer {_END}")
_FAILED = re.compile(rf"Call to (?:recv|send)\w* (?:from|to) {_END} failed ?: ?(.{{1,80}})")
_REFUSED = re.compile(rf"[Cc]onnect to {_END} (?:failed|returned)\W{{0,3}}(.{{1,80}})")
_CUDA = re.compile(r"Cuda failure (?:\d+ )?'([^']{1,120})'")
# Others, such as a change of the GID table, are no errors.
_ASYNC = re.compile(r"Got async (?:fatal )?event ?: ([\w ]{0,40}error)")
_VERBS = re.compile(r"Call to (ibv_\w{1,40}) failed(?: with error (.{1,60}))?")
# CUDA says these while a process ends for another reason.
_WHILE_ENDING = ("driver shutting down", "context is destroyed")


def read_nccl(line: Line) -> Iterator[Event]:
    """What a line of NCCL says."""
    head = _HEAD.search(line.text)
    if head is None:
        return
    text = head[4]
    for what, fields in _fields(text):
        yield Event(
            what, line.text[head.start() :][:300], line.number, rank=line.rank,
            local_rank=int(head[3]) if what is not What.address else -1, host=head[1],
            process=int(head[2]), **fields,
        )  # fmt: skip


def _fields(text: str) -> Iterator[tuple[What, dict[str, Any]]]:
    if found := _PLACE.search(text):
        place, size = int(found[1]), int(found[2])
        card, group = _CARD.search(found[3]), _GROUP.search(found[3])
        if place < size <= MAX_RANKS:
            yield What.place, {
                "place": place, "size": size, "card": card_of(card[1]) if card else "",
                "group": group[1] if group else "",
            }  # fmt: skip
    elif found := _OWN.search(text):
        yield What.address, {"peer": found[1]}
    elif found := _COMPLETION.search(text):
        yield What.network, {"peer": found[1], "code": int(found[2])}
        if own := _GIDS.search(text):
            yield What.address, {"peer": own[1].removeprefix("::ffff:")}
    elif found := _CLOSED.search(text):
        yield What.lost, {"peer": found[1], "reason": "closed"}
    elif found := _FAILED.search(text) or _REFUSED.search(text):
        yield What.lost, {"peer": found[1], "reason": found[2].strip()}
    elif found := _CUDA.search(text):
        if found[1] not in _WHILE_ENDING:
            yield What.device, {"reason": f"CUDA: {found[1]}"}
    elif found := _ASYNC.search(text):
        yield What.link, {"reason": found[1]}
    elif found := _VERBS.search(text):
        reason = f"{found[1]} failed" + (f" ({found[2].strip()})" if found[2] else "")
        yield What.network, {"reason": reason}


def card_of(number: str) -> str:
    """A PCI address, as the kernel writes it, of NCCL's number: 4d000 is 0000:4d:00."""
    value = int(number, 16)
    return f"{value >> 20:04x}:{value >> 12 & 0xFF:02x}:{value >> 4 & 0xFF:02x}"
