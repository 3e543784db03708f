"""What the stamps of kernels cost: all-reduces without and with UNISONO_GPU_STAMPS.

    python bench/gpu/stamps_cost.py -n 2 -o OUT.txt

Each runs in processes of its own, round after round on the same GPUs. A number is the median over
rounds of the slowest rank's microseconds a call: of calls one after another on a stream (`calls`),
and of calls in a CUDA graph (`graph`). After each is half the spread of its rounds, from quartile
to quartile: less than that is no difference.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from report import finish

SIZES = tuple(1 << power for power in range(10, 25, 2))
WARM_UP, IN_GRAPH, REPEATS = 20, 20, 9


def measure() -> None:
    """Of one rank; rank 0 prints microseconds by kind and size, as JSON."""
    import torch
    import unisono

    rank = int(os.environ["UNISONO_RANK"])
    torch.cuda.set_device(rank)
    comm = unisono.init(device=rank)
    found: dict[str, dict[int, float]] = {"calls": {}, "graph": {}}

    def slowest(run: Callable[[], None], calls: int) -> float:
        times = []
        for _ in range(REPEATS):
            comm.barrier()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            run()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) / calls * 1e6)
        mine = torch.tensor([statistics.median(times)], dtype=torch.float64)
        return float(comm.all_reduce(mine, op="max")[0])

    for size in SIZES:
        x = torch.ones(size // 4, device="cuda")
        calls = 200 if size <= 1 << 20 else 50

        def repeat(x: torch.Tensor = x, calls: int = calls) -> None:
            for _ in range(calls):
                comm.all_reduce(x, out=x)

        repeat()
        found["calls"][size] = slowest(repeat, calls)
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(IN_GRAPH):
                comm.all_reduce(x, out=x)
        for _ in range(WARM_UP):
            graph.replay()

        def replay(graph: torch.cuda.CUDAGraph = graph) -> None:
            for _ in range(10):
                graph.replay()

        found["graph"][size] = slowest(replay, 10 * IN_GRAPH)
    if rank == 0:
        print(json.dumps(found), flush=True)
    comm.destroy()


def run_job(stamps: str, ranks: int) -> dict[str, dict[str, float]]:
    """What is measured in processes of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "unisono", "run", "-n", str(ranks), __file__, "--measure"],
        check=True, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"UNISONO_GPU_STAMPS": stamps},
    )  # fmt: skip
    lines = [line[line.index("{") :] for line in done.stdout.splitlines() if "{" in line]
    return json.loads(lines[-1])


def spread(values: list[float]) -> float:
    """Half of what lies between the quartiles."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2


def table(rounds: dict[str, list[dict[str, dict[str, float]]]]) -> list[str]:
    """A line for each kind and size."""
    names = list(rounds)
    lines = [f"{'kind':6} {'bytes':>9} " + " ".join(f"{name:>18}" for name in names) + "   change"]
    for kind in ("calls", "graph"):
        for size in SIZES:
            values = {name: [one[kind][str(size)] for one in rounds[name]] for name in names}
            medians = [statistics.median(values[name]) for name in names]
            cells = " ".join(
                f"{median:10.2f} +- {spread(values[name]):4.2f}"
                for name, median in zip(names, medians, strict=True)
            )
            lines.append(f"{kind:6} {size:9} {cells} {(medians[1] / medians[0] - 1) * 100:+7.1f} %")
    return lines


def main() -> None:
    """Measures, or runs both in turn and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="be one rank")
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    if args.measure:
        measure()
        return
    if args.rounds < 2:
        parser.error("at least 2 --rounds")
    jobs = {"without": "0", "stamps": "1"}
    rounds: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in jobs}
    for number in range(args.rounds):
        for name, stamps in jobs.items():
            rounds[name].append(run_job(stamps, args.ranks))
            print(f"round {number + 1}: {name}", file=sys.stderr, flush=True)
    finish(table(rounds), args.output)


if __name__ == "__main__":
    main()
