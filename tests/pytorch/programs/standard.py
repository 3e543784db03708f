"""What PyTorch asks a backend besides its operations: names, numbers, profiles, other processes."""

import datetime
import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import unisono.torch
from checks import all_of, check, mine, of_rank, rank, run_all, same, size

CPU = torch.device("cpu")


def destroy_connected(gloo: dist.ProcessGroup) -> None:
    """Destroys a group of Gloo's, which fails on ranks that still connect when another closes."""
    dist.barrier()
    dist.destroy_process_group(gloo)


@check
def names_options_and_timeouts_of_a_group():
    group = dist.group.WORLD
    backend = group._get_backend(CPU)
    assert (group.name(), backend.name(), dist.get_backend()) == ("unisono",) * 3
    options = backend.options
    assert options.backend == "unisono"
    assert options.global_ranks_in_group == list(range(size()))
    limit = datetime.timedelta(seconds=77)
    dist.distributed_c10d._set_pg_timeout(limit, group)
    assert backend.options._timeout == limit
    wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    assert wrapped._get_ddp_logging_data()["backend_name"] == "unisono"
    gloo = dist.new_group(backend="gloo")
    assert gloo.name() == gloo._get_backend_name() == "gloo"
    destroy_connected(gloo)


@check
def sequence_numbers_count_a_groups_collectives():
    group = dist.new_group()
    backend = group._get_backend(CPU)
    assert group._get_sequence_number_for_group() == 0
    dist.all_reduce(mine((3,)), group=group)
    work = dist.all_reduce(mine((3,)), group=group, async_op=True)
    work.wait()
    # Messages are between two ranks, so that they cannot count for all.
    if rank() < 2:
        other = 1 - rank()
        works = [dist.isend(mine((3,)), other, group), dist.irecv(torch.zeros(3), other, group)]
        for message in works:
            message.wait()
    dist.barrier(group)
    assert group._get_sequence_number_for_group() == 3
    assert backend._get_sequence_number_for_group() == 3
    gloo = dist.new_group(backend="gloo")
    assert gloo._get_sequence_number_for_group() >= 0
    destroy_connected(gloo)
    dist.destroy_process_group(group)


@check
def the_profiler_shows_calls_their_shapes_and_their_group():
    from torch.profiler import ProfilerActivity, profile

    group = dist.new_group(group_desc="profiled")
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        dist.all_reduce(mine((3, 4)), group=group)
        dist.all_reduce(mine((5,)), group=group, async_op=True).wait()
        dist.all_gather([torch.zeros(2) for _ in range(size())], mine((2,)), group=group)
        dist.all_gather_into_tensor(torch.zeros(size() * 7), mine((7,)), group=group)
        dist.broadcast(mine((6,)), 0, group=group)
        dist.barrier(group)
        if rank() == 0:
            dist.send(mine((8,)), 1, group)
        elif rank() == 1:
            dist.recv(torch.zeros(8), 0, group)
    shown = [(event.name, event.input_shapes) for event in profiled.events()]
    expected = [
        ("unisono:all_reduce", [[3, 4]]),
        ("unisono:all_reduce", [[5]]),
        ("unisono:all_gather", [[2]]),
        ("unisono:all_gather_into_tensor", [[7]]),
        ("unisono:broadcast", [[6]]),
        ("unisono:barrier", []),
    ]
    messages = {0: ("unisono:send", [[8]]), 1: ("unisono:recv", [[8]])}
    expected += [messages[rank()]] if rank() in messages else []
    assert [event for event in shown if event[0].startswith("unisono:")] == expected, shown
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiled.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    named = [event["args"] for event in events if event["name"] == "record_param_comms"]
    assert [mark["Collective name"] for mark in named] == [
        name.removeprefix("unisono:") for name, _ in expected
    ], named
    assert {mark["Process Group Description"] for mark in named} == {"profiled"}
    assert (named[0]["In msg nelems"], named[0]["Group size"]) == (12, size())
    dist.destroy_process_group(group)


@check
def sharded_tensors_are_gathered_and_kept_in_checkpoints():
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec

    places = [f"rank:{other}/cpu" for other in range(size())]
    spec = ChunkShardingSpec(dim=0, placements=places)
    whole = of_rank(0, (2 * size(), 3))

    def sharded(tensor: torch.Tensor) -> sharded_tensor.ShardedTensor:
        out = sharded_tensor.zeros(spec, tensor.shape)
        out.local_shards()[0].tensor.copy_(tensor.chunk(size())[rank()])
        return out

    def gathered(tensor: sharded_tensor.ShardedTensor) -> torch.Tensor:
        out = torch.zeros(whole.shape, dtype=tensor.dtype) if rank() == 0 else None
        tensor.gather(0, out)
        told = [out]
        dist.broadcast_object_list(told, 0)
        return told[0]

    tensor = sharded(whole)
    same(gathered(tensor), whole)
    assert tensor.device == CPU
    same(gathered(tensor.to(torch.float64)), whole.double())
    folder = os.environ["CHECKPOINT_FOLDER"]
    checkpoint.save({"x": tensor}, checkpoint_id=folder)
    loaded = {"x": sharded(torch.zeros_like(whole))}
    checkpoint.load(loaded, checkpoint_id=folder)
    same(gathered(loaded["x"]), whole)
    # Some ranks may have no shard.
    lonely = ChunkShardingSpec(dim=0, placements=places[:1])
    tensor = sharded_tensor.ones(lonely, (4, 3))
    assert tensor.device == CPU
    assert tensor.to(torch.float64).dtype == torch.float64


class Numbers(torch.utils.data.Dataset):
    """Items that name the process that made them."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, os.getpid()


@check
def a_data_loader_forks_workers_beside_a_live_group():
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=2, num_workers=2, multiprocessing_context="fork"
    )
    pending = [dist.all_reduce(mine((10,)), async_op=True).get_future() for _ in range(3)]
    for _ in range(2):  # workers end after each round, and take nothing of the group with them
        seen, makers = [], set()
        for indices, processes in loader:
            x = mine((100,))
            dist.all_reduce(x)
            same(x, sum(all_of((100,))))
            seen += indices.tolist()
            makers.update(processes.tolist())
        assert sorted(seen) == list(range(8))
        assert os.getpid() not in makers
    for future in pending:
        same(future.wait()[0], sum(all_of((10,))))


@check
def groups_share_the_connections_of_the_default_group():
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def made(count: int) -> list[dist.ProcessGroup]:
        groups = [dist.new_group() for _ in range(count)]
        for group in groups:
            x = mine((100,))
            dist.all_reduce(x, group=group)
            same(x, sum(all_of((100,))))
        return groups

    def destroyed(groups: list[dist.ProcessGroup]) -> None:
        while groups:
            dist.destroy_process_group(groups.pop())

    destroyed(made(1))  # what the first one opens for all
    before = descriptors()
    groups = made(10)
    taken = descriptors() - before
    limit = 6 * (size() - 1) / 3  # so many for 4 ranks on a node, whose connections count most
    assert taken <= 10 * max(limit, 3), taken
    destroyed(groups)
    assert descriptors() <= before, (descriptors(), before)
    # One that asks for something else has its own, and works.
    own = dist.new_group(pg_options=unisono.torch.Options(max_sms=4))
    x = mine((100,))
    dist.all_reduce(x, group=own)
    same(x, sum(all_of((100,))))
    dist.destroy_process_group(own)


@check
def a_group_of_some_ranks_names_those_that_do_not_come():
    said = ""
    if rank() == 0:
        try:
            dist.new_group(
                [0, 1], timeout=datetime.timedelta(seconds=1), use_local_synchronization=True
            )
        except dist.DistStoreError as error:
            said = str(error)
        assert "these have not come: 1" in said, said
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("unisono", timeout=datetime.timedelta(seconds=60))
    run_all()
    dist.destroy_process_group()
