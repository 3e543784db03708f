"""Ends processes whose daemon threads are in calls, and reports their exit statuses by way.

The processes are forked from this one, which has no group: each import of PyTorch takes seconds.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable

import torch
import torch.distributed as dist
import unisono.torch  # noqa: F401
from checks import report

STATUS = 5
PAIRS = 2


def exchange(other: int) -> None:
    """Exchanges a tensor with the other rank, in a batch."""
    send = dist.P2POp(dist.isend, torch.ones(4), other)
    receive = dist.P2POp(dist.irecv, torch.ones(4), other)
    for work in dist.batch_isend_irecv([send, receive]):
        work.wait()


# The thread does this all the time, or once: a receive that nothing is sent to waits for ever.
WAYS: dict[str, Callable[[int], object]] = {
    "all_reduce": lambda _: dist.all_reduce(torch.ones(1000)),
    "destroyed": lambda _: dist.all_reduce(torch.ones(1000)),
    "barrier": lambda _: dist.barrier(),
    "async": lambda _: dist.all_reduce(torch.ones(1000), async_op=True).wait(),
    "batch": exchange,
    "unanswered": lambda other: dist.recv(torch.ones(4), src=other),
}


def end_in_call(way: str, rank: int) -> None:
    """Ends this process while a thread of it is in calls."""
    is_in_call = threading.Event()

    def body() -> None:
        for call in range(10**9):
            if call == 20 or way == "unanswered":
                is_in_call.set()
            with contextlib.suppress(RuntimeError, ValueError):
                WAYS[way](1 - rank)

    threading.Thread(target=body, daemon=True).start()
    is_in_call.wait()
    if way == "destroyed":
        dist.destroy_process_group()
    sys.exit(STATUS)


def main() -> None:
    """Starts two ranks at a time, and so each way twice."""
    folder = sys.argv[1]
    for way in WAYS:
        children = []
        for pair in range(PAIRS):
            for rank in range(2):
                children.append(os.fork())
                if children[-1] == 0:
                    place = f"file://{folder}/{way}-{pair}"
                    dist.init_process_group("unisono", init_method=place, rank=rank, world_size=2)
                    dist.barrier()
                    end_in_call(way, rank)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        report(way, " ".join(str(status) for status in statuses))


main()
