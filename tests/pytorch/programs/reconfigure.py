"""Groups whose members change: PyTorch's reconfigure(), from 2.14 on. One rank of three dies."""

import datetime
import os

import torch
import torch.distributed as dist
import unisono
import unisono.torch
from checks import rank, report, size

LIMIT = datetime.timedelta(seconds=1000)
PLACE, PLACES = rank(), size()  # of the process, before and after its rank changes


def refusal(function, *arguments, **named) -> str:
    """The text of the error that a call raises."""
    try:
        function(*arguments, **named)
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


def handles_of(store: dist.Store, round_: str, places: list[int]) -> list[str]:
    """Those of some processes, which all call this."""
    store.set(f"{round_}/{PLACE}", dist._get_reconfigure_handle())
    return [store.get(f"{round_}/{place}").decode() for place in places]


def joining_by(handle: str) -> None:
    """Takes the place of a rank, with all that a handle says."""
    _, _, rendezvous, secret = handle.split()
    unisono.init(rank=1, world_size=2, rendezvous=rendezvous, secret=secret, bootstrap_timeout=100)


def summed() -> str:
    """What an all-reduce of every process's place gives, and the rank that it has there."""
    x = torch.full((5,), float(PLACE))
    dist.all_reduce(x)
    return f"rank {dist.get_rank()} of {dist.get_world_size()}: {x[0]:g}"


def main() -> None:
    """Three processes make a group of three, then two of them one of two."""
    dist.init_process_group("unisono", timeout=LIMIT, enable_reconfigure=True)
    store = dist.distributed_c10d._get_default_store()
    report("supported", str(dist._supports_reconfigure()))
    report("before", refusal(summed))
    report("before, asked for", refusal(unisono.torch.communicator))

    handles = handles_of(store, "first", list(reversed(range(PLACES))))
    dist._reconfigure(uuid=1, handles=handles).wait()
    report("first", summed())
    # A used handle admits no process, and each handle has a secret of its own.
    report("used", refusal(joining_by, handles[0]))
    others = dist._get_reconfigure_handle()
    report("one secret", str(handles[-1 - PLACE].split()[-1] == others.split()[-1]))
    report("same uuid", refusal(dist._reconfigure, uuid=1, handles=[others]))
    report("old handles", refusal(dist._reconfigure, uuid=2, handles=handles))
    report("foreign", refusal(dist._reconfigure, uuid=2, handles=[others, "127.0.0.1:80"]))
    report("twice", refusal(dist._reconfigure, uuid=2, handles=[others, others]))
    report("still of use", summed())

    pending = dist.all_reduce(torch.ones(5), async_op=True) if PLACE == 0 else None
    if PLACE == PLACES - 1:
        os._exit(0)
    dist.group.WORLD._start_coalescing(torch.device("cpu"))  # a batch that nobody ends
    # A set leaves the order to the backend: that of the ranks they had.
    handles = handles_of(store, "second", list(range(PLACES - 1)))
    dist._reconfigure(uuid=2, handles=set(handles)).wait()
    if pending is not None:
        report("pending", refusal(pending.wait))
    report("second", summed())

    # The last process of the group does not come, and the group has no members until it is asked
    # again.
    handles = handles_of(store, "third", list(range(PLACES - 1)))
    if PLACE == 0:
        limit = datetime.timedelta(seconds=2)
        report("late", refusal(dist._reconfigure, uuid=3, handles=handles, timeout=limit))
        report("after", refusal(summed))
        dist._reconfigure(uuid=4, handles=[dist._get_reconfigure_handle()]).wait()
        report("alone", summed())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
