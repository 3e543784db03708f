"""How long the language's compiler takes: tracing from Python, all passes, and the proof.

    python bench/commands/compile_bench.py [--grow] [-o FILE]

CPU seconds on one core; each program in a process of its own, whose greatest memory is shown.
--grow adds the growth with ranks.
"""

import argparse
import multiprocessing
import platform
import resource
import sys
import time
from pathlib import Path

from unisono import lang

LIBRARY = Path(__file__).parents[2] / "examples" / "language"
# Program, ranks, nodes, instances.
CASES = [
    ("all_pairs_all_reduce", 64, 1, 2),
    ("one_step_all_pairs_all_reduce", 64, 1, 2),
    ("two_step_all_to_all", 256, 32, 1),
    ("hierarchical_all_reduce", 256, 32, 1),
    ("ring_all_reduce", 128, 1, 1),
    ("ring_all_reduce", 1024, 1, 1),
    ("all_ranks_ring_all_reduce", 1024, 1, 1),
]
GROWTH = [
    (name, ranks, nodes or ranks // 8, 1)
    for name, nodes in (
        ("ring_all_reduce", 1),
        ("all_ranks_ring_all_reduce", 1),
        ("all_pairs_all_reduce", 1),
        ("two_step_all_to_all", None),
        ("hierarchical_all_reduce", None),
    )
    for ranks in (16, 32, 64, 128, 256, 512)
]


def measure(case: tuple[str, int, int, int]) -> dict[str, float]:
    name, ranks, nodes, instances = case
    (program,) = lang.load(LIBRARY / f"{name}.py")
    start = time.process_time()
    build = program.trace(ranks, nodes)
    traced = time.process_time()
    compiled = build.compile({"instances": instances})
    end = time.process_time()
    proof = dict(compiled.timings)["verify"]
    return {
        "steps": compiled.steps,
        "trace": traced - start,
        "passes": end - traced - proof,
        "proof": proof,
        "total": end - start,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    lines = [
        f"date: {time.strftime('%Y-%m-%d')}",
        f"machine: one core of {platform.machine()}, Python {platform.python_version()}",
        "CPU seconds: tracing from Python, the passes, the proof; GiB: the process's greatest",
        "",
        f"{'program':<32}{'ranks':>6}{'nodes':>6}{'inst.':>6}{'plan steps':>12}"
        f"{'trace':>8}{'passes':>8}{'proof':>8}{'total':>8}{'GiB':>7}",
    ]
    print(*lines, sep="\n", flush=True)
    # A process for each: the greatest memory of one is not that of another.
    context = multiprocessing.get_context("spawn")
    for case in CASES + (GROWTH if arguments.grow else []):
        with context.Pool(1) as pool:
            one = pool.apply(measure, (case,))
        lines.append(
            f"{case[0]:<32}{case[1]:>6}{case[2]:>6}{case[3]:>6}{one['steps']:>12,}"
            f"{one['trace']:>8.3f}{one['passes']:>8.3f}{one['proof']:>8.3f}"
            f"{one['total']:>8.3f}{one['gib']:>7.2f}"
        )
        print(lines[-1], flush=True)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
