"""What goes wrong with tensors on CUDA devices: the case is the argument, as in failures.py."""

import datetime
import os
import signal
import sys

import torch
import torch.distributed as dist
import unisono.torch
from checks import rank, report, size, use_device
from failures import NEVER, begin, said, stay_until_all_have_come


def bad_arguments() -> None:
    """Each is refused before anything is sent, so the group stays of use."""
    x = torch.ones(4)
    dist.all_reduce(x)
    said("sparse", lambda: dist.all_reduce(torch.eye(3).to_sparse()))
    on_cpu = torch.ones(4, device="cpu")
    said("list device", lambda: dist.all_gather([torch.ones(4), on_cpu], x))
    said("output device", lambda: dist.all_gather_into_tensor(torch.ones(8, device="cpu"), x))
    group = dist.group.WORLD
    options = dist.AllreduceCoalescedOptions()
    said("coalesced devices", lambda: group.allreduce_coalesced([x, on_cpu], options))
    other = torch.ones(4, device=f"cuda:{1 - torch.cuda.current_device()}")
    said("other device", lambda: dist.all_reduce(other))
    said("tag", lambda: dist.isend(x, 1 - rank(), tag=5))
    said("any source", lambda: dist.recv(x))
    said("batch", lambda: dist.batch_isend_irecv([
        dist.P2POp(dist.isend, x, 1 - rank()), dist.P2POp(dist.irecv, on_cpu, 1 - rank())
    ]))  # fmt: skip


def still_of_use() -> None:
    """Refused calls have left nothing behind."""
    x = torch.ones(4)
    dist.all_reduce(x)
    said("type", lambda: dist.all_gather_into_tensor(torch.ones(8).int(), x))
    dist.all_reduce(x)
    report("still of use", str(x.tolist()))


def rank_dies() -> None:
    """The last rank is killed while an operation is on the others' streams."""
    x = torch.ones(100)
    dist.all_reduce(x)
    dist.barrier()
    if rank() == size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(x, async_op=True)
    said("died", lambda: work.wait(NEVER))
    said("died before", lambda: dist.all_reduce(x))


def device_fails() -> None:
    """A kernel of the user's ends the last rank's CUDA context; the others wait for that rank."""
    x = torch.ones(100)
    dist.all_reduce(x)
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank() == size() - 1:
        x[torch.tensor([1 << 40])] = 1  # asserted in the kernel
        said("own", lambda: dist.all_reduce(x, async_op=True).wait(NEVER))
        store.wait(["reported"])  # alive as long as it is waited for
        os._exit(0)  # the context is of no use for an orderly end
    said("failed", lambda: dist.all_reduce(x, async_op=True).wait(NEVER))
    store.set("reported", "")


def rank_does_not_come() -> None:
    """The last rank calls nothing until the others have given up."""
    x = torch.ones(100)
    dist.all_reduce(x)
    dist.barrier()
    if rank() < size() - 1:
        work = dist.all_reduce(x, async_op=True)
        said("late", lambda: work.wait(NEVER))
    stay_until_all_have_come()


def aborted() -> None:
    """Rank 0 gives up in the middle of a kernel; the others are told."""
    x = torch.ones(100)
    dist.all_reduce(x)
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank() == 0:
        work = dist.all_reduce(x, async_op=True)
        dist.group.WORLD.abort()
        said("aborted", lambda: work.wait(NEVER))
        store.set("aborted", "")
    else:
        store.wait(["aborted"], NEVER)

        def two() -> None:
            for _ in range(2):
                dist.all_reduce(x, async_op=True).wait(NEVER)

        said("aborted", two)


def destroyed_while_pending() -> None:
    """Only rank 0 has started the operation."""
    x = torch.ones(100)
    dist.all_reduce(x)
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank() == 0:
        work = dist.all_reduce(x, async_op=True)
        dist.destroy_process_group()
        report("destroyed")
        said("pending", work.wait)
        store.set("reported", "")
    else:
        store.wait(["reported"])


def blocking_wait() -> None:
    """Under TORCH_NCCL_BLOCKING_WAIT, which says that the host waits."""
    x = torch.ones(4)
    torch.cuda._sleep(500_000_000)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    report("complete", str(work.is_completed()))


def timeout_of_one_wait() -> None:
    """A wait gives up, the operation goes on."""
    x = torch.ones(4)
    dist.all_reduce(x)
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank() == 0:
        work = dist.all_reduce(x, async_op=True)
        said("patience", lambda: work.wait(datetime.timedelta(milliseconds=200)))
        store.set("given up", "")
        work.wait()
    else:
        store.wait(["given up"])
        dist.all_reduce(x)
    report("then", str(x.tolist()))


def not_destroyed() -> None:
    """The program ends as it is: CUDA's driver before the group."""
    x = torch.ones(4)
    dist.all_reduce(x)
    report("left", str(x.tolist()))
    sys.exit()


if __name__ == "__main__":
    use_device()
    begin(os.environ.get("LIMIT"))
    assert unisono.torch.communicator().size == size()
    globals()[sys.argv[1]]()
    if dist.is_initialized():
        dist.destroy_process_group()
