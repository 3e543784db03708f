"""MSCCL's XML as data: what a file says, before anything is made of it."""

from dataclasses import dataclass, field

__all__ = ["COLLECTIVES", "OPERATIONS", "PROTOCOLS", "Algorithm", "Block", "Gpu", "Step"]

# What each type of step is called in plans; "nop" only waits.
OPERATIONS = {
    "s": "send",
    "r": "recv",
    "cpy": "copy",
    "re": "reduce",
    "rcs": "recv_copy_send",
    "rrc": "recv_reduce_copy",
    "rrs": "recv_reduce_send",
    "rrcs": "recv_reduce_copy_send",
}

COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "reduce_scatter": "reduce_scatter",  # as microsoft/msccl spells it
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "custom": "custom",
}

PROTOCOLS = {"Simple": "simple", "LL": "ll", "LL128": "ll128"}


@dataclass(slots=True)
class Step:
    """A step: what it does, with which chunks, and which step of the rank it waits for.

    Attributes:
        kind: Its type, as the file says.
        source: Buffer ("i", "o", "s") and chunk; None where the type has none.
        target: Buffer ("i", "o", "s") and chunk; None where the type has none.
        count: Chunks.
        after: Thread block and step that it waits for.
        is_awaited: Whether the file says that another step waits for it: only then do executors
            post the flag.
        line: In the file.
    """

    kind: str
    source: tuple[str, int]
    target: tuple[str, int]
    count: int
    after: tuple[int, int] | None
    is_awaited: bool
    line: int


@dataclass(slots=True)
class Block:
    """A thread block."""

    send: int
    recv: int
    channel: int
    line: int
    steps: list[Step] = field(default_factory=list)


@dataclass(slots=True)
class Gpu:
    """A rank, and how many chunks of each buffer its steps may name."""

    inputs: int
    outputs: int
    scratch: int
    blocks: dict[int, Block] = field(default_factory=dict)


@dataclass(slots=True)
class Algorithm:
    """A file."""

    name: str
    protocol: str
    channels: int
    chunks: int
    ranks: int
    collective: str
    in_place: bool
    out_of_place: bool
    min_bytes: int
    max_bytes: int
    root: int
    gpus: dict[int, Gpu] = field(default_factory=dict)
