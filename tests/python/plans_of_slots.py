"""Plans that need a certain number of slots in a connection."""

from unisono import plans


def exchange_of(messages: int) -> plans.Plan:
    """An all-gather of two ranks that both send so many chunks before they receive one."""
    rows = [
        "plan exchange version 1",
        "collective all_gather ranks 2",
        "protocol simple channels 1 in_place no",
        f"chunks {messages} input_blocks 1 output_blocks 2",
        "bytes 0..",
    ]
    for rank in range(2):
        own, other = rank * messages, (1 - rank) * messages
        rows += [f"rank {rank}", f"  block 0 channel 0 send {1 - rank} recv {1 - rank}"]
        rows += [f"    copy_send input[{i}] -> output[{own + i}]" for i in range(messages)]
        rows += [f"    recv -> output[{other + i}]" for i in range(messages)]
    return plans.Plan.from_text("\n".join(rows) + "\n")
