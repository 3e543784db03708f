"""The library of programs on GPUs: compiled, run by the GPU engine, and compared with NumPy.

    python studies/language/gpu_programs.py [--shapes 2x1,4x1,4x2,8x2] [-o FILE]

A shape is ranks x nodes that programs are compiled for. Rank r takes GPU r, or shares one where
there are fewer. Every program of examples/language is tried in every protocol, in place and out of
place as far as it is written so, with blocks of each size. A wrong result ends with status 1.
"""

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from unisono import _unisono as native
from unisono import lang
from unisono.cli.programs import wrong_ranks
from unisono.devices import run_all_on_devices
from unisono.errors import MisuseError
from unisono.lang.run import Array
from unisono.lang.run import run as run_on_host

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "examples" / "language"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from report import finish  # noqa: E402
from support.program_mutation import expected  # noqa: E402

PROTOCOLS = ("simple", "ll", "ll128")
COUNTS = (0, 1, 29, 100_003)  # elements of a block
ROOTED = ("broadcast", "reduce", "gather", "scatter")


def plans_of(program: lang.Program, ranks: int, nodes: int) -> list[native.Plan]:
    """The plans to try; none if the program needs another number of ranks."""
    places = {False, program.in_place and program.collective not in ROOTED}
    plans = []
    for in_place in sorted(places):
        for protocol in PROTOCOLS:
            try:
                compiled = program.compile(ranks, nodes, in_place=in_place, protocol=protocol)
            except lang.ProgramError:
                raise
            except MisuseError:  # the program's own check
                return []
            plans.append(compiled.plan)
    return plans


@dataclass(frozen=True)
class Trial:
    """One plan with one input a rank."""

    program: lang.Program
    shape: tuple[int, int]
    plan: native.Plan
    inputs: list[Array]


def trials_of(programs: list[lang.Program], shape: tuple[int, int]) -> list[Trial]:
    """All plans of a shape, each with blocks of every size."""
    rng = np.random.default_rng(11)
    return [
        Trial(program, shape, plan, [
            rng.integers(-999, 999, plan.input_blocks(rank) * count, np.int32)
            for rank in range(plan.ranks)
        ])
        for program in programs
        for plan in plans_of(program, *shape)
        for count in COUNTS
    ]  # fmt: skip


def run(trials: list[Trial], device: str) -> Counter[tuple[str, tuple[int, int]]]:
    """How many results are wrong, by program and shape; all of one number of ranks."""
    runs = [(one.plan, one.inputs) for one in trials]
    if device == "cuda":
        results = run_all_on_devices(runs)
    else:
        results = [run_on_host(plan, inputs) for plan, inputs in runs]
    return Counter(
        (one.program.name, one.shape)
        for one, outputs in zip(trials, results, strict=True)
        if not is_right(one.program, one.plan, one.inputs, outputs)
    )


def is_right(
    program: lang.Program, plan: native.Plan, inputs: list[Array], outputs: list[Array]
) -> bool:
    """Whether every rank holds what NumPy says, where anything is asked."""
    wanted = expected(plan.collective, program.name, inputs)
    return not wrong_ranks(outputs, wanted)


def shape_of(text: str) -> tuple[int, int]:
    ranks, _, nodes = text.partition("x")
    return int(ranks), int(nodes or 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="2x1,4x1,4x2,8x2")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    shapes = [shape_of(one) for one in arguments.shapes.split(",")]
    where = "host memory" if arguments.device == "cpu" else f"{native.cuda_device_count()} GPUs"
    (programs,) = zip(*(lang.load(path) for path in sorted(LIBRARY.glob("*.py"))), strict=True)
    asked: Counter[tuple[str, tuple[int, int]]] = Counter()
    wrong: Counter[tuple[str, tuple[int, int]]] = Counter()
    for ranks in sorted({ranks for ranks, _ in shapes}):
        # One job for each number of ranks: making communicators takes longer than their calls.
        started = time.monotonic()
        trials = [
            one for shape in shapes if shape[0] == ranks for one in trials_of(programs, shape)
        ]
        asked.update((one.program.name, one.shape) for one in trials)
        wrong.update(run(trials, arguments.device))
        print(
            f"{len(trials)} calls of {ranks} ranks: {time.monotonic() - started:.1f} s", flush=True
        )
    lines = [
        f"Made by studies/language/gpu_programs.py, {time.strftime('%Y-%m-%d')}, on {where}: "
        "results that are right, of those asked for.",
        f"Protocols {', '.join(PROTOCOLS)}; blocks of {', '.join(map(str, COUNTS))} elements.",
        "",
        "| program | " + " | ".join(f"{r} ranks, nodes: {n}" for r, n in shapes) + " |",
        "|---" * (1 + len(shapes)) + "|",
    ]
    for program in programs:
        cells = [
            f"{asked[key] - wrong[key]} of {asked[key]}" if asked[key] else ""
            for key in ((program.name, shape) for shape in shapes)
        ]
        lines.append(f"| `{program.name}` | {' | '.join(cells)} |")
    lines += ["", f"{wrong.total()} wrong"]
    finish(lines, arguments.output)
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
