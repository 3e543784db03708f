"""What programs for Gloo and NCCL rely on: names, types and words of errors, sparse sums."""

import datetime
import threading
from collections.abc import Callable

# Above the import of unisono.torch.
from torch.distributed import monitored_barrier, split_group

# isort: split
import torch
import torch.distributed as dist
import unisono.torch
from checks import check, mine, rank, run_all, same, size
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LIMIT = datetime.timedelta(seconds=60)
SHORT = datetime.timedelta(seconds=1)


def said(kind: type[Exception], call: Callable[[], object]) -> str:
    """The text of the exception of this kind that the call raises."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def own_job(timeout: datetime.timedelta = LIMIT) -> dist.ProcessGroup:
    """A group whose failure ends no other."""
    options = unisono.torch.Options(max_sms=4)
    return dist.new_group(timeout=timeout, pg_options=options)


@check
def names_that_were_imported_before_serve_unisono_too():
    monitored_barrier()
    group = split_group(split_ranks=[list(range(size()))])
    x = mine((3,))
    dist.all_reduce(x, group=group)
    assert monitored_barrier is dist.monitored_barrier
    assert split_group is dist.split_group
    assert dist.monitored_barrier.__wrapped__.__name__ == "monitored_barrier"
    gloo = dist.new_group(backend="gloo")
    monitored_barrier(gloo)
    dist.destroy_process_group(group)


@check
def outputs_whose_elements_overlap_are_refused_before_the_call():
    other = 1 - rank()
    overlapping = [
        torch.zeros(1).expand(4),
        torch.zeros(3, 1).expand(3, 2),
        torch.zeros(8).as_strided((3, 3), (1, 1)),
        torch.zeros(9).as_strided((3, 2), (2, 4)),
    ]
    for x in overlapping:
        before = x.clone()
        for call in (
            lambda x=x: dist.all_reduce(x),
            lambda x=x: dist.broadcast(x, 0),
            lambda x=x: dist.recv(x, other),
            lambda x=x: dist.all_gather([x] * size(), torch.ones(x.shape)),
            lambda x=x: dist.all_to_all([x] * size(), [torch.ones(x.shape)] * size()),
        ):
            assert "of which elements overlap" in said(ValueError, call)
        same(x.clone(), before)
    interleaved = torch.zeros(8).as_strided((3, 2), (2, 3))
    interleaved.fill_(rank() + 1)
    dist.all_reduce(interleaved)
    same(interleaved.clone(), torch.full((3, 2), size() * (size() + 1) / 2))
    # An input may overlap, and one tensor may be several outputs.
    got = torch.zeros(4)
    dist.all_gather([got] * size(), torch.ones(1).expand(4))
    same(got, torch.ones(4))


def rows(*counts: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """This rank's sparse rows of three, as an embedding's gradient: so many elements."""
    count = counts[rank() % len(counts)]
    numbers = torch.Generator().manual_seed(rank())
    indices = torch.randint(0, 50, (1, count), generator=numbers)
    values = torch.randint(-3, 4, (count, 3), generator=numbers).to(dtype)
    return torch.sparse_coo_tensor(indices, values, (50, 3))


def summed_by_gloo(tensor: torch.Tensor) -> torch.Tensor:
    """What Gloo's all-reduce makes of it."""
    out = tensor.clone()
    dist.all_reduce(out, group=gloo_group())
    return out


_gloo: list[dist.ProcessGroup] = []


def gloo_group() -> dist.ProcessGroup:
    """One group of Gloo for all checks."""
    if not _gloo:
        _gloo.append(dist.new_group(backend="gloo"))
    return _gloo[0]


@check
def sparse_tensors_are_summed_as_by_gloo():
    cases = [
        rows(7, 4),
        rows(40, 0),
        rows(0),
        rows(200),  # not coalesced
        rows(5, dtype=torch.float64),
        rows(9, dtype=torch.int32),
        rows(3, 8, dtype=torch.bfloat16),
        torch.eye(5).mul(rank() + 1).to_sparse(),
        torch.arange(24.0).reshape(2, 3, 4).mul(rank()).to_sparse(2),
    ]
    for tensor in cases:
        expected = summed_by_gloo(tensor)
        for is_async in (False, True):
            got = tensor.clone()
            work = dist.all_reduce(got, async_op=is_async)
            if is_async:
                (result,) = work.get_future().wait()
                same(result.to_dense(), expected.to_dense())
            same(got.to_dense(), expected.to_dense())


@check
def sparse_tensors_that_differ_are_refused_on_every_rank():
    shapes = torch.sparse_coo_tensor(torch.zeros(1, 1).long(), torch.ones(1), (5 + rank(),))
    text = said(ValueError, lambda: dist.all_reduce(shapes))
    assert f"Float of shape [{5 + rank()}]" in text, text
    assert "must be alike on all ranks" in text, text
    text = said(ValueError, lambda: dist.all_reduce(rows(3), dist.ReduceOp.MAX))
    assert "sparse tensors can only be summed" in text, text
    x = rows(3)
    dist.all_reduce(x)


@check
def ddp_trains_a_sparse_embedding_as_over_gloo():
    def weights(group: dist.ProcessGroup | None) -> torch.Tensor:
        torch.manual_seed(5)
        model = nn.Sequential(nn.Embedding(30, 4, sparse=True), nn.Linear(4, 2))
        ddp = DistributedDataParallel(model, process_group=group)
        optimizer = torch.optim.SGD(ddp.parameters(), 0.5)
        torch.manual_seed(rank())
        for _ in range(5):
            optimizer.zero_grad()
            ddp(torch.randint(0, 30, (6,))).square().sum().backward()
            optimizer.step()
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    got, expected = weights(None), weights(gloo_group())
    if size() == 2:  # a sum of two numbers has one value
        same(got, expected)
    torch.testing.assert_close(got, expected)


@check
def time_limits_are_runtime_errors_that_say_timed_out():
    group = own_job()
    dist.barrier(group)
    if rank() == 0:
        waits = dist.irecv(torch.zeros(2), 1, group)
        dist.distributed_c10d._set_pg_timeout(SHORT, group)
        patience = datetime.timedelta(milliseconds=50)
        for text in (
            said(RuntimeError, lambda: waits.wait(patience)),
            said(RuntimeError, lambda: dist.all_reduce(torch.ones(3), group=group)),
        ):
            assert "Timed out waiting" in text, text
            assert "timeout" in text, text
    dist.barrier()
    barrier_group = own_job()
    if rank() == 0:
        text = said(RuntimeError, lambda: dist.monitored_barrier(barrier_group, SHORT))
        assert "failed to pass monitoredBarrier in 1000 ms" in text, text
    dist.barrier()


@check
def a_group_that_its_user_aborted_says_so():
    group = own_job()
    dist.barrier(group)
    backend = group._get_backend(torch.device("cpu"))
    errors = torch._C._distributed_c10d.ErrorType
    assert backend.get_error() == errors.SUCCESS
    pending = dist.irecv(torch.zeros(2), (rank() + 1) % size(), group)
    group.abort()
    assert backend.get_error() == errors.COMM_ERROR, backend.get_error()
    for call in (pending.wait, lambda: dist.all_reduce(torch.ones(3), group=group)):
        assert "aborted" in said(dist.DistBackendError, call)
    assert backend.get_error() == errors.COMM_ERROR
    dist.destroy_process_group(group)
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("unisono", timeout=LIMIT)
    run_all()
    dist.destroy_process_group()
    assert threading.active_count() == 1
