"""`unisono plan-training`: the layouts of parallelism whose training steps are shortest."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unisono.cli.output import Html, Json, print_table, print_text, put_json, write_file
from unisono.cli.simulation import load_simulator
from unisono.errors import MisuseError
from unisono.levels import parse_groups

if TYPE_CHECKING:
    from unisono.simulate import Model
    from unisono.simulate.nccl import MachineFile
    from unisono.simulate.plan_training import Job, Plan, Search

# Without --gpu, a generation of GPUs is taken for this one.
_GPUS = {"ampere": "a100", "hopper": "h100"}
_KINDS = ("tensor", "pipeline", "virtual", "context", "expert", "shard", "replicate")
# Sequences of a step for each GPU where --sequences does not say it.
_SEQUENCES_A_GPU = 2


def plan_training(
    model: Annotated[
        str, typer.Argument(help="llama3-8b, gpt-175b, mixtral-8x7b ..., or a YAML file.")
    ],
    gpus: Annotated[int, typer.Option("--gpus", "-n", min=1, help="How many GPUs there are.")],
    cluster: Annotated[
        str, typer.Option(help="A machine of NCCL's model: dgx_h100, ..., or a file of format 2.")
    ] = "dgx_h100",
    gpu: Annotated[
        str, typer.Option(help="a100, h100 or h200. Default: what the cluster has.")
    ] = "",
    sequences: Annotated[
        int, typer.Option(min=0, help="Sequences of a step, on all GPUs. 0: two for each GPU.")
    ] = 0,
    sequence: Annotated[
        int, typer.Option(min=0, help="Tokens of a sequence. 0: as the model says.")
    ] = 0,
    layout: Annotated[
        str,
        typer.Option(
            help="What is not searched, as tensor=8,pipeline=16: these, virtual, context, expert, "
            "shard and micro_batch."
        ),
    ] = "",
    memory: Annotated[
        float, typer.Option(min=0, help="GB of a GPU's memory. 0: as its data sheet says.")
    ] = 0.0,
    gradient_bytes: Annotated[
        int, typer.Option(min=2, max=4, help="Bytes of a gradient: 4 (as Megatron), or 2.")
    ] = 4,
    no_overlap: Annotated[
        bool,
        typer.Option(
            "--no-overlap", help="Tensor and context parallelism wait for their communication."
        ),
    ] = False,
    count: Annotated[int, typer.Option(min=1, max=100, help="Layouts to show.")] = 10,
    html: Html = None,
    json: Json = None,
) -> None:
    """Say which layouts of parallelism make a model's training step shortest.

    Each layout has the time of its step, MFU, memory of a GPU and exposed communication, with
    intervals. The exposed communication is what the slowest stage waits for.
    """
    load_simulator()
    from dataclasses import replace

    from unisono.simulate import find_device, nccl
    from unisono.simulate import plan_training as planner

    chosen = _model(model)
    chosen = replace(chosen, sequence=sequence) if sequence else chosen
    machine = nccl.find_machine(cluster)
    device = find_device(gpu or _gpu_of(machine))
    job = planner.Job(
        chosen, gpus, (sequences or _SEQUENCES_A_GPU * gpus) * chosen.sequence,
        replace(device, memory_gb=memory or device.memory_gb), machine,
        overlap=not no_overlap, gradient_bytes=gradient_bytes,
        fixed={one.name: one.size for one in parse_groups(layout)} if layout else {},
    )  # fmt: skip
    found = planner.plan_training(job, count)
    if html is not None:
        from unisono.report.training import report_of_plans

        write_file(html, report_of_plans(job, found.plans, _passes(job, found.plans[0])))
    if put_json(json, _document(job, found), "plan-training"):
        return
    _show(job, found)


def _model(name: str) -> "Model":
    from unisono.simulate import find_model, load_model

    return load_model(Path(name)) if Path(name).suffix in (".yaml", ".yml") else find_model(name)


def _gpu_of(machine: "MachineFile") -> str:
    generation = machine.hardware.gpu
    if "h200" in machine.name:
        return "h200"
    if generation not in _GPUS:
        raise MisuseError(
            f"{machine.name} has {generation} GPUs, whose kernels are not known; name one that is "
            "with --gpu"
        )
    return _GPUS[generation]


def _passes(job: "Job", plan: "Plan") -> list[Any]:
    """The best plan's passes, as spans in the order of their beginnings."""
    if plan.layout.pipeline == 1:
        return []
    from unisono.draw.timeline import Span
    from unisono.simulate import plan_training as planner

    timed = planner.schedule_of(planner.question_of(job, plan), plan.step.batches)
    spans = [
        Span(
            f"stage {one.stage}",
            f"{'forward' if one.slot.is_forward else 'backward'}, micro-batch {one.slot.batch}, "
            f"chunk {one.slot.chunk}",
            one.began / 1e9, one.ended / 1e9, str(one.slot.batch), f"chunk {one.slot.chunk}",
            is_pale=not one.slot.is_forward,
        )
        for one in timed
    ]  # fmt: skip
    # Rows come in the order of their first spans, which is that of the stages.
    return sorted(spans, key=lambda span: span.began_s)


def _document(job: "Job", found: "Search") -> dict[str, Any]:
    return {
        "model": job.model.name,
        "parameters": job.model.parameters,
        "gpus": job.gpus,
        "cluster": job.machine.name,
        "tokens": job.tokens,
        "tried": found.tried,
        "too_large": found.too_large,
        "pruned": found.pruned,
        "plans": [
            {name: getattr(one.layout, name) for name in _KINDS}
            | {
                "micro_batch": one.how.micro_batch,
                "micro_batches": one.step.batches,
                "recompute": one.how.recomputes,
                "step_s": _ends(one, "time_s"),
                "mfu": _ends(one, "mfu"),
                "exposed_s": _ends(one, "exposed_s"),
                "memory_bytes": {
                    "value": one.step.memory.total,
                    "low": one.step.memory.total,
                    "high": one.step.memory.high,
                },
                "memory_parts_bytes": {
                    part: getattr(one.step.memory, part)
                    for part in ("parameters", "gradients", "optimizer", "activations", "buffers",
                                 "runtime")
                },
                "seconds": one.step.seconds,
            }
            for one in found.plans
        ],
    }  # fmt: skip


def _ends(plan: "Plan", name: str) -> dict[str, float]:
    value, *ends = (getattr(step, name) for step in (plan.step, plan.low, plan.high))
    return {"value": value, "low": min(value, *ends), "high": max(value, *ends)}


def _show(job: "Job", found: "Search") -> None:
    print_text(
        f"{job.model.name}, {job.model.parameters / 1e9:,.1f} billion parameters, on {job.gpus:,} "
        f"GPUs of {job.machine.name}: {job.tokens // job.model.sequence:,} sequences of "
        f"{job.model.sequence:,} tokens a step"
    )
    right = ("tp", "pp", "vp", "cp", "ep", "dp", "fsdp", "mbs", "step\ns", "s", "MFU\n%", "%",
             "memory\nGB", "exposed\ns", "exp. s")  # fmt: skip
    print_table(
        ("tp", "pp", "vp", "cp", "ep", "dp", "fsdp", "mbs", "recompute", "step\ns", "s", "MFU\n%",
         "%", "memory\nGB", "exposed\ns", "exp. s"),
        [
            (one.layout.tensor, one.layout.pipeline, one.layout.virtual, one.layout.context,
             one.layout.expert, one.layout.shard * one.layout.replicate, one.layout.sharing,
             one.how.micro_batch, one.how.recomputes, f"{one.step.time_s:.2f}",
             _range(one, "time_s"), f"{100 * one.step.mfu:.0f}", _range(one, "mfu", 100, 0),
             f"{one.step.memory.total / 1e9:.0f}-{one.step.memory.high / 1e9:.0f}",
             f"{one.step.exposed_s:.2f}", _range(one, "exposed_s"))
            for one in found.plans
        ],
        right=right,
        folds=("vp", "cp", "ep", "fsdp", "recompute"),
        keys=9,
    )  # fmt: skip
    print_text(
        f"{found.tried:,} layouts divide the job; {found.too_large:,} of them do not fit "
        f"{job.device.memory_gb:.0f} GB. vp: chunks of a stage; fsdp: ranks that share parameters; "
        "mbs: sequences of a micro-batch. Ranges hold at least four of five published steps."
    )


def _range(plan: "Plan", name: str, scale: float = 1, digits: int = 2) -> str:
    ends = _ends(plan, name)
    return f"{scale * ends['low']:.{digits}f}-{scale * ends['high']:.{digits}f}"
