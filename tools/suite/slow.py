"""Tests that take long, from a run's reports, against tests/slow_tests.toml.

    python tools/suite/slow.py [--build BUILD]    exits with 1 if a test is slow and not on the list
    python tools/suite/slow.py --entries          prints the list that the last run would have

A C++ test is listed as `program: Suite.Name`, a Python test as `file::name`, both without their
parameters: the slowest counts. The list says how many seconds each takes on an idle machine, so
that a loaded one has the same verdict: there, the limit grows as the listed tests do.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "tests" / "slow_tests.toml"

LIMIT_SECONDS = 5.0
QUICK_SECONDS = 1.0  # what takes less needs no place on the list


def read_list(path: Path = LIST) -> dict[str, float]:
    """The listed tests and the seconds that each takes on an idle machine."""
    tables = tomllib.loads(path.read_text())
    return {**tables["cpp"], **tables["python"]}


def _cpp_seconds(results_folder: Path) -> Iterable[tuple[str, float]]:
    for path in sorted(results_folder.rglob("*.json")):
        program = re.sub(r"_\d+$", "", path.stem)  # GoogleTest numbers a program's second report
        for suite in json.loads(path.read_text())["testsuites"]:
            for case in suite["testsuite"]:
                name = f"{case['classname'].rpartition('/')[2]}.{case['name'].partition('/')[0]}"
                yield f"{program}: {name}", float(str(case.get("time", "0s")).rstrip("s"))


def _python_seconds(path: Path) -> Iterable[tuple[str, float]]:
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        module = str(case.get("classname", "")).replace(".", "/")
        name = str(case.get("name", "")).partition("[")[0]
        yield f"{module}.py::{name}", float(case.get("time", 0))


def measured(results_folder: Path, junit_files: Iterable[Path]) -> dict[str, float]:
    """Seconds by test; of several cases and reports the longest."""
    seconds: dict[str, float] = {}
    cases = list(_cpp_seconds(results_folder))
    for path in junit_files:
        cases += _python_seconds(path)
    for name, taken in cases:
        seconds[name] = max(taken, seconds.get(name, 0.0))
    return seconds


def slowdown(seconds: Mapping[str, float], listed: Mapping[str, float]) -> float:
    """How much longer the listed tests take here than on an idle machine; at least 1."""
    ratios = [seconds[name] / usual for name, usual in listed.items() if name in seconds and usual]
    return max(1.0, median(ratios)) if ratios else 1.0


def over_limit(
    results_folder: Path,
    junit_files: Iterable[Path],
    listed: Mapping[str, float],
    limit_seconds: float = LIMIT_SECONDS,
) -> list[str]:
    """The tests that take longer than the limit and are not listed, the slowest first."""
    seconds = measured(results_folder, junit_files)
    limit = limit_seconds * slowdown(seconds, listed)
    slow = [name for name, taken in seconds.items() if taken > limit and name not in listed]
    return sorted(slow, key=lambda name: -seconds[name])


def quick(
    results_folder: Path, junit_files: Iterable[Path], listed: Mapping[str, float]
) -> list[str]:
    """The listed tests that take less than a second; what did not run is not among them."""
    seconds = measured(results_folder, junit_files)
    return sorted(name for name in listed if 0 < seconds.get(name, 0.0) < QUICK_SECONDS)


def report(
    results_folder: Path, junit_files: Iterable[Path], listed: Mapping[str, float]
) -> list[str]:
    """A line for each test that is slow and not listed, and for each that is listed and quick."""
    files = list(junit_files)
    seconds = measured(results_folder, files)
    limit = LIMIT_SECONDS * slowdown(seconds, listed)
    return [
        *(
            f"SLOW {name}: {seconds[name]:.1f} s, more than {limit:.1f}, and not in {LIST.name}"
            for name in over_limit(results_folder, files, listed)
        ),
        *(
            f"QUICK {name}: {seconds[name]:.2f} s; take it off {LIST.name}"
            for name in quick(results_folder, files, listed)
        ),
    ]


def entries(results_folder: Path, junit_files: Iterable[Path]) -> list[str]:
    """The lines of a list of all tests over the limit: on an idle machine, those of the file."""
    seconds = measured(results_folder, junit_files)
    slow = sorted(name for name, taken in seconds.items() if taken > LIMIT_SECONDS)
    cpp = [f'"{name}" = {seconds[name]:.1f}' for name in slow if "::" not in name]
    python = [f'"{name}" = {seconds[name]:.1f}' for name in slow if "::" in name]
    return [f"most = {len(slow)}", "", "[cpp]", *cpp, "", "[python]", *python]


def main() -> int:
    """Prints the report of the last run."""
    parser = argparse.ArgumentParser(description="Tests that take long, in the last run's reports.")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build folder")
    parser.add_argument("--entries", action="store_true", help="print what could be listed")
    arguments = parser.parse_args()
    build = arguments.build
    results, files = build / "test" / "results", sorted((build / "logs").glob("*.xml"))
    if arguments.entries:
        print(*entries(results, files), sep="\n")
        return 0
    listed = read_list()
    print(*report(results, files, listed), sep="\n")
    return 1 if over_limit(results, files, listed) else 0


if __name__ == "__main__":
    sys.exit(main())
