"""NCCL's tree on one node: its trees connect nodes, and the ranks of a node are a chain.

All channels have the same chain, where those of this library's `tree` turn from channel to channel:
the ranks in the middle send all bytes twice, up to the first rank and down from it.
"""

from functools import cache

from unisono import _unisono as native


@cache
def chain_plan(ranks: int, protocol: str, channels: int) -> native.Plan:
    """An all-reduce of 2 or more ranks: sums go up to rank 0, the result comes down, both at once.

    Primitives as Table VIII of "Demystifying NCCL", up and down in thread blocks of their own as
    NCCL's `runTreeSplit` has them in groups of threads.
    """
    text = [
        "plan chain_all_reduce version 1",
        f"collective all_reduce ranks {ranks}",
        f"protocol {protocol} channels {channels} in_place no",
        f"chunks {channels} input_blocks 1 output_blocks 1",
        "bytes 0..",
    ]
    for rank in range(ranks):
        text.append(f"rank {rank}")
        for channel in range(channels):
            text += _of_channel(rank, ranks, channel)
    return native.Plan.from_text("\n".join(text))


def _of_channel(rank: int, ranks: int, channel: int) -> list[str]:
    above, below = rank - 1, rank + 1
    if rank == 0:
        return [
            f"block {channel} channel {channel} send {below} recv {below}",
            f"recv_reduce_copy_send input[{channel}] -> output[{channel}]",
        ]
    up, down = 2 * channel, 2 * channel + 1
    if below == ranks:
        return [
            f"block {up} channel {channel} send {above}",
            f"send input[{channel}]",
            f"block {down} channel {channel} recv {above}",
            f"recv -> output[{channel}] after {up}:1",
        ]
    return [
        f"block {up} channel {channel} send {above} recv {below}",
        f"recv_reduce_send input[{channel}]",
        f"block {down} channel {channel} send {below} recv {above}",
        f"recv_copy_send -> output[{channel}] after {up}:1",
    ]
