"""The page of planned training steps: a table, the best one's picture, and where its time goes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unisono.draw.chart import Axis, Bar, draw_bars
from unisono.draw.timeline import Span, draw_timeline
from unisono.report.parts import Column, Table, number, responsive, text
from unisono.report.simulation import render_page

if TYPE_CHECKING:
    from unisono.simulate.plan_training import Job, Plan

# A browser shows so many passes without delay; of longer steps the beginning is shown.
_MOST_PASSES = 4000


def report_of_plans(job: "Job", plans: "Sequence[Plan]", passes: Sequence[Span]) -> str:
    """The page.

    Args:
        job: What was planned.
        plans: The best first; at least one.
        passes: Of the best's pipeline, in the order of their beginnings.
    """
    best = plans[0]
    bars = [Bar(what, time) for what, time in best.step.seconds.items() if time > 0]
    axis = Axis("time", write=lambda value: f"{value:.2f} s")
    plots = [
        responsive(
            lambda width: draw_bars(
                "Where the slowest stage's time goes", axis, bars, width=width, standalone=False
            )
        )
    ]
    if passes:
        shown = passes[:_MOST_PASSES]
        title = "The pipeline's step"
        if len(shown) < len(passes):
            title = f"The first {len(shown):,} of {len(passes):,} passes of the step"
        note = "full: forward; pale: backward; a colour for each chunk of a stage"
        plots.insert(
            0,
            responsive(
                lambda width: draw_timeline(title, shown, note=note, width=width, standalone=False)
            ),
        )
    table = Table(
        (*(Column(name) for name in ("tensor", "pipeline", "virtual", "context", "expert", "shard",
                                     "replicate", "micro-batch")),
         Column("recompute", is_text=True), Column("step", "s", "least"), Column("from", "s"),
         Column("to", "s"), Column("MFU", "%"), Column("memory", "GB"), Column("exposed", "s")),
        [
            (
                *(number(getattr(one.layout, name), "d")
                  for name in ("tensor", "pipeline", "virtual", "context", "expert", "shard",
                               "replicate")),
                number(one.how.micro_batch, "d"), text(one.how.recomputes),
                number(one.step.time_s), number(one.low.time_s), number(one.high.time_s),
                number(100 * one.step.mfu, ".1f"), number(one.step.memory.total / 1e9, ".1f"),
                number(one.step.exposed_s),
            )
            for one in plans
        ],
    )  # fmt: skip
    return render_page(
        f"{job.model.name} on {job.gpus:,} GPUs of {job.machine.name}", job.machine.description,
        plots, {"Layouts": table},
    )  # fmt: skip
