"""A one-sided plan becomes an execution plan of MSCCL++, version 0.9 of its schema.

Ranks reach each other's memory through memory channels: every direction of a connection of the plan
is one. A thread block that waits for another one of its rank becomes a semaphore between the two.
"""

import json
from typing import Any

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.exchange.write_xml import collective_for

__all__ = ["write_mscclpp_json"]

_BUFFERS = {"input": "i", "output": "o", "scratch": "s"}
_MAX_CHANNELS = 16  # of a thread block
_MAX_SOURCES = 8  # of one reduction
_MAX_BARRIERS = 16
_MEMORY = "memory"

Way = tuple[int, int, int]  # sender, receiver, channel of the plan


def write_mscclpp_json(plan: native.Plan, executor: native.ForeignExecutor) -> str:
    """The JSON of a plan whose ranks exchange data by put, signal, wait and read_reduce alone.

    Args:
        plan: The plan.
        executor: "mscclpp".

    Raises:
        MisuseError: A step is two-sided, or a limit is exceeded; rank, thread block and value are
            in the text.
    """
    collective = collective_for(plan, executor)
    executor.check(plan)
    if plan.protocol != "simple":
        raise MisuseError(
            f"plan {plan.name} has protocol {plan.protocol}; packets of MSCCL++ need steps of "
            "their own, so simple alone is written"
        )
    ways = _ways(plan)
    document = {
        "name": plan.name,
        "collective": collective,
        "protocol": "Simple",
        "inplace": plan.in_place,
        "reuse_resources": False,
        "gpus": [_Gpu(plan, executor, rank, ways).document() for rank in range(plan.ranks)],
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "min_message_size": plan.min_bytes,
        "max_message_size": plan.max_bytes or 2**64 - 1,
    }
    return json.dumps(document, indent=1) + "\n"


def _ways(plan: native.Plan) -> dict[int, list[Way]]:
    """By rank, its channels in an order that both ends derive alike."""
    ways: set[Way] = set()
    for rank in range(plan.ranks):
        for block in plan.thread_blocks(rank):
            if block.send_peer >= 0:
                ways.add((rank, block.send_peer, block.channel))
            if block.recv_peer >= 0:
                ways.add((block.recv_peer, rank, block.channel))
    return {rank: sorted(way for way in ways if rank in way[:2]) for rank in range(plan.ranks)}


class _Gpu:
    """A rank's part of the document."""

    def __init__(
        self,
        plan: native.Plan,
        executor: native.ForeignExecutor,
        rank: int,
        ways: dict[int, list[Way]],
    ) -> None:
        self._plan = plan
        self._executor = executor
        self._rank = rank
        self._ways = ways[rank]
        self._blocks = plan.thread_blocks(rank)
        self._remote: dict[tuple[int, str], int] = {}  # rank and buffer: number
        # Pairs of thread blocks, the second waiting for the first: semaphores by number.
        self._semaphores: dict[tuple[int, int], int] = {}
        # By thread block: semaphores that are released after so many steps.
        self._releases: list[dict[int, list[int]]] = [{} for _ in self._blocks]
        self._acquires = self._plan_semaphores()

    def document(self) -> dict[str, Any]:
        """The rank as the schema has it."""
        chunks = self._plan.chunks_per_block
        ranks = range(self._plan.ranks)
        blocks = [self._block(number) for number in range(len(self._blocks))]
        peers = [way[1] if way[0] == self._rank else way[0] for way in self._ways]
        return {
            "id": self._rank,
            # The executor divides by both, on ranks without input or output, too.
            "input_chunks": max(map(self._plan.input_blocks, ranks)) * chunks,
            "output_chunks": max(map(self._plan.output_blocks, ranks)) * chunks,
            "scratch_chunks": self._plan.scratch_blocks(self._rank) * chunks,
            "threadblocks": blocks,
            "channels": [{"channel_type": _MEMORY, "connected_to": peers}] if peers else [],
            "remote_buffers": [
                {"rank": peer, "type": _BUFFERS[buffer], "access_channel_types": [_MEMORY]}
                for peer, buffer in self._remote
            ],
            "semaphores": [{"init_value": 0} for _ in self._semaphores],
        }

    def _wrong(self, what: str) -> MisuseError:
        return MisuseError(f"plan {self._plan.name}, rank {self._rank}: {what}")

    def _plan_semaphores(self) -> list[dict[int, list[int]]]:
        """By thread block and step: what is acquired before. Both ends keep one order."""
        acquires: list[dict[int, list[int]]] = [{} for _ in self._blocks]
        for number, block in enumerate(self._blocks):
            known: dict[int, int] = {}
            for step in block.steps:
                for other, steps in step.after:
                    if steps <= known.get(other, 0):
                        continue
                    known[other] = steps
                    pair = (other, number)
                    semaphore = self._semaphores.setdefault(pair, len(self._semaphores))
                    acquires[number].setdefault(step.number, []).append(semaphore)
                    self._releases[other].setdefault(steps, []).append(semaphore)
        if len(self._semaphores) > self._executor.max_semaphores:
            raise self._wrong(
                f"{len(self._semaphores)} pairs of thread blocks wait for each other; "
                f"{self._executor.name} has {self._executor.max_semaphores} semaphores"
            )
        return acquires

    def _block(self, number: int) -> dict[str, Any]:
        block = self._blocks[number]
        own_ways = [
            self._ways.index(way)
            for way in (
                (self._rank, block.send_peer, block.channel),
                (block.recv_peer, self._rank, block.channel),
            )
            if way in self._ways
        ]
        remote: list[int] = []
        ops: list[dict[str, Any]] = []
        barriers = 0
        for step in block.steps:
            ops += [
                {"name": "sem_acquire", "semaphore_ids": [one]}
                for one in self._acquires[number].get(step.number, [])
            ]
            if step.operation == "barrier":
                ops.append(self._barrier(barriers))
                barriers += 1
            else:
                ops.append(self._operation(step, block, own_ways, remote))
            ops += [
                {"name": "sem_release", "semaphore_ids": [one]}
                for one in self._releases[number].get(step.number + 1, [])
            ]
        if len(ops) > self._executor.max_steps:
            raise self._wrong(
                f"thread block {number} has {len(ops)} operations; {self._executor.name} runs at "
                f"most {self._executor.max_steps}"
            )
        return {
            "id": number,
            "ops": ops,
            "channels": [{"channel_type": _MEMORY, "channel_ids": own_ways}] if own_ways else [],
            "remote_buffer_refs": [{"access_channel_type": _MEMORY, "remote_buffer_ids": remote}]
            if remote
            else [],
        }

    def _barrier(self, number: int) -> dict[str, Any]:
        if number >= _MAX_BARRIERS:
            raise self._wrong(f"more than {_MAX_BARRIERS} barriers")
        return {"name": "barrier", "barrier_id": number, "num_threadblocks": len(self._blocks)}

    def _operation(
        self, step: native.Step, block: native.ThreadBlock, ways: list[int], remote: list[int]
    ) -> dict[str, Any]:
        def local(location: native.Location | None) -> dict[str, Any]:
            assert location is not None
            return {"type": _BUFFERS[location.buffer], "index": location.chunk, "size": step.count}

        def far(peer: int, location: native.Location | None) -> dict[str, Any]:
            assert location is not None
            key = (peer, location.buffer)
            buffer = self._remote.setdefault(key, len(self._remote))
            if buffer not in remote:
                remote.append(buffer)
            return {
                "buffer_id": remote.index(buffer), "index": location.chunk, "size": step.count
            }  # fmt: skip

        match step.operation:
            case "signal" | "wait":
                sends = step.operation == "signal"
                way = (
                    (self._rank, block.send_peer, block.channel)
                    if sends
                    else (block.recv_peer, self._rank, block.channel)
                )
                channel = ways.index(self._ways.index(way))
                return {
                    "name": step.operation, "channel_ids": [channel], "channel_type": _MEMORY
                }  # fmt: skip
            case "put":
                return {
                    "name": "put",
                    "src_buff": [local(step.source)],
                    "dst_buff": [far(block.send_peer, step.destination)],
                    "channel_type": _MEMORY,
                }
            case "read_reduce":
                if len(step.peers) > _MAX_SOURCES:
                    raise self._wrong(
                        f"a read_reduce of {len(step.peers)} ranks; {self._executor.name} reads "
                        f"{_MAX_SOURCES} at most"
                    )
                return {
                    "name": "rre",
                    "src_buff": [
                        local(step.destination),
                        *(far(peer, step.source) for peer in step.peers),
                    ],
                    "dst_buff": [local(step.destination)],
                    "channel_type": _MEMORY,
                    "reduce_op": "sum",
                }
            case "reduce":
                return {
                    "name": "re",
                    "src_buff": [local(step.destination), local(step.source)],
                    "dst_buff": [local(step.destination)],
                    "reduce_op": "sum",
                }
        return {
            "name": "copy", "src_buff": [local(step.source)], "dst_buff": [local(step.destination)]
        }  # fmt: skip
