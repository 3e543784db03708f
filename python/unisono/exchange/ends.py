"""Steps as lines of MSCCL's XML, and both ends of their messages.

A step of the file names a source and a target. One of a message's lies at the peer: a send
names the data's destination, a receive its source. Executors ignore this, other readers
hold the two ends against each other.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unisono import _unisono as native
from unisono.errors import MisuseError

__all__ = ["Line", "last_chunk", "name_both_ends"]

_SENDS = ("s", "rcs", "rrs", "rrcs")
_RECEIVES = ("r", "rcs", "rrc", "rrs", "rrcs")


@dataclass(slots=True)
class Line:
    """A step of the file.

    Attributes:
        kind: Its type, as the file says.
        source: Buffer ("i", "o", "s") and chunk.
        target: Buffer ("i", "o", "s") and chunk.
        count: Chunks.
        after: Thread block, and at first the number of steps of the plan, later the step of the
            file, that it waits for.
        awaited: Whether another step waits for it.
    """

    kind: str
    source: tuple[str, int]
    target: tuple[str, int]
    count: int
    after: tuple[int, int] | None
    awaited: bool = False


def name_both_ends(
    blocks: Sequence[Sequence[native.ThreadBlock]], files: Sequence[Sequence[list[Line]]]
) -> None:
    """Writes the peer's place into every line whose own rank has no use for it.

    Args:
        blocks: By rank, its thread blocks.
        files: By rank and thread block, the lines.

    Raises:
        MisuseError: A connection does not receive as many messages as it sends.
    """
    ends: dict[tuple[int, int, int], tuple[list[Line], list[Line]]] = defaultdict(lambda: ([], []))
    for rank, (own, written) in enumerate(zip(blocks, files, strict=True)):
        for block, lines in zip(own, written, strict=True):
            if block.send_peer >= 0:
                way = (rank, block.send_peer, block.channel)
                ends[way][0].extend(line for line in lines if line.kind in _SENDS)
            if block.recv_peer >= 0:
                way = (block.recv_peer, rank, block.channel)
                ends[way][1].extend(line for line in lines if line.kind in _RECEIVES)
    pairs: list[tuple[Line, Line]] = []
    for (sender, receiver, channel), (sends, receives) in ends.items():
        if len(sends) != len(receives):
            raise MisuseError(
                f"rank {sender} sends {len(sends)} messages to rank {receiver} on channel "
                f"{channel}, which receives {len(receives)}; `unisono plan verify` says where"
            )
        pairs += zip(sends, receives, strict=True)
    # Found before any is written: a step may be an end of two messages.
    places = [(_sent_from(one), _received_at(other)) for one, other in pairs]
    for (sent, received), (source, target) in zip(pairs, places, strict=True):
        if sent.kind in ("s", "rrs"):
            sent.target = target
        if received.kind in ("r", "rcs"):
            received.source = source


def last_chunk(blocks: Iterable[list[Line]], buffer: str) -> int:
    """The greatest chunk of a buffer that a rank's lines name; -1 if they name none."""
    ends = (
        place[1] + line.count - 1
        for lines in blocks
        for line in lines
        for place in (line.source, line.target)
        if place[0] == buffer and place[1] >= 0
    )
    return max(ends, default=-1)


def _sent_from(line: Line) -> tuple[str, int]:
    """Where what a step sends lies at its rank; of data that is only passed on, what was added."""
    return line.source if line.kind in ("s", "rrs") else line.target


def _received_at(line: Line) -> tuple[str, int]:
    """Where a step's rank stores what it receives, in the same form."""
    return line.source if line.kind == "rrs" else line.target
