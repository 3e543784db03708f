"""What is special about tensors on CUDA devices: streams, memory that is used again, graphs."""

import datetime
import sys

import torch
import torch.distributed as dist
import unisono.torch
from checks import all_of, check, mine, rank, run_all, same, size, use_device

NAN = float("nan")
# Of new groups too, which without it wait half an hour for ranks that are out of step.
LIMIT = datetime.timedelta(seconds=90)
# Some tenths of a second on a stream.
CYCLES = 500_000_000
LARGE = 1 << 22


@check
def waiting_has_the_stream_wait_and_not_the_host():
    slept = torch.cuda.Event()
    # The first time connects, and loads each kernel, for which CUDA may wait for the device.
    for cycles in (1, CYCLES):
        x = mine((1000,))
        torch.cuda.synchronize()
        torch.cuda._sleep(cycles)
        slept.record()
        work = dist.all_reduce(x, async_op=True)
        was_pending = not work.is_completed()
        work.wait()
        slept_in_wait = slept.query()
        doubled = 2 * x
        slept_in_launch = slept.query()
        torch.cuda.synchronize()
    assert was_pending
    assert not slept_in_wait
    assert not slept_in_launch
    assert work.is_completed()
    assert work.is_success()
    same(doubled, 2 * sum(all_of((1000,))))


@check
def an_operation_waits_for_the_stream_that_is_current():
    side = torch.cuda.Stream()
    for is_async in (False, True):
        x = torch.zeros(LARGE)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(CYCLES // 10)
            x += 1
            work = dist.all_reduce(x, async_op=is_async)
            if is_async:
                work.wait()
            y = x + 0
        side.synchronize()
        same(y, torch.full((LARGE,), float(size())))


@check
def wait_with_a_limit_has_the_host_wait():
    x = mine((1000,))
    torch.cuda._sleep(CYCLES // 10)
    work = dist.all_reduce(x, async_op=True)
    work.wait(LIMIT)
    assert work.is_completed()
    same(x, sum(all_of((1000,))))


@check
def memory_is_not_used_again_while_an_operation_reads_it():
    expected = torch.cat([torch.full((LARGE,), float(other)) for other in range(size())])
    for forgets in (False, True):
        out = torch.full((size() * LARGE,), NAN)
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        # The group's stream is behind the sleep of `side`; the current one is not.
        with torch.cuda.stream(side):
            part = torch.full((LARGE,), float(rank()))
            torch.cuda._sleep(CYCLES)
            work = dist.all_gather_into_tensor(out, part, async_op=True)
            address = part.data_ptr()
            del part
            if forgets:
                del work
        with torch.cuda.stream(side):
            others = [torch.empty(LARGE) for _ in range(4)]
        assert all(other.data_ptr() != address for other in others)
        if not forgets:
            with torch.cuda.stream(side):
                work.wait()
        torch.cuda.synchronize()
        dist.barrier()
        same(out, expected)


@check
def staged_tensors_on_streams():
    holder = torch.full((LARGE, size()), NAN)
    work = dist.all_gather(list(holder.unbind(1)), mine((LARGE,)), async_op=True)
    work.wait()
    same(holder, torch.stack(all_of((LARGE,)), 1))
    x = mine((64, 32)).t()
    work = dist.all_reduce(x, async_op=True)
    del work
    dist.barrier()  # of all that is on streams
    same(x, sum(all_of((64, 32))).t())


@check
def futures_carry_their_streams():
    x = mine((LARGE,))
    torch.cuda._sleep(CYCLES // 10)
    future = dist.all_reduce(x, async_op=True).get_future()
    assert future.done()
    tripled = future.then(lambda done: 3 * done.value()[0])
    same(tripled.wait(), 3 * sum(all_of((LARGE,))))


@check
def a_barrier_waits_for_streams():
    begin = torch.cuda.Event()
    torch.cuda._sleep(CYCLES)
    begin.record()
    assert not begin.query()
    dist.barrier()
    assert begin.query()


def replay(is_async: bool, warm: bool) -> None:
    x, out = torch.zeros(5000), torch.full((size() * 5000,), NAN)

    def step() -> None:
        works = [
            dist.all_reduce(x, async_op=is_async),
            dist.all_gather_into_tensor(out, x, async_op=is_async),
        ]
        for work in works:
            if work is not None:
                work.wait()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2 if warm else 0):
            step()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for turn in range(3):
        x.copy_(mine((5000,)) + turn)
        graph.replay()
        expected = sum(all_of((5000,))) + turn * size()
        same(x, expected)
        same(out, expected.repeat(size()))
    torch.cuda.synchronize()
    dist.barrier()
    del graph


@check
def graphs_replay_with_new_data():
    for is_async in (False, True):
        replay(is_async, warm=True)


@check
def messages_and_batches():
    peer, left = (rank() + 1) % size(), (rank() - 1) % size()
    for count in (1, 1000, LARGE + 3):
        sent, got = torch.full((count,), float(rank())), torch.full((count,), NAN)
        operations = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, got, left)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        same(got, torch.full((count,), float(left)))
    for turn in range(3):
        if rank() % 2 == 0 and rank() + 1 < size():
            dist.send(torch.full((10,), float(turn)), rank() + 1)
            answer = torch.full((4, 3), NAN).t()
            dist.recv(answer, rank() + 1)
            same(answer, torch.full((3, 4), float(turn + 1)))
        elif rank() % 2 == 1:
            got = torch.full((10,), NAN)
            dist.recv(got, rank() - 1)
            same(got, torch.full((10,), float(turn)))
            dist.send(torch.full((3, 4), float(turn + 1)), rank() - 1)


@check
def objects_through_device_memory():
    group = dist.new_group(backend="cuda:unisono", timeout=LIMIT)
    gathered = [None] * size()
    dist.all_gather_object(gathered, {"rank": rank()}, group=group)
    assert gathered == [{"rank": other} for other in range(size())]
    told = ["it"] if rank() == 0 else [None]
    dist.broadcast_object_list(told, 0, group=group)
    assert told == ["it"]
    dist.barrier(group)
    assert unisono.torch.communicator(group).size == size()
    dist.destroy_process_group(group)


@check
def beside_another_library_for_the_cpu():
    group = dist.new_group(backend="cuda:unisono,cpu:gloo", timeout=LIMIT)
    for device in ("cpu", "cuda"):
        x = mine((100,)).to(device)
        dist.all_reduce(x, group=group)
        same(x, sum(all_of((100,))).to(device))
    dist.monitored_barrier(group=group, timeout=LIMIT)
    dist.destroy_process_group(group)


@check
def groups_of_some_ranks():
    everybody = list(range(size()))
    halves = [everybody[::2], everybody[1::2]]
    groups = [dist.new_group(half, LIMIT) for half in halves if half]
    own = dist.split_group(split_ranks=[half for half in halves if half])
    for group in (groups[rank() % 2], own):
        x = mine((100,))
        dist.all_reduce(x, group=group)
        same(x, sum(all_of((100,))[rank() % 2 :: 2]))
        assert group.bound_device_id == dist.group.WORLD.bound_device_id
    assert unisono.torch.communicator().device == torch.cuda.current_device()


@check
def several_groups_on_several_streams():
    groups = [dist.new_group(timeout=LIMIT) for _ in range(3)]
    tensors = [mine((1000 * (n + 1),)) for n in range(12)]
    works = [
        dist.all_reduce(tensor, group=groups[n % 3], async_op=True)
        for n, tensor in enumerate(tensors)
    ]
    for work in reversed(works):
        work.wait()
    for n, tensor in enumerate(tensors):
        same(tensor, sum(all_of((1000 * (n + 1),))))


if __name__ == "__main__":
    own = use_device()
    dist.init_process_group(
        "unisono", timeout=LIMIT, device_id=own if sys.argv[1] == "bound" else None
    )
    run_all()
    dist.destroy_process_group()
