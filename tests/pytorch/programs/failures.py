"""What goes wrong, one case for each start of the ranks: the case is the argument."""

import datetime
import os
import signal
import sys
import threading

import torch
import torch.distributed as dist
import unisono.torch
from checks import rank, report, size

# A deadline that never expires: a call that should end before hangs, and is ended from outside.
NEVER = datetime.timedelta(seconds=1000)


def begin(limit: str | None) -> None:
    """Makes the group. Its calls get a limit in seconds, if any, when all ranks are there."""
    dist.init_process_group("unisono", timeout=NEVER)
    if limit is not None:
        dist.barrier()
        limit_of_calls = datetime.timedelta(seconds=float(limit))
        dist.distributed_c10d._set_pg_timeout(limit_of_calls, dist.group.WORLD)


def stay_until_all_have_come() -> None:
    """Keeps each rank until all are here. Rank 0, which has the store, leaves last."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"here/{rank()}", "")
    store.wait([f"here/{other}" for other in range(size())], NEVER)
    store.set(f"leaves/{rank()}", "")
    if rank() == 0:
        store.wait([f"leaves/{other}" for other in range(size())], NEVER)


def said(name, call) -> None:
    """Reports the kind and the text of the exception that the call raises."""
    try:
        call()
    except (ValueError, RuntimeError, dist.DistError) as error:
        report(name, f"{type(error).__name__}: {error}")
    else:
        report(name, "nothing")


def bad_arguments() -> None:
    """Each is refused before anything is sent, so the group stays of use."""
    x = torch.ones(4)
    said("sparse", lambda: dist.all_reduce(torch.eye(3).to_sparse(), dist.ReduceOp.MAX))
    group = dist.group.WORLD
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.MAX
    said("complex max", lambda: group.allreduce([torch.ones(2, dtype=torch.complex64)], options))
    options.reduceOp = dist.ReduceOp.BAND
    said("bitwise float", lambda: group.allreduce([x], options))
    said("gather size", lambda: dist.all_gather_into_tensor(torch.ones(7), x))
    said("scatter size", lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(7)))
    said("list length", lambda: dist.all_gather([x.clone()] * 3, x))
    said("list shape", lambda: dist.all_gather([torch.ones(4), torch.ones(5)], x))
    said("list type", lambda: group.allgather([[torch.ones(4).int(), torch.ones(4)]], [x]).wait())
    said("split sizes", lambda: dist.all_to_all_single(torch.ones(4), x, [2, 2], [1, 2]))
    said("tag", lambda: dist.isend(x, 1 - rank(), tag=-3))
    # The nearest to a tensor on a GPU that every machine has: memory that is not the CPU's.
    meta = torch.empty(4, device="meta")
    plan = "ring_all_gather"
    said("device", lambda: unisono.torch.all_gather_by(plan, torch.empty(8, device="meta"), meta))
    said("parts", lambda: dist.split_group(split_ranks=[[0], [0, 1]]))
    to_nobody = dist.BroadcastOptions()
    to_nobody.rootRank = 5
    said("root", lambda: group.broadcast([x], to_nobody))
    dist.all_reduce(x)
    report("still of use", str(x.tolist()))


def mismatched_shapes() -> None:
    """The sizes differ, but not the plan."""
    said("mismatch", lambda: dist.all_reduce(torch.ones(4 + 4 * rank())))


def mismatched_calls() -> None:
    """Compared before they start, by UNISONO_CHECK_CALLS."""
    said("mismatch", lambda: dist.all_reduce(torch.ones(4 + 1000 * rank())))


def rank_dies() -> None:
    """The last rank is killed; the others wait for it."""
    dist.barrier()
    if rank() == size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    said("died", lambda: dist.all_reduce(torch.ones(100)))
    said("died before", lambda: dist.barrier())


def rank_dies_in_training() -> None:
    """The last rank is killed in the middle of a backward pass."""
    layers = torch.nn.Sequential(torch.nn.Linear(50, 50), torch.nn.Linear(50, 50))
    model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.001)
    for step in range(4):
        if step == 3 and rank() == size() - 1:
            layers[0].weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        loss = model(torch.ones(3, 50)).sum()
        if step < 3:
            loss.backward()
        else:
            said("died", loss.backward)


def others_go_on() -> None:
    """A rank is killed, perhaps the one that holds the store; the others shrink the group."""
    lost = int(os.environ["LOST"])
    dist.barrier()
    said("not failed", unisono.torch.shrink)
    said("itself", lambda: unisono.torch.shrink(excluded=[rank()]))
    if rank() == lost:
        os.kill(os.getpid(), signal.SIGKILL)
    said("died", lambda: [dist.all_reduce(torch.ones(100)) for _ in range(1000)])
    rest = unisono.torch.shrink()
    x = torch.full((4,), float(rank()))
    dist.all_reduce(x, group=rest)
    first = 1 if lost == 0 else 0
    y = torch.full((2,), float(rank()))
    dist.broadcast(y, src=first, group=rest)
    layer = torch.nn.Linear(2, 1, bias=False)
    model = torch.nn.parallel.DistributedDataParallel(layer, process_group=rest)
    model(torch.full((1, 2), float(rank()))).sum().backward()
    place = f"{dist.get_rank(rest)} of {dist.get_world_size(rest)}"
    report("rest", f"{place}: sum {x[0]:g}, first {y[0]:g}, gradient {layer.weight.grad[0, 0]:g}")
    if lost == 0:  # torch's own end waits for the store that died
        sys.stdout.flush()
        os._exit(0)


def rank_does_not_come() -> None:
    """The last rank calls nothing until the others have given up."""
    if rank() < size() - 1:
        said("late", lambda: dist.all_reduce(torch.ones(100)))
    stay_until_all_have_come()


def callback_waits_for_a_rank_that_does_not_come() -> None:
    """The last rank takes part in the first call alone, not in the one that callbacks start."""
    x, y = torch.ones(100), torch.ones(100)
    future = dist.all_reduce(x, async_op=True).get_future()
    if rank() == size() - 1:
        future.wait()
        stay_until_all_have_come()
        return

    def inner(_: torch.futures.Future) -> list[torch.Tensor]:
        return dist.all_reduce(y, async_op=True).get_future().wait()

    said("late", future.then(inner).wait)
    stay_until_all_have_come()


def destroyed_in_a_callback() -> None:
    """The group goes while one of its futures' callbacks runs, and while another one blocks."""
    go_on, sent = threading.Event(), threading.Event()
    other = 1 - rank()
    blocked = dist.irecv(torch.zeros(2), other).get_future().then(lambda _: go_on.wait(1000))
    last = dist.irecv(torch.zeros(2), other, tag=1).get_future()
    last = last.then(lambda _: sent.wait(1000) and dist.destroy_process_group())
    dist.barrier()
    dist.send(torch.ones(2), other)
    dist.send(torch.ones(2), other, tag=1)
    sent.set()
    last.wait()
    report("destroyed")
    go_on.set()
    report("blocked", str(blocked.wait()))


def monitored_barrier_without_some() -> None:
    """Ranks 1 and 2 do not come."""
    if rank() not in (1, 2):
        limit = datetime.timedelta(seconds=3)
        said("missing", lambda: dist.monitored_barrier(timeout=limit))
    stay_until_all_have_come()


def monitored_barrier_without_patience() -> None:
    """Rank 1 comes late; the barrier asks who is there now."""
    if rank() == 0:
        said("negative", lambda: dist.monitored_barrier(timeout=datetime.timedelta(seconds=-3)))
        said("missing", lambda: dist.monitored_barrier(timeout=datetime.timedelta()))
    stay_until_all_have_come()


def destroyed_while_pending() -> None:
    """Only rank 0 has started the operation."""
    store = dist.distributed_c10d._get_default_store()
    if rank() == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        dist.destroy_process_group()
        report("destroyed")
        said("pending", work.wait)
        store.set("reported", "")
    else:
        store.wait(["reported"])


def aborted() -> None:
    """Rank 0 gives up; the others are told."""
    group = dist.group.WORLD
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank() == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        group.abort()
        said("aborted", work.wait)
        store.set("aborted", "")
    else:
        store.wait(["aborted"], NEVER)
        # The first may be complete: rank 0 has done its part of it.
        said("aborted", lambda: [dist.all_reduce(torch.ones(4)) for _ in range(2)])


def timeout_of_one_wait() -> None:
    """A wait gives up, the operation goes on."""
    other = 1 - rank()
    if rank() == 0:
        got = torch.zeros(4)
        work = dist.irecv(got, other)
        said("patience", lambda: work.wait(datetime.timedelta(milliseconds=200)))
        dist.barrier()
        work.wait()
        report("then", str(got.tolist()))
    else:
        dist.barrier()
        dist.send(torch.ones(4), other)


if __name__ == "__main__":
    begin(os.environ.get("LIMIT"))
    globals()[sys.argv[1]]()
    if dist.is_initialized():
        dist.destroy_process_group()
