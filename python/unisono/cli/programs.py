"""`unisono plan compile`, `run` and `diff`: programs become plans, and plans work."""

import difflib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unisono import _unisono as native
from unisono import plans
from unisono.cli.formats import FORMAT_HELP, Format, PlanFile, Target, executor_of, written
from unisono.cli.output import (
    DEFAULT_RANKS,
    Nodes,
    Output,
    Ranks,
    print_raw,
    print_table,
    print_text,
    write_file,
)
from unisono.errors import MisuseError
from unisono.exchange import read_plan
from unisono.memory import free_memory_bytes

# NumPy takes longer to import than --help may take, and the language needs it.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from unisono import lang
    from unisono.lang.run import Array


def compile_program(
    path: Annotated[Path, typer.Argument(metavar="PROGRAM", help="A Python file, which is run.")],
    output: Output = None,
    form: Annotated[Format | None, typer.Option("--to", help=FORMAT_HELP)] = None,
    target: Target = None,
    name: Annotated[
        str | None, typer.Option("--program", help="Which one, if the file has several.")
    ] = None,
    ranks: Ranks = DEFAULT_RANKS,
    nodes: Nodes = 1,
    root: Annotated[int, typer.Option(help="Of collectives that have one.")] = 0,
    instances: Annotated[int, typer.Option(min=1, help="Of the whole program.")] = 1,
    protocol: Annotated[str, typer.Option(help="simple, ll or ll128.")] = "simple",
    in_place: Annotated[bool, typer.Option("--in-place", help="For calls in place.")] = False,
    dump_after: Annotated[
        str | None, typer.Option(metavar="PASS", help="Show the state after a pass and stop.")
    ] = None,
) -> None:
    """Compile a program of the language to a verified plan; or say on which line it is wrong.

    Writes the plan to --output; without --to, the endings .json and .xml choose the format.
    """
    from unisono import lang

    program = _choose(lang.load(path), name, path)
    if form is None:
        form = Format.of(output)
    options = {
        "instances": instances, "protocol": protocol, "in_place": in_place,
        "target": executor_of(form, target),
    }  # fmt: skip
    if dump_after is not None:
        print_raw(program.dump_after(dump_after, ranks, nodes, root=root, **options))
        return
    started = time.process_time()
    build = program.trace(ranks, nodes, root=root)
    traced = time.process_time() - started
    compiled = build.compile(options)
    plan = compiled.plan
    if output is None:
        print_raw(written(plan, form, target))
        return
    write_file(output, written(plan, form, target))
    rows = [("trace", traced), *compiled.timings]
    print_table(("pass", "ms"), [(one, f"{seconds * 1e3:.1f}") for one, seconds in rows],
                right=("ms",))  # fmt: skip
    print_text(
        f"{plan.name} on {plan.ranks} ranks: {build.operations:,} steps of the program, "
        f"{compiled.steps:,} of the plan, verified; {output}"
    )


def run(
    file: PlanFile,
    count: Annotated[int, typer.Option(min=0, help="Elements of a block.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the random data.")] = 1,
    device: Annotated[
        str, typer.Option(metavar="cpu|cuda", help="Whose memory; cuda takes the GPU engine.")
    ] = "cpu",
) -> None:
    """Run a plan, all ranks in one process, and compare with NumPy.

    On host memory, or with --device cuda on GPUs: rank r on GPU r, or shared where there are fewer.

    Exit status 1 if a result is wrong. A custom plan is run without comparing: only who wrote it
    knows what it should give.
    """
    import numpy as np

    from unisono import lang

    if device not in ("cpu", "cuda"):
        raise MisuseError(f"device is '{device}'; it is cpu or cuda")
    plan = read_plan(file)
    _check_room(plan, count)
    if device == "cpu":
        _check_slots(plan)
    rng = np.random.default_rng(seed)
    inputs = [
        rng.integers(-1000, 1000, plan.input_blocks(rank) * count) for rank in range(plan.ranks)
    ]
    wanted = None if plan.collective == "custom" else expected_outputs(plan, inputs)
    started = time.perf_counter()
    if device == "cuda":
        from unisono.devices import run_on_devices

        outputs = run_on_devices(plan, inputs)
    else:
        outputs = lang.run(plan, inputs)
    seconds = time.perf_counter() - started
    ran = f"{plan.name}, {plan.ranks} ranks, blocks of {count}"
    if wanted is None:
        print_text(f"{ran}: ran to its end, {seconds:.3f} s; nothing to compare a custom plan with")
        return
    wrong = wrong_ranks(outputs, wanted)
    verdict = f"WRONG on ranks {wrong}" if wrong else "right"
    print_text(f"{ran}: {verdict}, {seconds:.3f} s")
    raise typer.Exit(1 if wrong else 0)


# Input, output, what is expected, and what NumPy makes on the way.
_COPIES = 4
_ELEMENT_BYTES = 8


def _check_room(plan: plans.Plan, count: int) -> None:
    """MisuseError if the run would need more memory than there is."""
    blocks = sum(
        plan.input_blocks(rank) + plan.output_blocks(rank) + plan.scratch_blocks(rank)
        for rank in range(plan.ranks)
    )
    needed = blocks * count * _ELEMENT_BYTES * _COPIES
    free = free_memory_bytes()
    if needed > free:
        most = free // max(1, blocks * _ELEMENT_BYTES * _COPIES)
        raise MisuseError(
            f"--count {count}: {blocks} blocks of so many elements need "
            f"{native.format_bytes(needed)} in all, and {native.format_bytes(free)} of memory are "
            f"free; up to {most} elements fit"
        )


def _check_slots(plan: plans.Plan) -> None:
    """MisuseError if ranks would wait for slots until the timeout; another mistake shows itself."""
    slots = next(int(row.value) for row in native.settings() if row.variable == "UNISONO_SLOTS")
    # In shared memory all of them are free.
    needed = plan.verify(slots).slots
    if needed > slots:
        raise MisuseError(
            f"plan {plan.name} needs {needed} slots in a connection, and UNISONO_SLOTS is {slots}"
        )


def diff(
    first: PlanFile,
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="The plan to compare with.")],
) -> None:
    """Show how two plans differ. Exit status 1 if they do."""
    one, other = (read_plan(path).to_text().splitlines() for path in (first, second))
    lines = list(difflib.unified_diff(one, other, str(first), str(second), lineterm=""))
    print_raw("\n".join(lines) if lines else "the same plan")
    raise typer.Exit(1 if lines else 0)


def _choose(programs: "list[lang.Program]", name: str | None, path: Path) -> "lang.Program":
    names = [one.name for one in programs]
    if name is None and len(programs) == 1:
        return programs[0]
    if name is None or name not in names:
        asked = f"no program '{name}'" if name else "several programs"
        known = ", ".join(dict.fromkeys(names))
        raise MisuseError(f"{path} has {asked}; --program names one of {known}")
    if names.count(name) > 1:
        lines = [str(one.line) for one in programs if one.name == name]
        raise MisuseError(
            f"{path} has {names.count(name)} programs '{name}', in lines {', '.join(lines)}; give "
            "each its name: @program(..., name=...)"
        )
    return programs[names.index(name)]


def wrong_ranks(outputs: "Sequence[Array]", wanted: "Sequence[Array | None]") -> list[int]:
    """Ranks whose output is not what is wanted; of those for which None is, anything is right."""
    import numpy as np

    return [
        rank
        for rank, (output, right) in enumerate(zip(outputs, wanted, strict=True))
        if right is not None and not np.array_equal(output, right)
    ]


def expected_outputs(
    plan: plans.Plan, inputs: "list[npt.NDArray[np.int64]]"
) -> "list[npt.NDArray[np.int64] | None]":
    """What every rank's output must be; None where anything may be."""
    import numpy as np

    total = np.sum(inputs, axis=0) if plan.collective in _REDUCTIONS else np.zeros(0, np.int64)
    count = total.size // max(plan.ranks, 1)
    match plan.collective:
        case "all_reduce":
            return [total] * plan.ranks
        case "reduce":
            return [total if rank == plan.root else None for rank in range(plan.ranks)]
        case "reduce_scatter":
            return [total[rank * count : (rank + 1) * count] for rank in range(plan.ranks)]
        case "all_gather":
            return [np.concatenate(inputs)] * plan.ranks
        case "broadcast":
            return [inputs[plan.root]] * plan.ranks
        case "all_to_all":
            blocks = [np.split(one, plan.ranks) for one in inputs]
            return [np.concatenate([one[rank] for one in blocks]) for rank in range(plan.ranks)]
        case "gather":
            whole = np.concatenate(inputs)
            return [whole if rank == plan.root else None for rank in range(plan.ranks)]
        case "scatter":
            return list(np.split(inputs[plan.root], plan.ranks))
    raise MisuseError(f"what {plan.collective} gives is not known here; unisono.lang.run runs it")


_REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
