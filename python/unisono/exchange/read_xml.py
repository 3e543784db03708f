"""MSCCL's XML becomes a plan, its thread blocks, channels and order kept."""

import json
import re
from collections import deque
from typing import Any

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.exchange.execute import Named, Place, Shape, execute
from unisono.exchange.parse_xml import parse
from unisono.exchange.schema import OPERATIONS, Algorithm, Block

__all__ = ["read_msccl_plans", "read_msccl_xml"]

_ONE_BLOCK_A_RANK = {
    "all_gather": (False, True),
    "reduce_scatter": (True, False),
    "all_to_all": (True, True),
    "gather": (False, True),
    "scatter": (True, False),
}


def read_msccl_xml(text: str, *, in_place: bool | None = None) -> native.Plan:
    """The plan of a file for MSCCL, of the older tool or of later executors.

    Args:
        text: The XML.
        in_place: Which of the two, where the file serves both; None: out of place then.

    Raises:
        MisuseError: It is no such file, or cannot be a plan; the line is in the text.
    """
    algorithm = parse(text)
    if in_place is None:
        in_place = not algorithm.out_of_place
    if not (algorithm.in_place if in_place else algorithm.out_of_place):
        place = "in place" if in_place else "out of place"
        raise MisuseError(f"the file {algorithm.name} does not serve calls {place}")
    return _plan(algorithm, in_place)


def read_msccl_plans(text: str) -> list[native.Plan]:
    """The plans of a file for MSCCL: one, or two where it serves both, out of place first.

    Args:
        text: The XML.

    Raises:
        MisuseError: It is no such file, or cannot be a plan; the line is in the text.
    """
    algorithm = parse(text)
    serves = {False: algorithm.out_of_place, True: algorithm.in_place}
    return [_plan(algorithm, in_place) for in_place, is_served in serves.items() if is_served]


def _plan(algorithm: Algorithm, in_place: bool) -> native.Plan:
    shape = _shape(algorithm, in_place)
    steps = execute(algorithm, shape)
    waits = _Waits(algorithm, steps)
    programs = []
    for rank in range(shape.ranks):
        scratch = _Scratch(shape.chunks, algorithm.gpus[rank].scratch, steps[rank])
        programs.append(
            {
                "rank": rank,
                "scratch_blocks": scratch.blocks,
                "thread_blocks": [
                    _block(algorithm.gpus[rank].blocks[number], rank, number, block, waits, scratch)
                    for number, block in enumerate(steps[rank])
                ],
            }
        )
    document = {
        "format": "unisono-plan",
        "version": 1,
        "name": re.sub(r"[^A-Za-z0-9_.+-]", "_", algorithm.name)[:200] or "msccl",
        "collective": shape.collective,
        "ranks": shape.ranks,
        "root": shape.root,
        "protocol": algorithm.protocol,
        "channels": algorithm.channels,
        "in_place": shape.in_place,
        "chunks_per_block": shape.chunks,
        "input_blocks": max(shape.inputs) // shape.chunks,
        "output_blocks": max(shape.outputs) // shape.chunks,
        "min_bytes": algorithm.min_bytes,
        "max_bytes": algorithm.max_bytes,
        "programs": programs,
    }
    return native.Plan.from_json(json.dumps(document))


def _shape(algorithm: Algorithm, in_place: bool) -> Shape:
    ranks = algorithm.ranks
    if algorithm.collective == "custom":
        most_in = max(gpu.inputs for gpu in algorithm.gpus.values())
        most_out = max(gpu.outputs for gpu in algorithm.gpus.values())
        if in_place:
            most_in = most_out = max(most_in, most_out)
        return Shape("custom", ranks, 0, 1, [most_in] * ranks, [most_out] * ranks, in_place)
    root = algorithm.root
    many_in, many_out = _ONE_BLOCK_A_RANK.get(algorithm.collective, (False, False))
    # Of gather and scatter, executors call one block the size of a call.
    is_one_block = algorithm.collective in ("gather", "scatter")
    blocks = ranks if (many_in or many_out) and not is_one_block else 1
    if algorithm.chunks % blocks:
        raise MisuseError(
            f"nchunksperloop={algorithm.chunks} of {algorithm.name} does not divide by its "
            f"{blocks} ranks, each of which has a block in {algorithm.collective}"
        )
    chunks = algorithm.chunks // blocks
    inputs = [chunks * (ranks if many_in else 1)] * ranks
    outputs = [chunks * (ranks if many_out else 1)] * ranks
    only_at_root = {"gather": outputs, "scatter": inputs}
    if not in_place:
        only_at_root |= {"broadcast": inputs, "reduce": outputs}
    if buffer := only_at_root.get(algorithm.collective):
        buffer[:] = [size if rank == root else 0 for rank, size in enumerate(buffer)]
    return Shape(algorithm.collective, ranks, root, chunks, inputs, outputs, in_place)


class _Waits:
    """What a step waits for, in steps of the plan: those that only wait are part of the next."""

    def __init__(self, algorithm: Algorithm, steps: list[list[list[Named]]]) -> None:
        self._algorithm = algorithm
        # By rank, thread block and step of the file: steps of the plan up to and with it.
        self._counts = [
            [
                self._count(algorithm.gpus[rank].blocks[number], block)
                for number, block in enumerate(blocks)
            ]
            for rank, blocks in enumerate(steps)
        ]

    @staticmethod
    def _count(block: Block, steps: list[Named]) -> list[int]:
        made = [0] * len(block.steps)
        for step in steps:
            made[step.origin[1]] += 1
        total = 0
        out = []
        for one in made:
            total += one
            out.append(total)
        return out

    def of(self, rank: int, number: int, position: int) -> list[dict[str, int]]:
        """For the first step of the plan that was made from this step of the file."""
        blocks = self._algorithm.gpus[rank].blocks
        found: dict[int, int] = {}
        pending = deque(self._own(blocks[number], position))
        seen = set(pending)
        while pending:
            other, awaited = pending.popleft()
            count = self._counts[rank][other][awaited]
            if other != number and count > 0:
                found[other] = max(found.get(other, 0), count)
            # What the awaited step itself waits for, and no step of the plan stands for.
            if blocks[other].steps[awaited].kind == "nop":
                more = [one for one in self._own(blocks[other], awaited) if one not in seen]
                seen.update(more)
                pending.extend(more)
        return [{"thread_block": other, "steps": count} for other, count in found.items()]

    @staticmethod
    def _own(block: Block, position: int) -> list[tuple[int, int]]:
        """The waits of a step, and of those before it that only wait, in their order."""
        first = position
        while first > 0 and block.steps[first - 1].kind not in OPERATIONS:
            first -= 1
        own = [step.after for step in block.steps[first : position + 1]]
        return [after for after in own if after is not None]


class _Scratch:
    """Where scratch lies: a chunk's size follows from its place in its block, so data of place s
    lies at place s of some block, and neighbours side by side."""

    def __init__(self, chunks: int, reserved: int, blocks: list[list[Named]]) -> None:
        self._chunks = chunks
        self.blocks = reserved
        used: set[int] = set()
        for steps in blocks:
            for step in steps:
                for place in (step.source, step.target):
                    if place is not None and place[0] == "scratch":
                        last = (place[2] + step.count - 1) // chunks
                        used.update(self._diagonal(place) + i * chunks for i in range(last + 1))
        order = sorted(used, key=lambda diagonal: (diagonal % chunks, diagonal))
        self._block = {diagonal: i for i, diagonal in enumerate(order)}
        if chunks > 1:
            self.blocks = len(order)
        elif order:
            self.blocks = max(reserved, order[-1])  # all are of one size, and stay where they are

    def _diagonal(self, place: Place) -> int:
        return place[1] - place[2] + self._chunks

    def location(self, place: Place) -> dict[str, Any]:
        """A place as a plan's location."""
        buffer, index, own = place
        if buffer == "scratch" and self._chunks > 1:
            index = self._block[self._diagonal(place)] * self._chunks + own
        return {"buffer": buffer, "index": index}


def _block(
    block: Block, rank: int, number: int, steps: list[Named], waits: _Waits, scratch: _Scratch
) -> dict[str, Any]:
    body: list[dict[str, Any]] = []
    last = -1
    for step in steps:
        out: dict[str, Any] = {"operation": step.operation}
        if step.source is not None:
            out["source"] = scratch.location(step.source)
        if step.target is not None:
            out["destination"] = scratch.location(step.target)
        if step.count != 1:
            out["count"] = step.count
        if step.origin[1] != last:
            last = step.origin[1]
            if after := waits.of(rank, number, last):
                out["after"] = after
        body.append(out)
    # No message and no step: nothing that a plan could say.
    peers = {"send_peer": block.send, "recv_peer": block.recv}
    return {
        "channel": block.channel,
        **{name: peer for name, peer in peers.items() if peer >= 0},
        "body": body,
    }
