"""GPUs that are set apart as those of two hosts: checks every call, and measures against NCCL.

    unisono run -n 2 bench/gpu/hosts.py [--graphs] [--ways staged rings] [-o OUT.txt]

Each rank has a host name of its own, which takes root, so that calls take sockets of the loopback:
staged through host memory (`staged`), or by kernels over ring links (`rings`). NCCL is kept from
the same links by its own settings (no peer-to-peer, no shared memory, other host ids), and takes
its socket transport. Every collective and messages are compared with what they must give, for eight
types, two counts and two roots; each is called twice. The table has microseconds of each call, all
ways in turn, medians over rounds of the slower rank. A size is the bytes of the larger of a call's
input and output. With --graphs, collectives are replayed; staged calls cannot be captured.
"""

import argparse
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

NCCL = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
RANK = int(os.environ["UNISONO_RANK"])
RANKS = int(os.environ["UNISONO_WORLD_SIZE"])
os.environ |= NCCL | {"NCCL_HOSTID": f"host{RANK}"}

import torch  # noqa: E402  it reads NCCL's settings
import torch.distributed as dist  # noqa: E402
import unisono  # noqa: E402
from torch import Tensor  # noqa: E402

TYPES = (
    *(torch.int8, torch.uint8, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
COUNTS = (1, 4099)
SIZES = (8, *(1 << power for power in range(10, 29, 2)))
ROUNDS = 7
# Calls of a turn move so many bytes, or are so many.
TURN_BYTES, TURN_CALLS = 32 << 20, 50
CALLS = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"),
    *("reduce", "gather", "scatter", "send_recv"),
)
# How calls go between the hosts, by the settings of their communicator.
WAYS = {
    "staged": {"UNISONO_GPU_RING_LINKS": "off"},
    "rings": {"UNISONO_GPU_RING_LINKS": "on"},
}


def part(rank: int, count: int, dtype: torch.dtype) -> Tensor:
    """What a rank has: small whole numbers, whose sums are exact in every type."""
    return ((torch.arange(count, device="cuda") * 7 + rank * 3) % 11).to(dtype)


def calls(
    comm: unisono.Communicator, count: int, dtype: torch.dtype
) -> Iterator[tuple[str, Callable[[], Tensor], Tensor | None]]:
    """Each call's name, the call, and what it must give; None where this rank gets nothing."""
    mine = part(RANK, count, dtype)
    parts = [part(rank, count, dtype) for rank in range(RANKS)]
    all_parts = torch.cat(parts)
    total = torch.stack(parts).sum(0).to(dtype)
    blocks = [part(rank, count * RANKS, dtype) for rank in range(RANKS)]
    here = slice(RANK * count, (RANK + 1) * count)
    yield "all_reduce", lambda: comm.all_reduce(mine), total
    yield "all_gather", lambda: comm.all_gather(mine), all_parts
    summed = torch.stack(blocks).sum(0).to(dtype)[here]
    yield "reduce_scatter", lambda: comm.reduce_scatter(blocks[RANK]), summed
    swapped = torch.cat([block[here] for block in blocks])
    yield "all_to_all", lambda: comm.all_to_all(blocks[RANK]), swapped
    before = parts[(RANK - 1) % RANKS]
    yield "send and recv", lambda: exchange(comm, mine, torch.empty_like(mine)), before
    for root in (0, RANKS - 1):
        is_root = root == RANK
        yield "broadcast", lambda root=root: comm.broadcast(mine.clone(), root), parts[root]
        yield "reduce", lambda root=root: comm.reduce(mine, root=root), total if is_root else None
        yield "gather", lambda root=root: comm.gather(mine, root), all_parts if is_root else None
        given = blocks[RANK] if is_root else None
        out = torch.empty(count, dtype=dtype, device="cuda")
        yield (
            "scatter",
            lambda root=root, given=given, out=out: comm.scatter(given, root, out=out),
            blocks[root][here],
        )


def exchange(comm: unisono.Communicator, mine: Tensor, out: Tensor) -> Tensor:
    """A message to the next rank, and one from the one before."""
    with comm.group() as group:
        group.send(mine, (RANK + 1) % RANKS)
        group.recv(out, (RANK - 1) % RANKS)
    return out


def check(comm: unisono.Communicator) -> tuple[int, list[str]]:
    """How many results were compared, and which were wrong."""
    compared, wrong = 0, []
    for dtype in TYPES:
        for count in COUNTS:
            for name, call, expected in calls(comm, count, dtype):
                for _ in range(2):
                    got = call()
                    torch.cuda.synchronize()
                    if expected is None:
                        continue
                    compared += 1
                    if not torch.equal(got, expected):
                        wrong.append(f"rank {RANK}: {name} of {count} {dtype}")
    return compared, wrong


Timed = Callable[[], object]


def ours(comm: unisono.Communicator, size: int) -> dict[str, Timed]:
    """Calls of Unisono, by name, whose larger side has so many bytes."""
    whole = torch.ones(max(size // 4, RANKS), device="cuda")
    other, part = torch.empty_like(whole), torch.ones(len(whole) // RANKS, device="cuda")
    at_root = RANK == 0
    return {
        "all_reduce": lambda: comm.all_reduce(whole, out=whole),
        "all_gather": lambda: comm.all_gather(part, out=whole),
        "reduce_scatter": lambda: comm.reduce_scatter(whole, out=part),
        "all_to_all": lambda: comm.all_to_all(whole, out=other),
        "broadcast": lambda: comm.broadcast(whole, 0),
        "reduce": lambda: comm.reduce(whole, root=0, out=other if at_root else None),
        "gather": lambda: comm.gather(part, 0, out=whole if at_root else None),
        "scatter": lambda: comm.scatter(whole if at_root else None, 0, out=part),
        "send_recv": lambda: exchange(comm, whole, other),
    }


def nccls(size: int) -> dict[str, Timed]:
    """The same calls of NCCL, through PyTorch."""
    whole = torch.ones(max(size // 4, RANKS), device="cuda")
    other, part = torch.empty_like(whole), torch.ones(len(whole) // RANKS, device="cuda")
    parts = list(whole.chunk(RANKS)) if RANK == 0 else None
    after, before = (RANK + 1) % RANKS, (RANK - 1) % RANKS

    def send_recv() -> None:
        messages = [dist.P2POp(dist.isend, whole, after), dist.P2POp(dist.irecv, other, before)]
        for work in dist.batch_isend_irecv(messages):
            work.wait()

    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "reduce": lambda: dist.reduce(whole, 0),
        "gather": lambda: dist.gather(part, parts, 0),
        "scatter": lambda: dist.scatter(part, parts, 0),
        "send_recv": send_recv,
    }


class Turn:
    """One way's calls of one kind and size, called one after another, or a replay of them."""

    def __init__(self, call: Timed, times: int, *, is_graph: bool) -> None:
        self._call, self._times = call, times
        self._graph = torch.cuda.CUDAGraph() if is_graph else None
        self.found: list[float] = []
        call()
        if self._graph is not None:
            torch.cuda.synchronize()
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                for _ in range(times):
                    call()

    def measure(self, comm: unisono.Communicator) -> None:
        """Keeps the microseconds that a call of the slower rank takes."""
        torch.cuda.synchronize()
        comm.barrier()
        begin = time.perf_counter()
        if self._graph is not None:
            self._graph.replay()
        else:
            for _ in range(self._times):
                self._call()
        torch.cuda.synchronize()
        mine = torch.tensor([(time.perf_counter() - begin) / self._times * 1e6])
        self.found.append(float(comm.all_reduce(mine.double(), op="max")[0]))

    def microseconds(self) -> float:
        """The median; the first turn is not counted."""
        return statistics.median(self.found[1:])


def measure(comms: dict[str, unisono.Communicator], *, is_graph: bool) -> Iterator[str]:
    """A line for each call and size, when it is measured."""
    ways = [name for name in comms if not is_graph or name != "staged"]
    yield (
        f"{'call':14} {'bytes':>10}"
        + "".join(f" {name:>10}" for name in (*ways, "nccl"))
        + ("".join(f" {'nccl/' + name:>11}" for name in ways))
    )
    control = next(iter(comms.values()))
    every: dict[str, list[float]] = {name: [] for name in ways}
    for name in [call for call in CALLS if not is_graph or call != "send_recv"]:
        for size in SIZES:
            times = max(2, min(TURN_CALLS, TURN_BYTES // size))
            calls_by_way = {way: ours(comms[way], size)[name] for way in ways}
            calls_by_way["nccl"] = nccls(size)[name]
            turns = {
                way: Turn(call, times, is_graph=is_graph) for way, call in calls_by_way.items()
            }
            for _ in range(ROUNDS + 1):
                for turn in turns.values():
                    turn.measure(control)
            found = {way: turn.microseconds() for way, turn in turns.items()}
            for way in ways:
                every[way].append(found["nccl"] / found[way])
            yield (
                f"{name:14} {size:10}"
                + "".join(f" {us:10.1f}" for us in found.values())
                + ("".join(f" {found['nccl'] / found[way]:11.2f}" for way in ways))
            )
    for way, ratios in every.items():
        mean = statistics.geometric_mean(ratios)
        yield f"NCCL's time / {way}: {mean:.2f} in geometric mean, {min(ratios):.2f} at least"


def connect(way: str, number: int) -> unisono.Communicator:
    """A communicator whose calls go this way."""
    port = int(os.environ.get("MASTER_PORT", "29511")) + 1 + number
    return unisono.init(
        device=RANK,
        node=f"host{RANK}",
        rendezvous=f"tcp://127.0.0.1:{port}",
        settings=WAYS[way],
    )


def main() -> None:
    """Checks and measures; rank 0 prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--graphs", action="store_true", help="replay calls in CUDA graphs")
    parser.add_argument("--check-only", action="store_true", help="measure nothing")
    args = parser.parse_args()
    os.unshare(os.CLONE_NEWUTS)  # Python 3.12 has it
    socket.sethostname(f"host{RANK}")
    torch.cuda.set_device(RANK)
    comms = {way: connect(way, number) for number, way in enumerate(args.ways)}
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if RANK == 0:
            print(line, flush=True)

    for way, comm in comms.items():
        compared, wrong = check(comm)
        say(f"{way}: rank {RANK} compared {compared} results; wrong: {len(wrong)}")
        for text in wrong:
            print(text, flush=True)
        say(f"{way}: {comm.explain('all_reduce', 1 << 20).note}")
    if not args.check_only:
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": os.environ.get("MASTER_PORT", "29511"),
        }
        dist.init_process_group("nccl", rank=RANK, world_size=RANKS)
        for line in measure(comms, is_graph=args.graphs):
            say(line)
        dist.destroy_process_group()
    for comm in comms.values():
        comm.destroy()
    if RANK == 0 and args.output is not None:
        args.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
