"""A GEMM that overlaps with each collective: what NCCL, Unisono and copy engines cost it.

    NCCL_NVLS_ENABLE=0 torchrun --nproc-per-node 4 bench/gpu/interference.py --json OUT

Every rank multiplies two bf16 matrices again and again on one stream, while a CUDA graph of one
collective, repeated, runs on another of higher priority: over PyTorch's backend nccl, over unisono,
over unisono with policy="zero_sm", and with --max-sms over unisono with so many thread blocks at
most. All are in the same processes and take turns. (Without
the priority a collective's kernel waits for a whole product, and neither says anything.) Times are
medians over repeats of the slowest rank's:

    product     how much longer the products take while collectives run all the time
    lost us     that time for each call; fewer and slower calls leave more to the GEMMs
    collective  microseconds of a call alone, and how many times as long while products run
"""

import argparse
import math
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import unisono.torch
from torch_report import finish, slowest
from unisono._unisono import format_bytes, parse_bytes

SIDE = 8192
PRODUCTS = 8
REPEATS = 5
# Copy engines do not add.
WITHOUT_SMS = "Unisono, no SM"
SUMS = ("all_reduce", "reduce_scatter")
# Calls in a graph when their time is first looked at.
FIRST_CALLS = 8


@dataclass(frozen=True)
class Row:
    """One collective over one library."""

    collective: str
    library: str
    bytes: int
    product_us: float  # alone
    product_beside_us: float
    call_us: float  # alone
    call_beside_us: float
    calls: int  # concurrent with the GEMMs, unless these ended earlier

    @property
    def lost_us(self) -> float:
        """What a call costs the GEMMs that overlap with it, in their time."""
        calls = min(self.calls, PRODUCTS * self.product_beside_us / self.call_beside_us)
        return PRODUCTS * (self.product_beside_us - self.product_us) / calls

    @property
    def slowdown(self) -> float:
        return self.product_beside_us / self.product_us - 1


def collectives(size_bytes: int) -> dict[str, Callable[[dist.ProcessGroup], None]]:
    """By name, what makes one call on buffers of that size in all."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    count = size_bytes // 2
    whole = torch.ones(count, dtype=torch.bfloat16, device="cuda")
    other = torch.empty_like(whole)
    part = whole[: count // ranks].clone()
    blocks = list(other.chunk(ranks)) if rank == 0 else None
    sources = list(whole.chunk(ranks)) if rank == 0 else None

    def exchange(group: dist.ProcessGroup) -> None:
        there, back = (rank + 1) % ranks, (rank - 1) % ranks
        messages = [
            dist.P2POp(dist.isend, whole, there, group),
            dist.P2POp(dist.irecv, other, back, group),
        ]
        for work in dist.batch_isend_irecv(messages):
            work.wait()

    return {
        "all_reduce": lambda group: dist.all_reduce(whole, group=group),
        "reduce_scatter": lambda group: dist.reduce_scatter_tensor(part, whole, group=group),
        "all_gather": lambda group: dist.all_gather_into_tensor(other, part, group=group),
        "all_to_all": lambda group: dist.all_to_all_single(other, whole, group=group),
        "broadcast": lambda group: dist.broadcast(whole, 0, group=group),
        "gather": lambda group: dist.gather(part, blocks, 0, group=group),
        "scatter": lambda group: dist.scatter(part, sources, 0, group=group),
        "send_recv": exchange,
    }


class Measurement:
    """The GEMMs, and graphs of collectives concurrent with them."""

    def __init__(self, host_group: dist.ProcessGroup) -> None:
        self._host_group = host_group
        self._left = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
        self._right = torch.randn_like(self._left)
        self._out = torch.empty_like(self._left)
        self._beside = torch.cuda.Stream(priority=-1)
        self.multiply(PRODUCTS)
        self.product_us = self._agree([self._timed(PRODUCTS, None)[0] for _ in range(REPEATS)])

    def multiply(self, times: int) -> None:
        for _ in range(times):
            torch.matmul(self._left, self._right, out=self._out)

    def row(
        self,
        name: str,
        library: str,
        size_bytes: int,
        call: Callable[[dist.ProcessGroup], None],
        group: dist.ProcessGroup,
    ) -> Row:
        graph = self._graph(call, group, FIRST_CALLS)
        alone = self._agree([self._timed(0, graph)[1] for _ in range(REPEATS)]) / FIRST_CALLS
        # The collectives outlast the products unless these hardly overlap with them, then the
        # products the collectives.
        calls = math.ceil(1.5 * PRODUCTS * self.product_us / alone)
        long_graph = self._graph(call, group, calls)
        product = self._agree([self._timed(PRODUCTS, long_graph)[0] for _ in range(REPEATS)])
        products = math.ceil(3 * FIRST_CALLS * alone / self.product_us) + 2
        call_us = self._agree([self._timed(products, graph)[1] for _ in range(REPEATS)])
        call_us /= FIRST_CALLS
        return Row(name, library, size_bytes, self.product_us, product, alone, call_us, calls)

    def _graph(
        self, call: Callable[[dist.ProcessGroup], None], group: dist.ProcessGroup, calls: int
    ) -> torch.cuda.CUDAGraph:
        with torch.cuda.stream(self._beside):
            for _ in range(3):
                call(group)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._beside, capture_error_mode="thread_local"):
            for _ in range(calls):
                call(group)
        with torch.cuda.stream(self._beside):
            graph.replay()
        torch.cuda.synchronize()
        return graph

    def _timed(self, products: int, graph: torch.cuda.CUDAGraph | None) -> tuple[float, float]:
        """Microseconds of a product, and of the graph; both start together on all ranks."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        torch.cuda.synchronize()
        dist.all_reduce(torch.zeros(1), group=self._host_group)
        with torch.cuda.stream(self._beside):
            events[2].record()
            if graph is not None:
                graph.replay()
            events[3].record()
        events[0].record()
        self.multiply(products)
        events[1].record()
        torch.cuda.synchronize()
        product = 1e3 * events[0].elapsed_time(events[1]) / max(1, products)
        return product, 1e3 * events[2].elapsed_time(events[3])

    def _agree(self, times: list[float]) -> float:
        return statistics.median(slowest(times, self._host_group))


def table(rows: list[Row]) -> str:
    lines = [
        f"{'collective':14} {'bytes':>10} {'library':14} {'product':>9} {'slower by':>9}"
        f" {'lost us':>8} {'call us':>9} {'overlap':>9} {'times':>6}"
    ]
    for row in rows:
        lines.append(
            f"{row.collective:14} {row.bytes:10} {row.library:14} {row.product_beside_us:9.1f}"
            f" {row.slowdown:9.1%} {row.lost_us:8.1f} {row.call_us:9.1f} {row.call_beside_us:9.1f}"
            f" {row.call_beside_us / row.call_us:6.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--size", action="append", help="of the larger buffer; 64MiB")
    parser.add_argument("--max-sms", type=int, action="append", default=[], help="once for each")
    arguments = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    dist.init_process_group("nccl", device_id=device, pg_options=options)
    groups = {
        "NCCL": dist.group.WORLD,
        "Unisono": dist.new_group(backend="unisono"),
        WITHOUT_SMS: dist.new_group(
            backend="unisono", pg_options=unisono.torch.Options(policy="zero_sm")
        ),
    }
    for most in arguments.max_sms:
        groups[f"Unisono, {most} SMs"] = dist.new_group(
            backend="unisono", pg_options=unisono.torch.Options(max_sms=most)
        )
    measurement = Measurement(groups["Unisono"])
    rows = []
    for size in map(parse_bytes, arguments.size or ["64MiB"]):
        for name, call in collectives(size).items():
            for library, group in groups.items():
                if library == WITHOUT_SMS and name in SUMS:
                    continue
                rows.append(measurement.row(name, library, size, call, group))
                if dist.get_rank() == 0:
                    print(table(rows[-1:]).splitlines()[1], flush=True)
    if dist.get_rank() == 0:
        subject = (
            f"a product of two {SIDE} x {SIDE} bf16 matrices alone:"
            f" {measurement.product_us:.1f} us; collectives of "
            f"{', '.join(map(format_bytes, dict.fromkeys(row.bytes for row in rows)))}"
        )
        finish(subject, table(rows), rows, arguments.json)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
