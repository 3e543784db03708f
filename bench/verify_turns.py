"""`unisono plan verify --all --ranks 2..64` of two commits, in turn.

    python bench/verify_turns.py BASE NEW RUNS

BASE and NEW are folders with an installed package `unisono` each, as `cmake --install BUILD
--component python --prefix FOLDER` and a copy of python/unisono leave it. Each pair changes its
order. Prints the CPU seconds of every run, their medians, and the median of the pairs' ratios with
its range: CPU seconds because other work on the machine does not count in them.
"""

import os
import resource
import statistics
import subprocess
import sys

from turns import in_turn

COMMAND = ("plan", "verify", "--all", "--ranks", "2..64")
# Without the hook by which an editable installation shadows the folder.
PROGRAM = """
import sys
sys.meta_path[:] = [one for one in sys.meta_path
                    if type(one).__name__ != "ScikitBuildRedirectingFinder"]
import unisono
from unisono.cli import main
if not unisono.__file__.startswith(sys.argv.pop(1)):
    sys.exit(f"{unisono.__file__} is another package")
main()
"""


def cpu_seconds(folder: str) -> float:
    """The time of one run, user and system, of all its threads."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", PROGRAM, folder, *COMMAND],
        env={**os.environ, "PYTHONPATH": folder}, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    base, new, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    seconds: dict[str, list[float]] = {base: [], new: []}
    for run in range(runs):
        for folder in in_turn(run, base, new):
            seconds[folder].append(cpu_seconds(folder))
    for name, folder in (("base", base), ("new", new)):
        every = " ".join(f"{one:.2f}" for one in seconds[folder])
        print(f"{name}: median {statistics.median(seconds[folder]):.2f} s of {every}")
    ratios = [after / before for before, after in zip(seconds[base], seconds[new], strict=True)]
    print(f"new / base: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
