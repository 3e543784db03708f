"""Every option and argument of a command that names a file, with a command line that uses it.

`test_files_written` and `test_files_read` try each of them on what a stranger can plant, and fail
where a command has one that is missing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer.main
from python.doctor.dumps import write
from python.doctor.jobs import simulate
from unisono import plans
from unisono.cli.app import app
from unisono.cli.deferred import load_all


@dataclass(frozen=True)
class Use:
    """A command line, in which FILE is the file that is tried.

    Attributes:
        name: What the file is called.
        answers: The exit statuses that are right where the file can be used.
        command: How many words name the command.
    """

    words: str
    name: str = "file.json"
    answers: tuple[int, ...] = (0,)
    command: int = 1

    @property
    def parameter(self) -> tuple[str, str]:
        """The command, and the option that the file is for, or "argument"."""
        words = self.words.split()
        before = words[words.index("FILE") - 1]
        return " ".join(words[: self.command]), before if before.startswith("-") else "argument"

    def arguments(self, file: Path | str, folder: Path) -> list[str]:
        """The words, with the file, and those that `prepare` made in the folder."""
        return [word.replace("FILE", str(file)).replace("FOLDER", str(folder))
                for word in self.words.split()]  # fmt: skip

    def __str__(self) -> str:
        return self.words.replace("FOLDER/", "").replace(" ", "_")


_SIMULATE = "simulate all_reduce --cluster dgx_h100 --ranks 2 --algorithm ring"
_BENCH = "bench all_reduce --ranks 2 --min 8 --max 8 --iterations 1 --algorithm ring"
_CALIBRATE = "calibrate FOLDER/measured.json --cluster dgx_h100 --number protocols.ll.launch"
_CALIBRATE += " --rounds 1 --model alpha_beta"
_TUNE = "tune --cluster dgx_h100 --ranks 2 --collective all_gather --min 8 --max 8"

WRITES = [
    Use("info --json FILE"),
    Use(f"{_BENCH} --json FILE"),
    Use(f"{_BENCH} --html FILE", "file.html"),
    Use("plan verify ring_all_reduce --ranks 2 --json FILE", command=2),
    Use("plan compile FOLDER/program.py --ranks 2 --output FILE", "file.txt", command=2),
    Use("plan cost FOLDER/plan.txt --cluster dgx_h100 --json FILE", command=2),
    Use("plan cost FOLDER/plan.txt --cluster dgx_h100 --goal FILE", "file.goal", command=2),
    Use("plan synthesize --cluster FOLDER/links.yaml --json FILE", command=2),
    Use("plan synthesize --cluster FOLDER/links.yaml --output FILE", "file.txt", command=2),
    Use("plan list --json FILE", command=2),
    Use("plan-training llama3-8b --gpus 8 --json FILE"),
    Use("plan-training llama3-8b --gpus 8 --html FILE", "file.html"),
    Use("plan draw ring_all_reduce --ranks 2 --output FILE", "file.svg", command=2),
    Use("explain all_reduce 8 --ranks 2 --json FILE"),
    Use("place tensor=2 --ranks 2 --json FILE"),
    Use(f"{_SIMULATE} --json FILE"),
    Use(f"{_SIMULATE} --html FILE", "file.html"),
    Use(f"{_SIMULATE} --timeline FILE"),
    Use(f"{_SIMULATE} --goal FILE", "file.goal"),
    Use("doctor FOLDER/records --json FILE", answers=(3,)),
    Use("doctor FOLDER/records --html FILE", "file.html", answers=(3,)),
    Use("doctor FOLDER/records --timeline FILE", answers=(3,)),
    Use("profile FOLDER/records --json FILE"),
    Use("profile FOLDER/records --html FILE", "file.html"),
    Use(f"{_TUNE} --output FILE"),
    Use(f"{_TUNE} -o FOLDER/o --json FILE"),
    Use("chaos --seeds 1 --jobs 1 --json FILE"),
    Use(f"{_CALIBRATE} --output FILE", "file.yaml"),
    Use(f"{_CALIBRATE} --json FILE"),
]
READS = [
    Use("plan cost FILE --cluster dgx_h100", command=2),
    Use("plan run FILE", command=2),
    Use("plan diff FILE FOLDER/plan.txt", command=2),
    Use("plan verify FILE", command=2),
    Use("plan show FILE", command=2),
    Use("plan draw FILE -o FOLDER/drawn.svg", command=2),
    Use("plan synthesize --cluster FILE", "file.yaml", command=2),
    Use("plan cost FOLDER/plan.txt --cluster FILE", "file.yaml", command=2),
    Use("simulate all_reduce --cluster FILE --ranks 2", "file.yaml"),
    Use("plan-training FILE --gpus 8", "file.yaml"),
    Use("plan-training llama3-8b --gpus 8 --cluster FILE", "file.yaml"),
    Use("simulate all_reduce --cluster dgx_h100 --against FILE"),
    Use("simulate --cluster dgx_h100 --workload FILE", "file.yaml"),
    Use("simulate --cluster dgx_h100 --workload FILE", "file.goal"),
    Use("simulate --cluster dgx_h100 --workload FILE", "file.bin"),
    Use("doctor FILE"),
    Use("doctor FILE --timeline FOLDER/timeline.json"),
    Use("profile FILE"),
    Use("tune --cluster FILE --ranks 2 -o FOLDER/o.json", "file.yaml"),
    Use("calibrate FILE --cluster dgx_h100"),
    Use("calibrate FOLDER/measured.json --cluster FILE", "file.yaml"),
]
# Why a parameter that names a file is not tried here.
EXCUSED = {
    ("ras", "--json"): "it needs a running job; `put_json` is what all commands have",
    ("doctor", "--flight-recorder"): "a folder: test_files_written has it by itself",
    ("plan compile", "argument"): "a program, which is run",
}


def prepare(folder: Path) -> None:
    """Makes what the command lines above read."""
    write(simulate(7, "skip"), folder / "records", "unisono")
    (folder / "plan.txt").write_text(
        plans.find_algorithm("ring_all_reduce").plan(plans.Placement(2)).to_text()
    )
    (folder / "program.py").write_text(
        "from unisono.lang import program\n"
        '@program("all_gather", in_place=True)\n'
        "def gather(p):\n"
        "    for rank in range(p.ranks):\n"
        "        for to in range(p.ranks):\n"
        "            if to != rank:\n"
        '                p.chunk(rank, "output", rank).copy(to)\n'
    )
    (folder / "links.yaml").write_text(
        "format: 1\nname: ring\ndescription: a ring\nsources: {us: made up}\nranks: 2\n"
        'links:\n  - {ring: [0, 1], latency: "1 us [us]", bandwidth: "10 GB/s [us]"}\n'
    )
    rows = ", ".join(
        '{"implementation": "unisono", "algorithm": "ring", "protocol": "simple", "type": '
        '"float32", "nodes": 1, "collective": "all_reduce", "ranks": 2, "time_us": '
        f'{20 + size / 1e6}, "bytes": {size}}}'
        for size in (1 << 10, 1 << 14, 1 << 18, 1 << 22)
    )
    (folder / "measured.json").write_text(f'{{"rows": [{rows}]}}')


def file_parameters() -> Iterator[tuple[str, str]]:
    """Commands with the longest name of each option of a path, or "argument"."""

    def of(prefix: str, command: Any) -> Iterator[tuple[str, str]]:
        if hasattr(command, "commands"):
            for name, one in command.commands.items():
                yield from of(f"{prefix} {name}".strip(), one)
            return
        for parameter in command.params:
            if str(parameter.bare_type()) in ("Path", "list[Path]"):
                options = [one for one in parameter.opts if one.startswith("-")]
                yield prefix, max(options, key=len, default="argument")

    yield from of("", load_all(typer.main.get_command(app)))
