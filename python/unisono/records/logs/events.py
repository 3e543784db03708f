"""What lines of logs say, in one form for all programs that write them."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Event", "Line", "What"]


class What(StrEnum):
    """What a line says."""

    place = "place"  # a process is a rank of a communicator
    address = "address"  # a host has an address, `peer`
    timed_out = "timed out"  # a call of a rank has lasted for its timeout
    progress = "progress"  # the last calls that a rank has enqueued and completed
    device = "device"  # a GPU, or CUDA on a rank, reports an error
    out_of_memory = "out of memory"  # the kernel has killed a process for its memory
    ended = "ended"  # a launcher says how a rank's process ended
    raised = "raised"  # an exception of a rank's program
    lost = "lost"  # a connection to `peer` has ended or cannot be made
    network = "network"  # a network card reports an error of a message to or from `peer`
    link = "link"  # a port of a network card of the host is down, or reports an error
    accused = "accused"  # the rank's library names `peers` at fault
    absent = "absent"  # the rank names `peers` that did not come to a call
    differs = "differs"  # the call of a rank, where calls of ranks differ


@dataclass(frozen=True)
class Line:
    """A line without the prefixes that launchers put before it.

    Attributes:
        rank: The rank in the prefix; -1 if there is none.
        local_rank: The rank on its host in the prefix; -1 if there is none.
    """

    number: int
    text: str
    rank: int = -1
    local_rank: int = -1


@dataclass(frozen=True)
class Event:
    """What one line says. What it does not say is empty, -1, or 0 where that is no value.

    Attributes:
        text: The line, cut.
        rank: The rank in the job that it is about.
        process: The number of its process.
        card: The PCI address of its GPU, in lower case, such as 0000:4d:00.
        group: The communicator.
        place: The rank in it.
        size: Its number of ranks.
        call: The kind of call, in lower case, such as allreduce.
        number: The call's number in its group.
        enqueued: The number of the last call that the rank has enqueued; completed: completed.
        code: An exit code, minus a signal, an Xid, or a status of a network card.
        peer: The address or host of the other side.
        peers: Ranks that the line names.
        reason: Why, in the reader's words; of calls that differ, the rest of the call.
        is_first: A launcher says that this rank failed before all others.
    """

    what: What
    text: str
    line: int
    rank: int = -1
    local_rank: int = -1
    host: str = ""
    process: int = 0
    card: str = ""
    group: str = ""
    place: int = -1
    size: int = 0
    call: str = ""
    number: int = -1
    elements: int = -1
    timeout_ms: int = 0
    enqueued: int = -1
    completed: int = -1
    code: int = 0
    peer: str = ""
    peers: tuple[int, ...] = ()
    reason: str = ""
    is_first: bool = False
