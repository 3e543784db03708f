"""Every operation of the process group, held against plain PyTorch on all ranks' inputs."""

import datetime
import os
import threading

import torch
import torch.distributed as dist
import unisono.torch
from checks import (
    DEVICE,
    all_of,
    check,
    mine,
    of_rank,
    on_host,
    rank,
    run_all,
    same,
    size,
    use_device,
)

NAN = float("nan")
TYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
    torch.int16, torch.int32, torch.int64,
]  # fmt: skip


@check
def all_reduce_of_every_type_and_operation():
    for dtype in TYPES:
        for op, combine in (
            (dist.ReduceOp.SUM, lambda parts: sum(parts[1:], parts[0])),
            (dist.ReduceOp.MIN, lambda parts: torch.stack(parts).amin(0)),
            (dist.ReduceOp.MAX, lambda parts: torch.stack(parts).amax(0)),
        ):
            x = mine((7, 3), dtype)
            dist.all_reduce(x, op)
            same(x, combine(all_of((7, 3), dtype)))
    x = mine((5,))
    dist.all_reduce(x, dist.ReduceOp.PRODUCT)
    same(x, torch.stack(all_of((5,))).prod(0))
    x = mine((5,)) * size()
    dist.all_reduce(x, dist.ReduceOp.AVG)
    same(x, sum(all_of((5,))))
    x = mine((5,))
    dist.all_reduce(x, dist._make_nccl_premul_sum(2.0))
    same(x, 2 * sum(all_of((5,))))


@check
def operators_reduce_in_place_and_into_a_new_tensor():
    name = dist.group.WORLD.group_name
    operators = torch.ops.unisono
    results = {"sum": sum, "max": lambda parts: torch.stack(parts).amax(0)}
    for count in (1, 1003):
        for operation, result in results.items():
            x = mine((count,))
            same(operators.all_reduce(x, operation, name), result(all_of((count,))))
            same(x, mine((count,)))
            assert operators.all_reduce_(x, operation, name) is None
            same(x, result(all_of((count,))))
    strided = mine((30, 4)).t()
    same(operators.all_reduce(strided, "sum", name), sum(all_of((30, 4))).t())
    operators.all_reduce_(strided, "sum", name)
    same(strided, sum(all_of((30, 4))).t())
    for operator in (operators.all_reduce_, operators.all_reduce):
        said = ""
        try:
            operator(mine((3,)), "xor", name)
        except ValueError as error:
            said = str(error)
        assert "'xor'; it must be sum, avg, product, min or max" in said


@check
def bitwise_all_reduce_reduce_and_reduce_scatter():
    parts = all_of((size(), 5), torch.int32)
    for op, combine in (
        (dist.ReduceOp.BAND, torch.bitwise_and),
        (dist.ReduceOp.BOR, torch.bitwise_or),
        (dist.ReduceOp.BXOR, torch.bitwise_xor),
    ):
        expected = parts[0]
        for part in parts[1:]:
            expected = combine(expected, part)
        x = mine((size(), 5), torch.int32)
        dist.all_reduce(x, op)
        same(x, expected)
        x = mine((size(), 5), torch.int32)
        dist.reduce(x, 1, op)
        same(x, expected if rank() == 1 else mine((size(), 5), torch.int32))
        out = torch.full((5,), -1, dtype=torch.int32)
        dist.reduce_scatter_tensor(out, mine((size(), 5), torch.int32), op)
        same(out, expected[rank()])


@check
def truth_values_and_complex_numbers():
    flags = torch.zeros(size() + 1, dtype=torch.bool)
    flags[rank()] = True
    dist.all_reduce(flags)
    same(flags, torch.tensor([True] * size() + [False]))
    x = torch.complex(mine((4,)), -mine((4,)))
    dist.all_reduce(x)
    total = sum(all_of((4,)))
    same(x, torch.complex(total, -total))
    out = [torch.zeros(3, dtype=torch.complex64) for _ in range(size())]
    dist.all_gather(out, torch.full((3,), complex(rank(), 1)))
    for other, part in enumerate(out):
        same(part, torch.full((3,), complex(other, 1)))


@check
def empty_tensors_and_tensors_without_dimensions():
    x = torch.empty(0)
    dist.all_reduce(x)
    x = torch.tensor(float(rank()))
    dist.all_reduce(x)
    same(x, torch.tensor(float(sum(range(size())))))
    out = torch.empty(size())
    dist.all_gather_into_tensor(out, torch.tensor([float(rank())]))
    same(out, torch.arange(size(), dtype=torch.float32))


@check
def strided_tensors_are_sent_and_filled_in_their_own_order():
    x = mine((6, 4)).t()
    dist.all_reduce(x)
    same(x, sum(all_of((6, 4))).t())
    x = mine((6, 4))[:, 1]
    dist.broadcast(x, 1)
    same(x, of_rank(1, (6, 4))[:, 1])
    holder = torch.full((3, size(), 2), NAN)
    dist.all_gather_into_tensor(holder.transpose(0, 1), mine((3, 2)))
    same(holder.transpose(0, 1), torch.stack(all_of((3, 2))))


@check
def coalesced_operations():
    tensors = [mine((n + 1,)) for n in range(4)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for n, tensor in enumerate(tensors):
        same(tensor, sum(all_of((n + 1,))))
    tensors = [mine((n + 1,)) for n in range(3)]
    dist.all_reduce_coalesced(tensors)
    for n, tensor in enumerate(tensors):
        same(tensor, sum(all_of((n + 1,))))
    outs = [torch.full((size() * (n + 1),), NAN) for n in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for n, out in enumerate(outs):
            dist.all_gather_into_tensor(out, mine((n + 1,)))
    manager.wait()
    for n, out in enumerate(outs):
        same(out, torch.cat(all_of((n + 1,))))
    outs = [torch.full((n + 1,), NAN) for n in range(3)]
    with dist._coalescing_manager():
        for n, out in enumerate(outs):
            dist.reduce_scatter_tensor(out, mine((size() * (n + 1),)))
    for n, out in enumerate(outs):
        same(out, sum(all_of((size() * (n + 1),))).chunk(size())[rank()])
    lists = [[torch.full((n + 1,), NAN) for n in range(2)] for _ in range(size())]
    dist.all_gather_coalesced(lists, [mine((n + 1,)) for n in range(2)])
    for other in range(size()):
        for n in range(2):
            same(lists[other][n], of_rank(other, (n + 1,)))


@check
def reduce_broadcast_gather_and_scatter_at_every_root():
    for root in range(size()):
        x = mine((3, 5))
        dist.reduce(x, root)
        same(x, sum(all_of((3, 5))) if rank() == root else mine((3, 5)))
        x = mine((9,), torch.float64)
        dist.broadcast(x, root)
        same(x, of_rank(root, (9,), torch.float64))
        out = [torch.full((2, 2), NAN) for _ in range(size())] if rank() == root else None
        dist.gather(mine((2, 2)), out, root)
        if out:
            for other, part in enumerate(out):
                same(part, of_rank(other, (2, 2)))
        parts = [of_rank(root, (size(), 4))[other].clone() for other in range(size())]
        out = torch.full((4,), NAN)
        dist.scatter(out, parts if rank() == root else None, root)
        same(out, parts[rank()])


@check
def all_gather_into_lists_and_tensors():
    out = [torch.full((4, 2), NAN) for _ in range(size())]
    dist.all_gather(out, mine((4, 2)))
    for other, part in enumerate(out):
        same(part, of_rank(other, (4, 2)))
    row = torch.full((size(), 3), NAN)
    dist.all_gather(list(row.unbind()), mine((3,)))  # adjoining parts need no staging
    same(row, torch.stack(all_of((3,))))
    out = torch.full((size() * 5,), NAN)
    dist.all_gather_into_tensor(out, mine((5,)))
    same(out, torch.cat(all_of((5,))))
    out = torch.full((size() * 5,), NAN)
    part = out.narrow(0, rank() * 5, 5).copy_(mine((5,)))  # in place
    dist.all_gather_into_tensor(out, part)
    same(out, torch.cat(all_of((5,))))


@check
def reduce_scatter_of_lists_and_tensors():
    expected = sum(all_of((size(), 6)))[rank()]
    out = torch.full((6,), NAN)
    dist.reduce_scatter(out, [row.clone() for row in mine((size(), 6))])
    same(out, expected)
    out = torch.full((6,), NAN)
    dist.reduce_scatter_tensor(out, mine((size(), 6)))
    same(out, expected)


@check
def all_to_all_even_uneven_and_in_lists():
    out = torch.full((size(), 3), NAN)
    dist.all_to_all_single(out, mine((size(), 3)))
    same(out, torch.stack([of_rank(other, (size(), 3))[rank()] for other in range(size())]))
    # Rank r sends rank s r + s rows, so that some are empty.
    sends = [rank() + other for other in range(size())]
    whole = torch.cat([torch.full((n, 2), float(10 * rank() + s)) for s, n in enumerate(sends)])
    out = torch.full((sum(sends), 2), NAN)
    dist.all_to_all_single(out, whole, sends, sends)
    expected = [torch.full((n, 2), float(10 * s + rank())) for s, n in enumerate(sends)]
    same(out, torch.cat(expected))
    outs = [torch.full((n, 2), NAN) for n in sends]
    dist.all_to_all(outs, [part.clone() for part in whole.split(sends)])
    for part, right in zip(outs, expected, strict=True):
        same(part, right)


@check
@on_host
def messages_in_order_with_tags_and_from_any_source():
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    works = [dist.isend(torch.tensor([float(rank()), i]), right) for i in range(3)]
    for i in range(3):
        got = torch.full((2,), NAN)
        assert dist.recv(got, left) == left
        same(got, torch.tensor([float(left), i]))
    for work in works:
        work.wait()
    # Tags let messages overtake each other.
    works = [dist.isend(torch.full((4,), float(tag)), right, tag=tag) for tag in (5, 9)]
    for tag in (9, 5):
        got = torch.full((4,), NAN)
        dist.recv(got, left, tag=tag)
        same(got, torch.full((4,), float(tag)))
    for work in works:
        work.wait()
    if rank() == 0:
        seen = set()
        for _ in range(size() - 1):
            got = torch.full((1000,), NAN)
            source = dist.recv(got)
            same(got, torch.full((1000,), float(source)))
            seen.add(source)
        assert seen == set(range(1, size())), seen
    else:
        dist.send(torch.full((1000,), float(rank())), 0)
    dist.barrier()


@check
@on_host
def a_receive_that_names_its_source_goes_before_one_from_any():
    if rank() == 0:
        first, second = torch.zeros(1), torch.zeros(1)
        named = dist.irecv(first, 1)
        anybody = dist.irecv(second)
        dist.barrier()
        named.wait()
        anybody.wait()
        same(torch.cat([first, second]), torch.tensor([1.0, 2.0]))
    else:
        dist.barrier()
        if rank() == 1:
            dist.send(torch.tensor([1.0]), 0)
            dist.send(torch.tensor([2.0]), 0)
    dist.barrier()  # nobody's next message is for the receive from any source


@check
def large_messages_both_ways_at_once():
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    count = (3 << 18) + 5  # several slots, and a ragged one
    sent, got = torch.full((count,), float(rank())), torch.full((count,), NAN)
    operations = [dist.P2POp(dist.isend, sent, right), dist.P2POp(dist.irecv, got, left)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    same(got, torch.full((count,), float(left)))


@check
def objects():
    gathered = [None] * size()
    dist.all_gather_object(gathered, {"rank": rank(), "text": "x" * rank()})
    assert gathered == [{"rank": other, "text": "x" * other} for other in range(size())]
    told = [("it", 1), None] if rank() == 1 else [None, None]
    dist.broadcast_object_list(told, 1)
    assert told == [("it", 1), None]
    out = [None]
    dist.scatter_object_list(out, [f"to {i}" for i in range(size())] if rank() == 0 else None, 0)
    assert out == [f"to {rank()}"]
    collected = [None] * size() if rank() == 0 else None
    dist.gather_object(rank() ** 2, collected, 0)
    if collected:
        assert collected == [other**2 for other in range(size())]
    if rank() == 1:
        dist.send_object_list(["hello", 7], 0)
    if rank() == 0:
        got = [None, None]
        dist.recv_object_list(got, 1)
        assert got == ["hello", 7]


@check
def works_and_futures():
    x = mine((1000,))
    work = dist.all_reduce(x, async_op=True)
    doubled = work.get_future().then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), 2 * sum(all_of((1000,))))
    assert work.is_completed()
    assert work.wait()
    out = [torch.full((5,), NAN) for _ in range(size())]
    work = dist.all_gather(out, mine((5,)), async_op=True)
    while not work.is_completed():
        pass
    same(torch.stack(out), torch.stack(all_of((5,))))
    assert work.is_success()
    # Several at once, waited for in another order, and one that is forgotten.
    tensors = [mine((10 + n,)) for n in range(5)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    del works[2]
    for work in reversed(works):
        work.wait(datetime.timedelta(seconds=60))
    dist.barrier()
    for n, tensor in enumerate(tensors):
        same(tensor, sum(all_of((10 + n,))))


@check
def futures_complete_while_nobody_waits():
    done = threading.Event()
    dist.all_reduce(mine((10,)), async_op=True).get_future().add_done_callback(lambda _: done.set())
    assert done.wait(60)


@check
def groups_of_some_ranks_side_by_side():
    halves = [dist.new_group([r for r in range(size()) if r % 2 == half]) for half in (0, 1)]
    own = halves[rank() % 2]
    members = [r for r in range(size()) if r % 2 == rank() % 2]
    everybody = dist.new_group()
    x, y = mine((100,)), mine((100,))
    works = [dist.all_reduce(x, group=own, async_op=True),
             dist.all_reduce(y, group=everybody, async_op=True)]  # fmt: skip
    for work in reversed(works):
        work.wait()
    same(x, sum(of_rank(r, (100,)) for r in members))
    same(y, sum(all_of((100,))))
    z = mine((4,))
    dist.broadcast(z, members[-1], group=own)  # in the job's numbering
    same(z, of_rank(members[-1], (4,)))
    dist.destroy_process_group(own)
    same_name = dist.new_group([r for r in range(size()) if r % 2 == 0])
    if rank() % 2 == 0:
        dist.barrier(group=same_name)
        dist.destroy_process_group(same_name)
    dist.destroy_process_group(everybody)


@check
def groups_split_from_a_group():
    group = dist.distributed_c10d._get_default_group()
    members = [r for r in range(size()) if r % 2 == rank() % 2]
    part = group.split_group(members, group_name=f"half-{rank() % 2}")
    assert part.size() == len(members)
    x = mine((8,))
    part.allreduce([x]).wait()
    same(x, sum(of_rank(r, (8,)) for r in members))
    assert group.split_group([0], group_name="only 0") is None or rank() == 0


@check
def groups_split_by_the_standard_function():
    halves = [[r for r in range(size()) if r % 2 == half] for half in (0, 1)]
    own = halves[rank() % 2]
    half = dist.split_group(split_ranks=halves, group_desc="halves")
    assert dist.get_process_group_ranks(half) == own
    assert dist.get_backend(half) == "unisono"
    x = mine((8,))
    dist.all_reduce(x, group=half)
    same(x, sum(of_rank(r, (8,)) for r in own))
    dist.broadcast(x, own[-1], group=half)  # in the job's numbering
    last = dist.split_group(half, [[len(own) - 1]])
    assert (last is None) == (rank() != own[-1])
    if last is not None:
        assert dist.get_process_group_ranks(last) == [rank()]
        dist.destroy_process_group(last)
    dist.destroy_process_group(half)


@check
def named_plans_and_the_communicator_underneath():
    out = torch.full((size() * 3,), NAN)
    unisono.torch.all_gather_by("ring_all_gather", out, mine((3,)))
    same(out, torch.cat(all_of((3,))))
    out = torch.full((3,), NAN)
    plan = "hierarchical_recursive_direct_reduce_scatter"
    work = unisono.torch.reduce_scatter_by(plan, out, mine((size() * 3,)), async_op=True)
    work.wait()
    same(out, sum(all_of((size() * 3,))).chunk(size())[rank()])
    communicator = unisono.torch.communicator()
    assert (communicator.rank, communicator.size) == (rank(), size())
    plans = {entry["plan"] for entry in communicator.record()["collectives"]}
    assert {"ring", "hierarchical_recursive_direct"} <= plans, plans


@check
def functional_collectives_and_device_meshes():
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh

    x = functional.all_reduce(mine((6,)), "sum", dist.group.WORLD)
    same(x + 0, sum(all_of((6,))))
    x = functional.all_gather_tensor(mine((2, 3)), 0, dist.group.WORLD)
    same(x + 0, torch.cat(all_of((2, 3))))
    x = functional.reduce_scatter_tensor(mine((size(), 3)), "sum", 0, dist.group.WORLD)
    same(x + 0, sum(all_of((size(), 3)))[rank()].unsqueeze(0))
    mesh = init_device_mesh(DEVICE, (2, size() // 2), mesh_dim_names=("rows", "columns"))
    x = mine((4,))
    dist.all_reduce(x, group=mesh["columns"].get_group())
    row = rank() // (size() // 2)
    same(x, sum(of_rank(r, (4,)) for r in range(size()) if r // (size() // 2) == row))


@check
def distributed_tensors():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh(DEVICE, (size(),))
    whole = of_rank(0, (4 * size() + 1, 6))
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    same(sharded.full_tensor(), whole)
    moved = sharded.redistribute(mesh, [Shard(1)])
    same(moved.full_tensor(), whole)
    product = sharded.t() @ sharded
    same(product.redistribute(mesh, [Replicate()]).to_local(), whole.t() @ whole)


@check
def checkpoints():
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh(DEVICE, (size(),))
    whole = of_rank(0, (3 * size(), 2))
    folder = os.environ["CHECKPOINT_FOLDER"]
    state = {"x": distribute_tensor(whole, mesh, [Shard(0)]), "step": 7}
    checkpoint.save(state, checkpoint_id=folder)
    state = {"x": distribute_tensor(torch.zeros_like(whole), mesh, [Shard(0)]), "step": 0}
    checkpoint.load(state, checkpoint_id=folder)
    same(state["x"].full_tensor(), whole)
    assert state["step"] == 7


@check
def a_monitored_barrier_passes_when_all_come():
    limit = datetime.timedelta(seconds=60)
    for _ in range(3):
        unisono.torch.monitored_barrier(timeout=limit)
    dist.monitored_barrier(timeout=limit)
    dist.monitored_barrier(dist.group.WORLD, wait_all_ranks=True)
    # Other backends still have PyTorch's.
    gloo = dist.new_group(backend="gloo")
    dist.monitored_barrier(group=gloo, timeout=limit)
    dist.destroy_process_group(gloo)
    # A group with both has Unisono's, which PyTorch refuses it.
    mixed = dist.new_group(backend="cpu:gloo,cuda:unisono")
    dist.monitored_barrier(group=mixed, timeout=limit)
    dist.destroy_process_group(mixed)


if __name__ == "__main__":
    use_device()
    dist.init_process_group("unisono", timeout=datetime.timedelta(seconds=60))
    run_all()
    dist.destroy_process_group()
