"""Training a transformer whose communication overlaps with its computation, over NCCL and Unisono.

    NCCL_NVLS_ENABLE=0 torchrun --nproc-per-node 2 bench/gpu/training.py --max-sms 16 --json OUT
    unisono run -n 2 --preload-nccl bench/gpu/training.py --backend-nccl preloaded

The same model, in bf16, is trained data-parallel by DDP and by FSDP2: over PyTorch's backend nccl,
which is what is preloaded if something is, over unisono, and with each --max-sms over unisono with
so many thread blocks at most. All are in the same processes, start from the same weights, read the
same batches and take turns. Times are medians over rounds of the slowest rank's mean step:

    step        milliseconds
    exposed     what a step takes more than without any communication
    no calls    DDP's own step, whose hook gives each bucket back as it is: no library is faster
    speed       the step of the backend nccl / this one's
    loss        of the last step, and how far it is from that over the backend nccl
"""

import argparse
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import unisono.torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch_report import finish, slowest

HEADS = 16
WORDS = 4096
STEPS = 3  # in a turn
ROUNDS = 8  # the first is not counted


class Block(nn.Module):
    """Attention and a feed-forward layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Of [batch, length, width], the same."""
        parts = self.attention(self.before(x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Model(nn.Module):
    """A decoder without anything that a benchmark does not need."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.scores = nn.Linear(width, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        """Scores of what comes next, [batch, length, words]."""
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.scores(x)


@dataclass(frozen=True)
class Row:
    """One kind of training over one library."""

    kind: str
    library: str
    step_ms: float
    alone_ms: float
    first_ms: float
    loss: float
    first_loss: float

    def __str__(self) -> str:
        exposed, speed = self.step_ms - self.alone_ms, self.first_ms / self.step_ms
        return (
            f"{self.kind:5} {self.library:18} {self.step_ms:8.2f} {exposed:8.2f} {speed:6.3f}"
            f" {self.loss:8.4f} {self.loss - self.first_loss:9.1e}"
        )


HEAD = (
    f"{'kind':5} {'library':18} {'step ms':>8} {'exposed':>8} {'speed':>6} {'loss':>8} {'apart':>9}"
)


class Run:
    """A model, its optimizer, and its place in the data."""

    def __init__(self, model: nn.Module, shape: tuple[int, int]) -> None:
        self.model, self._shape = model, shape
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
        self._data = torch.Generator("cuda").manual_seed(1 + dist.get_rank())
        self.times_ms: list[float] = []
        self.loss = torch.zeros(())

    def turn(self) -> None:
        """Makes some steps, and keeps what one took."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        dist.barrier()
        begin.record()
        batch, length = self._shape
        for _ in range(STEPS):
            words = torch.randint(WORDS, (batch, length + 1), device="cuda", generator=self._data)
            scores = self.model(words[:, :-1])
            self.loss = functional.cross_entropy(
                scores.flatten(0, 1).float(), words[:, 1:].flatten()
            )
            self.loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
        end.record()
        torch.cuda.synchronize()
        self.times_ms.append(begin.elapsed_time(end) / STEPS)


def make_ddp(model: Model, group: dist.ProcessGroup) -> nn.Module:
    """All gradients are summed, in buckets, while others are being computed."""
    return DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)


def make_silent_ddp(model: Model, group: dist.ProcessGroup) -> nn.Module:
    """DDP that calls no collective for a bucket."""

    def give_back(_: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    made = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
    made.register_comm_hook(None, give_back)
    return made


def make_fsdp(model: Model, group: dist.ProcessGroup) -> nn.Module:
    """Each layer is gathered before it is needed, its gradient scattered after."""
    mesh = DeviceMesh.from_group(group, "cuda")
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


KINDS: dict[str, Callable[[Model, dist.ProcessGroup], nn.Module]] = {
    "ddp": make_ddp,
    "fsdp": make_fsdp,
}


def measure(
    kind: str, groups: dict[str, dist.ProcessGroup], arguments: argparse.Namespace
) -> list[Row]:
    """All libraries in turn, and the model without any."""

    def fresh() -> Model:
        torch.manual_seed(0)
        with torch.device("cuda"):
            return Model(arguments.layers, arguments.width).bfloat16()

    shape = arguments.batch, arguments.length
    runs = {name: Run(KINDS[kind](fresh(), group), shape) for name, group in groups.items()}
    if kind == "ddp":
        runs["no calls"] = Run(make_silent_ddp(fresh(), groups["Unisono"]), shape)
    alone = Run(fresh(), shape)
    for _ in range(ROUNDS):
        for run in (*runs.values(), alone):
            run.turn()

    def milliseconds(run: Run) -> float:
        return statistics.median(slowest(run.times_ms[1:], groups["Unisono"]))

    alone_ms = milliseconds(alone)
    first = runs[arguments.backend_nccl]
    first_ms, first_loss = milliseconds(first), float(first.loss.detach())
    return [
        Row(
            *(kind, name, milliseconds(run), alone_ms),
            *(first_ms, float(run.loss.detach()), first_loss),
        )
        for name, run in runs.items()
    ]


def main() -> None:
    """Measures both kinds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--max-sms", type=int, action="append", default=[], help="once for each")
    parser.add_argument("--kind", choices=KINDS, help="that alone")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=4, help="of a rank")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--backend-nccl", default="NCCL", help="what the backend nccl is called")
    arguments = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("nccl", device_id=device)
    groups = {
        arguments.backend_nccl: dist.group.WORLD,
        "Unisono": dist.new_group(backend="unisono"),
    }
    for most in arguments.max_sms:
        groups[f"Unisono, {most} SMs"] = dist.new_group(
            backend="unisono", pg_options=unisono.torch.Options(max_sms=most)
        )
    rows: list[Row] = []
    for kind in [arguments.kind] if arguments.kind else KINDS:
        rows += measure(kind, groups, arguments)
        torch.cuda.empty_cache()
        if dist.get_rank() == 0:
            print("\n".join(str(row) for row in rows if row.kind == kind), flush=True)
    if dist.get_rank() == 0:
        alone = ", ".join(
            f"{row.alone_ms:.2f} ms ({row.kind})"
            for row in rows
            if row.library == arguments.backend_nccl
        )
        subject = (
            f"{arguments.layers} layers of width {arguments.width}, {arguments.batch} x"
            f" {arguments.length} words a rank; a step without communication: {alone}"
        )
        finish(subject, "\n".join([HEAD, *map(str, rows)]), rows, arguments.json)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
