"""Tensors that are allocated and freed while peers write to them. Ranks may share a device.

Argument: where tensors come from, "default" (whatever PYTORCH_CUDA_ALLOC_CONF says) or "pool".
"""

import contextlib
import datetime
import os
import sys

import torch
import torch.distributed as dist
import unisono.torch
from checks import check, generator, of_rank, rank, report, run_all, same, size

# Of new tensors each time, of up to some MiB a rank.
ROUNDS = 12
LARGEST = 1 << 20
# A pool is one device's.
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
POOL = unisono.torch.MemPool() if sys.argv[1] == "pool" else None


def tensors():
    """Where tensors that are made inside come from."""
    return torch.cuda.use_mem_pool(POOL) if POOL else contextlib.nullcontext()


def next_count() -> int:
    """Not mostly of whole units."""
    return int(torch.randint(1 << 18, LARGEST, (1,), generator=generator(), device="cpu"))


@check
def gathered_blocks_arrive_in_new_tensors():
    for round_ in range(ROUNDS):
        count = next_count()
        with tensors():
            own = of_rank(rank(), (count,))
            out = torch.empty(size() * count)
        dist.all_gather_into_tensor(out, own)
        torch.cuda.synchronize()
        same(out, torch.cat([of_rank(other, (count,)) for other in range(size())]))
        del own, out
        if round_ % 4 == 3:
            forget()


@check
def exchanged_blocks_arrive_anywhere_in_a_tensor():
    with tensors():
        out = torch.zeros(4 * size() * LARGEST)
    for _ in range(ROUNDS):
        count = next_count()
        first = next_count()
        got = out[first : first + size() * count]
        dist.all_to_all_single(got, of_rank(rank(), (size() * count,)))
        torch.cuda.synchronize()
        blocks = [of_rank(other, (size() * count,)) for other in range(size())]
        same(got, torch.cat([block[rank() * count :][:count] for block in blocks]))


@check
def messages_arrive_in_new_tensors():
    to, source = (rank() + 1) % size(), (rank() - 1) % size()
    for round_ in range(ROUNDS):
        shape = (next_count(),)
        with tensors():
            own = of_rank(rank(), shape)
            got = torch.empty(shape)
        messages = [dist.P2POp(dist.isend, own, to), dist.P2POp(dist.irecv, got, source)]
        for work in dist.batch_isend_irecv(messages):
            work.wait()
        torch.cuda.synchronize()
        same(got, of_rank(source, shape))
        del own, got, messages, work
        if round_ % 4 == 3:
            forget()


@check
def a_registered_tensor_is_captured_and_replayed():
    count = 1 << 20
    with tensors():
        own = torch.zeros(count)
        out = torch.empty(size() * count)
    told = unisono.torch.communicator()
    told.register_memory(out)
    assert told.memory()["registered_bytes"] >= out.numel() * out.element_size()
    dist.all_gather_into_tensor(out, own)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        dist.all_gather_into_tensor(out, own)
    for round_ in range(4):
        own.fill_(10 * round_ + rank())
        graph.replay()
        torch.cuda.synchronize()
        values = [torch.full((count,), 10.0 * round_ + other) for other in range(size())]
        same(out, torch.cat(values))


@check
def memory_was_shared():
    told = unisono.torch.communicator().memory()
    assert told["mapped_bytes"] > 0, told
    assert told["registered_bytes"] > 0, told


def forget() -> None:
    """Gives unused memory back to the driver, while no kernel of a rank waits for another's."""
    dist.barrier()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    dist.barrier()


if __name__ == "__main__":
    torch.set_default_device("cuda")
    dist.init_process_group("unisono", timeout=datetime.timedelta(seconds=60))
    run_all()
    dist.destroy_process_group()
    report("ended")
