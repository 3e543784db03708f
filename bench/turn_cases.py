"""The cases of turns.py: what one run of a build measures."""

import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
# Few sizes run, each for a short time, as tools/gpu_gate has them.
ON_DEVICES = (
    *("--device", "cuda", "--type", "bfloat16", "--min", "1KiB", "--max", "256MiB"),
    *("--factor", "16", "--seconds", "0.02"),
)
VERIFY = ("plan", "verify", "--all", "--ranks", "2..64")
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
_LINE = re.compile(r"(\w+) +(\d+ \w+) +([\d.]+) us")

Times = dict[str, float]


@dataclass(frozen=True)
class Case:
    """What can be compared.

    Attributes:
        what: What it measures, and of what builds.
        measure: Runs a build once, with more arguments; the measurements by name, less is better.
    """

    what: str
    measure: Callable[[str, Sequence[str]], Times]


def lines_of(text: str) -> Times:
    """Microseconds by case of a bench's lines."""
    found = (_LINE.match(line) for line in text.splitlines())
    return {f"{one[1]} {one[2]}": float(one[3]) for one in found if one}


def _lines(command: str, arguments: Sequence[str]) -> Times:
    words = [*shlex.split(command), *arguments]
    return lines_of(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def _unisono(folder: str, arguments: Sequence[str]) -> None:
    """Runs the command line of a folder's package."""
    folder = os.path.realpath(folder)
    subprocess.run(
        [sys.executable, "-c", PROGRAM, folder, *arguments],
        env={**os.environ, "PYTHONPATH": folder}, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip


def _verify(folder: str, arguments: Sequence[str]) -> Times:
    """CPU seconds of all threads, in which other work on the machine does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _unisono(folder, arguments or VERIFY)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"CPU seconds": seconds}


def _device(folder: str, arguments: Sequence[str]) -> Times:
    named = arguments and not arguments[0].startswith("-")
    with tempfile.TemporaryDirectory() as place:
        written = Path(place) / "rows.json"  # the command replaces the file that it writes
        options = [*([] if named else COLLECTIVES), *arguments, "--json", str(written)]
        _unisono(folder, ["bench", *ON_DEVICES, *options])
        rows = json.loads(written.read_text())["rows"]
    return {
        f"{row['collective']} {row['bytes']}, {row['mode']}{', in place' * row['in_place']}":
            row["time_us"]
        for row in rows
    }  # fmt: skip


CASES = {
    "lines": Case("programs that print lines as call_bench does: commands with arguments", _lines),
    "verify": Case("the CPU seconds of `unisono plan verify --all`: installed packages", _verify),
    "device": Case("`unisono bench --device cuda`, eager and graphs: installed packages", _device),
}
