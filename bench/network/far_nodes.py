"""Hierarchical algorithms against the flat ring between far nodes, on real processes.

    python bench/network/far_nodes.py [--ranks 64 --nodes 16 --delay 1ms --bytes 64KiB]
                                      [--json FILE]

Every message between nodes is held back by the delay. The flat ring goes in the order of ranks and
knows no nodes: where ranks are dealt to the nodes in turn (as schedulers do by "cyclic" mapping),
each of its hops leaves a node; where nodes hold blocks of ranks, one in so many. The model's time
is the delay times the messages between nodes on the longest chain; all else is for free in it.

Variants alternate, `--rounds` times; medians over rounds of the slowest rank's mean over calls.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

COLLECTIVES = ("all_gather", "reduce_scatter")
# Name, mapping of ranks to nodes, whether algorithms see no nodes, algorithm.
VARIANTS = (
    ("flat ring, ranks dealt in turn", "cyclic", True, "ring"),
    ("flat ring, blocks of ranks", "block", True, "ring"),
    ("hierarchical, ranks dealt in turn", "cyclic", False, "hierarchical_recursive"),
    ("hierarchical, blocks of ranks", "block", False, "hierarchical_recursive"),
)


def measure(collective: str, algorithm: str, block_bytes: int, calls: int, file: Path) -> None:
    """What each rank runs."""
    import numpy as np
    import unisono

    with unisono.init() as comm:
        generator = np.random.default_rng(1)
        everything = generator.integers(0, 100, comm.size * block_bytes // 4).astype(np.float32)
        own = everything.reshape(comm.size, -1)[comm.rank]
        if collective == "all_gather":
            source, result, wanted = own, np.empty_like(everything), everything
        else:
            source, result, wanted = everything, np.empty_like(own), own * comm.size

        def call() -> None:
            getattr(comm, collective)(source, out=result, algorithm=algorithm, protocol="simple")

        for _ in range(3):
            call()
        assert np.array_equal(result, wanted), f"wrong result on rank {comm.rank}"
        comm.barrier()
        started = time.perf_counter()
        for _ in range(calls):
            call()
        seconds = np.array([(time.perf_counter() - started) / calls])
        comm.all_reduce(seconds, "max", out=seconds)
        if comm.rank == 0:
            file.write_text(str(seconds[0]))


def run(variant: tuple, collective: str, arguments: argparse.Namespace) -> float:
    """Milliseconds a call."""
    from unisono.launcher import launch

    _, mapping, flat, algorithm = variant
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seconds"
        block = arguments.bytes // arguments.ranks // 4 * 4
        outcome = launch(
            [
                __file__,
                "--measure",
                collective,
                algorithm,
                str(block),
                str(arguments.calls),
                str(file),
            ],
            arguments.ranks,
            nodes=arguments.nodes,
            environment={
                "UNISONO_DELAY": arguments.delay,
                "UNISONO_FLAT": str(int(flat)),
                "FAR_NODES_CYCLIC": str(arguments.nodes if mapping == "cyclic" else 0),
            },
            prefix_output=False,
            timeout=300,
        )
        if not outcome.ok:
            sys.exit(outcome.message)
        return 1e3 * float(file.read_text())


def crossings(variant: tuple, collective: str, arguments: argparse.Namespace) -> int:
    """Messages between nodes on the longest chain."""
    from unisono import plans

    _, mapping, flat, algorithm = variant
    if flat:
        hops = arguments.ranks - 1
        per_node = arguments.ranks // arguments.nodes if mapping == "block" else 1
        return -(-hops // per_node)
    placement = plans.Placement(arguments.ranks, arguments.nodes)
    entry = plans.find_algorithm(f"{algorithm}_{collective}")
    return entry.cost(placement, arguments.bytes / arguments.ranks).steps_inter_node


def main() -> None:
    from unisono import _unisono as native
    from unisono.bench.machine import describe_machine

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--delay", default="1ms")
    parser.add_argument(
        "--bytes", type=native.parse_bytes, default="64KiB", help="all ranks' blocks"
    )
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    delay_ms = 1e3 * native.parse_seconds(arguments.delay)
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(arguments.rounds):
        for collective in COLLECTIVES:
            for variant in VARIANTS:
                took = run(variant, collective, arguments)
                times.setdefault((collective, variant[0]), []).append(took)
    rows = []
    for collective in COLLECTIVES:
        ring = statistics.median(times[collective, VARIANTS[0][0]])
        ring_model = crossings(VARIANTS[0], collective, arguments) * delay_ms
        for variant in VARIANTS:
            took = statistics.median(times[collective, variant[0]])
            model = crossings(variant, collective, arguments) * delay_ms
            rows.append(
                {
                    "collective": collective,
                    "variant": variant[0],
                    "ms": round(took, 3),
                    "model_ms": model,
                    "faster_than_flat_ring": round(ring / took, 2),
                    "in_the_model": round(ring_model / model, 2),
                }
            )
    for row in rows:
        print(
            f"{row['collective']:<15} {row['variant']:<34} {row['ms']:8.2f} ms (model "
            f"{row['model_ms']:5.1f}) {row['faster_than_flat_ring']:6.2f} x the flat ring (model "
            f"{row['in_the_model']:5.2f})"
        )
    if arguments.json:
        settings = {key: str(value) for key, value in vars(arguments).items() if key != "json"}
        document = {
            "date": time.strftime("%Y-%m-%d"),
            "options": settings,
            "machine": describe_machine(),
            "rows": rows,
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        if cyclic := int(os.environ["FAR_NODES_CYCLIC"]):
            os.environ["UNISONO_NODE"] = f"node{int(os.environ['UNISONO_RANK']) % cyclic}"
        measure(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6]))
    else:
        main()
