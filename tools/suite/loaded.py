"""Runs the built tests on loaded cores, and keeps what they did, so that it can go on later.

Each program of C++ tests and each file of Python tests runs by itself, bound to one core on which
two other processes loop. With several cores one runs on each. FOLDER/loaded.jsonl gets a row for
each that ended; those that passed often enough are not run again. The exit status is 1 where one
failed, 3 where the time was over before all had run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOOPS = 2
# A test that hangs ends by this; it is no limit that a passing one comes near.
MOST_SECONDS = 3600


@dataclass(frozen=True)
class Program:
    """A program of C++ tests or a file of Python tests, and how it is started."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass
class Progress:
    """What has run, in the file that later runs go on from."""

    path: Path
    passed: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def read(path: Path) -> Progress:
        """Reads what earlier runs have done."""
        progress = Progress(path)
        for line in path.read_text().splitlines() if path.exists() else []:
            row = json.loads(line)
            progress.count(row["name"], row["status"] == 0)
        return progress

    def count(self, name: str, has_passed: bool) -> None:
        """Counts one program that ended."""
        if has_passed:
            self.passed[name] += 1
        else:
            self.failed.append(name)

    def add(self, name: str, status: int, seconds: float) -> None:
        """Counts one program that ended, and writes its row."""
        row = {"name": name, "status": status, "seconds": round(seconds, 1)}
        with self.lock:
            self.count(name, status == 0)
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{'ok' if status == 0 else 'FAILED':<6} {seconds:7.1f} s  {name}", flush=True)


def cpp_programs(build: Path) -> list[Program]:
    """All tests that ctest knows in a build folder."""
    listing = subprocess.run(
        ["ctest", "--test-dir", build, "--show-only=json-v1"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = []
    for test in json.loads(listing.stdout)["tests"]:
        properties = {each["name"]: each["value"] for each in test.get("properties", [])}
        pairs = [each.partition("=") for each in properties.get("ENVIRONMENT", [])]
        environment = tuple((name, value) for name, _, value in pairs)
        found.append(Program(f"c++ {test['name']}", tuple(test["command"]), environment))
    return found


def python_files(folders: list[str]) -> list[Program]:
    """All files of Python tests below some folders."""
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("test_*.py"))
    # The time limit of a test is for those that hang, so here it is long.
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=1800")
    names = [str(path.relative_to(ROOT)) for path in files]
    return [Program(name, (*pytest, name)) for name in names]


def busy_loops(core: int) -> list[subprocess.Popen[bytes]]:
    """Starts processes that keep a core busy."""
    loop = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(loop) for _ in range(LOOPS)]
    for process in started:
        os.sched_setaffinity(process.pid, {core})
    return started


def run_on(core: int, program: Program, log: Path) -> int:
    """Runs one program on a core, its output into a log; its exit status."""
    # Python starts the bound child itself: an affinity set after a fork would come too late.
    command = ["taskset", "--cpu-list", str(core), *program.command]
    environment = {**os.environ, **dict(program.environment)}
    with log.open("w") as output:
        done = subprocess.run(
            ["timeout", "--kill-after=10", str(MOST_SECONDS), *command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    # pytest's 5: all tests of the file were left out, by name.
    return 0 if done.returncode == 5 and "pytest" in program.command else done.returncode


def run(cores: list[int], programs: Iterator[Program], progress: Progress, end: float) -> None:
    """Runs programs on the cores, one on each at a time, until none is left or time is over."""
    lock = threading.Lock()

    def lane(core: int) -> None:
        while time.monotonic() < end:
            with lock:
                program = next(programs, None)
            if program is None:
                return
            name = re.sub(r"[^\w.-]+", "_", program.name)
            started = time.monotonic()
            status = run_on(core, program, progress.path.parent / f"{name}.log")
            progress.add(program.name, status, time.monotonic() - started)

    loops = [loop for core in cores for loop in busy_loops(core)]
    try:
        lanes = [threading.Thread(target=lane, args=(core,)) for core in cores]
        for each in lanes:
            each.start()
        for each in lanes:
            each.join()
    finally:
        for process in loops:
            process.kill()


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="tools/test_loaded", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where results are kept")
    parser.add_argument("--times", type=int, default=3, help="how often each test must pass")
    parser.add_argument("--cores", default="0", help="such as 0,1 or 0-15; default 0")
    parser.add_argument("--minutes", type=float, default=55, help="start no test after so long")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "test")
    parser.add_argument("--only", choices=["c++", "python"], help="leave out the others")
    arguments = parser.parse_args()

    cores: list[int] = []
    for part in arguments.cores.split(","):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    every = cpp_programs(arguments.build) if arguments.only != "python" else []
    if arguments.only != "c++":
        every += python_files(["tests/python", "tests/docs", "tests/tools", "tests/package"])
    arguments.folder.mkdir(parents=True, exist_ok=True)
    progress = Progress.read(arguments.folder / "loaded.jsonl")

    missing = [
        program
        for round_ in range(arguments.times)
        for program in every
        if progress.passed[program.name] <= round_
    ]
    run(cores, iter(missing), progress, time.monotonic() + arguments.minutes * 60)
    names = [program.name for program in every]
    passed = sum(min(progress.passed[name], arguments.times) for name in names)
    wanted = len(names) * arguments.times
    print(f"{passed} of {wanted} runs passed, {len(progress.failed)} failed")
    for name in sorted(set(progress.failed)):
        print(f"FAILED {name}")
    return 1 if progress.failed else 0 if passed == wanted else 3


if __name__ == "__main__":
    sys.exit(main())
