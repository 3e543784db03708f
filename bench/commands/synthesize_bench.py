"""How long synthesis takes, and how near its plans are to the bound that none can beat.

    python bench/commands/synthesize_bench.py [--exact] [-o FILE]

CPU seconds on one core, one try. --exact adds the Pareto sets that CP-SAT finds for a DGX-1, with
all cores.
"""

import argparse
import platform
import time
from pathlib import Path

from unisono.synthesize import load_links, pareto, synthesize

CASES = [
    ("dgx_1", 8, (1, 6)),
    ("mesh_8x8", 64, (1, 4)),
    ("torus_8x8", 64, (1, 4)),
    ("dgx_h100", 8, (1, 4)),
    ("dgx_h100", 64, (1, 4)),
    ("mesh_32x32", 1024, (1,)),
]


def measure(name: str, ranks: int, collective: str, chunks: int) -> str:
    links = load_links(name, ranks=ranks)
    started = time.process_time()
    found = synthesize(links, collective, chunks=chunks, tries=1)
    searched = time.process_time()
    compiled = found.compile()
    done = time.process_time()
    return (
        f"{name:<12}{ranks:>6}{collective:>16}{chunks:>8}{len(found.schedule.transfers):>11,}"
        f"{searched - started:>9.3f}{done - searched:>9.3f}"
        f"{found.time_us:>12.1f}{found.time_us / found.bound_us - 1:>8.1%}{compiled.steps:>11,}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    lines: list[str] = []

    def write(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    write(f"date: {time.strftime('%Y-%m-%d')}")
    write(f"machine: one core of {platform.machine()}, Python {platform.python_version()}")
    write("CPU seconds of the search, and of compiling with proof; 64 MiB in all; above the bound")
    write("")
    write(f"{'links':<12}{'ranks':>6}{'collective':>16}{'chunks':>8}{'transfers':>11}{'search':>9}"
          f"{'compile':>9}{'time us':>12}{'above':>8}{'steps':>11}")  # fmt: skip
    for name, ranks, all_chunks in CASES:
        for collective in ("all_gather", "reduce_scatter", "all_reduce"):
            for chunks in all_chunks:
                write(measure(name, ranks, collective, chunks))
    if arguments.exact:
        write("")
        write("dgx_1, exact: steps, rounds, chunks; seconds since the one before")
        for collective in ("all_gather", "reduce_scatter"):
            last = time.perf_counter()
            for point in pareto(load_links("dgx_1"), collective):
                now = time.perf_counter()
                verdict = "found" if point.found else "not decided"
                write(f"{collective:>16}{point.steps:>4}{point.rounds:>4}{point.chunks:>4}"
                      f"{now - last:>8.1f}  {verdict}")  # fmt: skip
                last = now
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
