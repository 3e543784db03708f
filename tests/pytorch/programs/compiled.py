"""The operators under torch.compile."""

import datetime

import torch
import torch.distributed as dist
import unisono.torch  # noqa: F401
from checks import all_of, check, mine, run_all, same, size, use_device

SHAPE = (6, 5)


def in_place(x: torch.Tensor, group: str) -> torch.Tensor:
    """What comes before and after the operator works on the same memory."""
    y = x * 2
    torch.ops.unisono.all_reduce_(y, "sum", group)
    x.add_(y)
    torch.ops.unisono.all_reduce_(x, "max", group)
    return y + 1


def functional(x: torch.Tensor, group: str) -> torch.Tensor:
    """The argument keeps its value."""
    y = torch.ops.unisono.all_reduce(x.t(), "sum", group).t()
    x.add_(1)
    return y + x


def compiled_as_eager(backend: str) -> None:
    """Both programs, twice each: the second call runs what the first has compiled."""
    group = dist.group.WORLD.group_name
    total = sum(all_of(SHAPE))
    fastest = torch.stack(all_of(SHAPE)).amax(0)
    program = torch.compile(in_place, backend=backend, fullgraph=True)
    for _ in range(2):
        x = mine(SHAPE)
        same(program(x, group), 2 * total + 1)
        same(x, fastest + 2 * total)
    program = torch.compile(functional, backend=backend, fullgraph=True)
    for _ in range(2):
        x = mine(SHAPE)
        same(program(x, group), total + mine(SHAPE) + 1)
        same(x, mine(SHAPE) + 1)


@check
def in_eager_mode():
    compiled_as_eager("eager")


@check
def by_aot_autograd():
    compiled_as_eager("aot_eager")


@check
def by_inductor():
    compiled_as_eager("inductor")


@check
def pytorch_finds_the_operators_schemas_true():
    name = dist.group.WORLD.group_name
    for operator in (torch.ops.unisono.all_reduce_, torch.ops.unisono.all_reduce):
        outcome = torch.library.opcheck(operator.default, (mine(SHAPE), "sum", name))
        assert set(outcome.values()) == {"SUCCESS"}, outcome


@check
def tensors_without_memory_pass():
    name = dist.group.WORLD.group_name
    meta = torch.empty(3, device="meta")
    torch.ops.unisono.all_reduce_(meta, "sum", name)
    assert torch.ops.unisono.all_reduce(meta, "sum", name).shape == meta.shape


@check
def exported_programs_reduce():
    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            torch.ops.unisono.all_reduce_(y, "sum", name)
            return y

    name = dist.group.WORLD.group_name
    exported = torch.export.export(Sum(), (torch.zeros(SHAPE),))
    same(exported.module()(mine(SHAPE)), sum(all_of(SHAPE)))
    assert size() > 1


if __name__ == "__main__":
    use_device()
    dist.init_process_group("unisono", timeout=datetime.timedelta(seconds=120))
    run_all()
    dist.destroy_process_group()
