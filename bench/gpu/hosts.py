"""GPUs that are set apart as those of two hosts: checks every call, and measures against NCCL.

    unisono run -n 2 bench/gpu/hosts.py [-o OUT.txt]

Each rank has a host name of its own, which takes root, so that calls are staged through host memory
and sockets of the loopback. NCCL is kept from the same links by its own settings (no peer-to-peer,
no shared memory, other host ids), and takes its socket transport. Every collective and messages are
compared with what they must give, for eight types, two counts and two roots; each is called twice.
The table has microseconds of an all-reduce, NCCL and Unisono in turn, medians over rounds of the
slower rank.
"""

import argparse
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

NCCL = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
RANK = int(os.environ["UNISONO_RANK"])
RANKS = int(os.environ["UNISONO_WORLD_SIZE"])
os.environ |= NCCL | {"NCCL_HOSTID": f"host{RANK}"}

sys.path.append(str(Path(__file__).resolve().parents[1]))

import torch  # noqa: E402  it reads NCCL's settings
import torch.distributed as dist  # noqa: E402
import unisono  # noqa: E402
from report import finish  # noqa: E402
from torch import Tensor  # noqa: E402

TYPES = (
    *(torch.int8, torch.uint8, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
COUNTS = (1, 4099)
SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 28)
ROUNDS = 7


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
    yield "send and recv", lambda: exchange(comm, mine), parts[(RANK - 1) % RANKS]
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


def exchange(comm: unisono.Communicator, mine: Tensor) -> Tensor:
    """A message to the next rank, and one from the one before."""
    out = torch.empty_like(mine)
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


def microseconds(comm: unisono.Communicator, call: Callable[[], object], times: int) -> float:
    """A call of the slower rank, calls one after another."""
    torch.cuda.synchronize()
    comm.barrier()
    begin = time.perf_counter()
    for _ in range(times):
        call()
    torch.cuda.synchronize()
    mine = torch.tensor([(time.perf_counter() - begin) / times * 1e6], dtype=torch.float64)
    return float(comm.all_reduce(mine, op="max")[0])


def measure(comm: unisono.Communicator) -> list[str]:
    """A line for each size."""
    lines = [f"{'bytes':>10} {'us':>12} {'NCCL us':>12} {'NCCL / us':>10}"]
    for size in SIZES:
        x = torch.ones(size // 4, device="cuda")
        times = max(2, min(50, (64 << 20) // size))
        ways: dict[str, Callable[[], object]] = {
            "ours": lambda x=x: comm.all_reduce(x, out=x),
            "nccl": lambda x=x: dist.all_reduce(x),
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS + 1):
            for name, call in ways.items():
                found[name].append(microseconds(comm, call, times))
        ours, nccl = (statistics.median(found[name][1:]) for name in ways)
        lines.append(f"{size:10} {ours:12.1f} {nccl:12.1f} {nccl / ours:10.2f}")
    return lines


def main() -> None:
    """Checks and measures; rank 0 prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    os.unshare(os.CLONE_NEWUTS)  # Python 3.12 has it
    socket.sethostname(f"host{RANK}")
    torch.cuda.set_device(RANK)
    comm = unisono.init(device=RANK, node=f"host{RANK}")
    compared, wrong = check(comm)
    lines = [f"rank 0 compared {compared} results; wrong: {len(wrong)}", *wrong]
    lines.append(f"Unisono: {comm.explain('all_reduce', 1 << 20).note}")
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": os.environ.get("MASTER_PORT", "29511"),
    }
    dist.init_process_group("nccl", rank=RANK, world_size=RANKS)
    lines += measure(comm)
    dist.destroy_process_group()
    comm.destroy()
    if RANK == 0:
        finish(lines, args.output)
    elif wrong:
        print("\n".join(wrong))


if __name__ == "__main__":
    main()
