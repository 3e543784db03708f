"""What tools/gpu_gate and tools/cpu_gate share: the command line, and parts that are resumed."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from builds import ROOT, Build, GateError, builds_of, commit_of, make, pack
from parts import Context, Part
from store import AFTER, BEFORE, TRIES, Run, Store
from summary import PASSED, UNFINISHED, WRONG, report, to_run

# Where programs may run 10 minutes, a command ends a little earlier.
GPU_MINUTES, CPU_MINUTES = 9.0, 600.0


def refusal(part: Part, gpus: int) -> str:
    """Why a part cannot run here; empty if it can."""
    if gpus < part.least_gpus:
        return f"needs {part.least_gpus} GPUs or more, not {gpus}"
    if "root" in part.needs and os.geteuid() != 0:
        return "needs root"
    if "torch" in part.needs and importlib.util.find_spec("torch") is None:
        return "needs PyTorch"
    return ""


def choose(parts: Sequence[Part], names: Sequence[str], left_out: Mapping[str, str]) -> list[Part]:
    """The parts of these names, or all that this machine can run.

    Raises:
        GateError: There is no such part, or it or none can run here.
    """
    by_name = {part.name: part for part in parts}
    for name in names:
        if name not in by_name:
            raise GateError(f"{name} is not a part; there are {', '.join(by_name)}")
        if name in left_out:
            raise GateError(f"{name} {left_out[name]}")
    if names:
        return [by_name[name] for name in names]
    if all(part.name in left_out for part in parts):
        raise GateError(f"no part can run here: {parts[0].name} {left_out[parts[0].name]}")
    return [part for part in parts if part.name not in left_out]


def measure_all(
    chosen: Sequence[Part],
    store: Store,
    builds: Mapping[str, Build],
    context: Context,
    *,
    named: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Runs what is missing until the deadline; False if something is left for another command.

    The first turn always begins. A later one begins if both its runs can end in time, as far as is
    known. A part that fails is left to the next command; once it has failed twice, it runs only by
    name.
    """
    is_first, begun = True, None
    for part in chosen:
        if len(store.failures(part.name)) >= TRIES and not named:
            continue
        if not part.is_test:
            store.forget_half_turns(part.name)
        while waiting := to_run(part, store):
            turn, name = waiting[0]
            if (part.name, turn) != begun:
                runs = 1 if part.is_test else 2
                ends = clock() + runs * store.expected_seconds(part.name)
                if not is_first and ends > context.deadline:
                    return False
                is_first, begun = False, (part.name, turn)
            run = run_once(part, turn, builds[name], context, clock)
            store.add(run)
            said = run.failed or f"{run.seconds:.0f} s"
            print(f"{part.name}, turn {turn + 1}, {name}: {said}", flush=True)
            if run.failed:
                break
    return True


def is_complete(shown: Sequence[Part], store: Store, left_out: Mapping[str, str]) -> bool:
    """Whether all runs are there of the parts that can run here and did not fail."""
    possible = (part for part in shown if part.name not in left_out)
    return not any(to_run(part, store) for part in possible if not store.failures(part.name))


def run_once(
    part: Part, turn: int, build: Build, context: Context, clock: Callable[[], float]
) -> Run:
    """One run of a part, which may fail."""
    began = clock()
    try:
        found = part.measure(build, context)
    except (GateError, OSError, ValueError, KeyError, TypeError) as error:
        failed = f"{type(error).__name__}: {error}"
        return Run(part.name, turn, build.name, clock() - began, failed=failed)
    return Run(part.name, turn, build.name, clock() - began, found.values, found.nccl)


def parse(description: str, words: Sequence[str], *, is_gpu: bool) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=f"tools/{name_of(is_gpu)}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("before", help="a commit")
    add("after", help="a commit")
    if is_gpu:
        add("folder", type=Path, help="the folder that keeps sources and runs")
    else:
        add("--folder", type=Path, help="the folder that keeps sources and runs")
    add("parts", nargs="*", metavar="PART", help="the parts to run; all by default")
    minutes = GPU_MINUTES if is_gpu else CPU_MINUTES
    add("--minutes", type=float, default=minutes, help=f"the time limit; {minutes:g} by default")
    add("--every-case", action="store_true", help="report cases that are not slower, too")
    add("--report", action="store_true", help="report without measuring")
    add("--pack", action="store_true", help="write both sources into the folder, and end")
    add("--list", action="store_true", help="list the parts, and end")
    return parser.parse_intermixed_args(words)


def name_of(is_gpu: bool) -> str:
    return "gpu_gate" if is_gpu else "cpu_gate"


def default_folder(before: str, after: str) -> Path:
    """The folder of two commits, for a gate that was not given one."""
    hashes = [commit_of(revision, ROOT)[0][:12] for revision in (before, after)]
    return ROOT / "build" / "gate" / "-".join(hashes)


def run_gate(
    options: argparse.Namespace, parts: Sequence[Part], gpus: int, machine: str, *, is_gpu: bool
) -> int:
    """Measures and reports; the exit status."""
    began = time.monotonic()
    folder = options.folder or default_folder(options.before, options.after)
    commits = pack(folder, {BEFORE: options.before, AFTER: options.after})
    if options.pack:
        return PASSED
    store = Store(folder)
    left_out = {part.name: why for part in parts if (why := refusal(part, gpus))}
    if options.report:
        # A report may be made on another machine.
        left_out = {}
    else:
        chosen = choose(parts, options.parts, left_out)
        context = Context(gpus, folder.resolve(), began + 60 * options.minutes)
        builds = {build.name: build for build in builds_of(commits, cuda=is_gpu)}
        for build in builds.values():
            if seconds := make(build, folder, cuda=is_gpu, log=folder / "log.txt"):
                print(f"built {build.name} in {seconds:.0f} s", flush=True)
        measure_all(chosen, store, builds, context, named=bool(options.parts))
    shown = [part for part in parts if not options.parts or part.name in options.parts]
    lines, status = report(shown, store, left_out, every_case=options.every_case)
    about = [f"BEFORE {commits[BEFORE]}", f"AFTER  {commits[AFTER]}", machine]
    text = "\n".join([*about, "Ratios are AFTER / BEFORE; above 1 is slower.", "", *lines])
    (folder / "report.txt").write_text(text + "\n")
    print(text)
    if not is_complete(shown, store, left_out):
        print(f"\nRuns are left: the next tools/{name_of(is_gpu)} goes on from here.")
        return UNFINISHED
    return status


def main(
    description: str,
    parts: Sequence[Part],
    gpus: int,
    machine: Callable[[], str],
    words: Sequence[str] | None = None,
) -> int:
    """Runs a gate from its command line; the exit status."""
    is_gpu = any(part.least_gpus for part in parts)
    words = sys.argv[1:] if words is None else words
    if "--list" in words:
        print("\n".join(f"{part.name:20} {part.what}" for part in parts))
        return PASSED
    options = parse(description, words, is_gpu=is_gpu)
    try:
        return run_gate(options, parts, gpus, machine(), is_gpu=is_gpu)
    except GateError as error:
        print(f"{name_of(is_gpu)}: {error}", file=sys.stderr)
        return WRONG
