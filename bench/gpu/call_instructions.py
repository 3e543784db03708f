"""Instructions of the host for a call on a stream, from the call to the launch.

    python bench/gpu/call_instructions.py BUILD [BUILD_BEFORE]

Each argument is a build folder in which the target gpu_call_bench was built, with its stub_driver:
a libcuda.so.1 that does nothing. Valgrind counts the instructions of the threads that make calls,
while they make them: connections are there before. With a second folder, of another commit, the
table has the ratio of the two. A commit from before the program gets it, and stub_driver, copied.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from pathlib import Path

RANKS = 2
CALLS = 5_000
CASES = [(size, mode) for size in (1 << 10, 1 << 16) for mode in ("repeated", "eager")]


def per_call(build: Path, size: int, mode: str) -> float:
    """Instructions a call, of one rank."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out",
             "--toggle-collect=*counted_calls*", build / "gpu_call_bench", str(size), str(CALLS),
             mode],
            env={**os.environ, "LD_LIBRARY_PATH": str(build / "stub_driver")},
            capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
    found = re.search(r"Collected : (\d+)", ran.stderr)
    if found is None or int(found[1]) == 0:
        raise SystemExit(f"valgrind counted nothing:\n{ran.stderr}")
    return int(found[1]) / CALLS / RANKS


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("before", type=Path, nargs="?")
    arguments = parser.parse_args()
    print(
        f"{'bytes':>7} {'mode':9} {'now':>7}"
        + (f" {'before':>7} {'ratio':>6}" if arguments.before else "")
    )
    for size, mode in CASES:
        now = per_call(arguments.build.resolve(), size, mode)
        row = f"{size:7} {mode:9} {now:7.0f}"
        if arguments.before:
            before = per_call(arguments.before.resolve(), size, mode)
            row += f" {before:7.0f} {now / before:6.3f}"
        print(row, flush=True)


if __name__ == "__main__":
    main()
