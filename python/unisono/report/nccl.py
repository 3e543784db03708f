"""The page of what NCCL chooses on a machine, why, and how long it takes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unisono.report.parts import Column, Table, number, size, text
from unisono.report.simulation import Curve, render_simulation

if TYPE_CHECKING:
    from unisono.simulate.nccl import MachineFile, Predicted

_SHOWN = 3


def report_of_nccl(machine: "MachineFile", predictions: "Sequence[Predicted]") -> str:
    """Time by size with its interval, for each number of ranks, and what was chosen and why.

    Args:
        machine: Where.
        predictions: Of one collective.
    """
    plots: dict[str, list[Curve]] = {}
    for one in sorted(predictions, key=lambda one: (one.call.ranks, one.call.bytes)):
        title = f"{one.call.collective} on {one.call.ranks} ranks"
        if title not in plots:
            plots[title] = [Curve("predicted", "nccl"), Curve("from", "nccl", 1),
                            Curve("to", "nccl", 1)]  # fmt: skip
        times = (one.time_us, one.low_us, one.high_us)
        for curve, time_us in zip(plots[title], times, strict=True):
            curve.points.append((one.call.bytes, time_us))
    choices = Table(
        (Column("ranks"), Column("nodes"), Column("size"), Column("algorithm", is_text=True),
         Column("protocol", is_text=True), Column("time", "µs"), Column("from", "µs"),
         Column("to", "µs"), Column("NCCL's own estimates for the best, µs", is_text=True)),
        [
            (number(one.call.ranks, "d"), number(one.call.nodes, "d"), size(one.call.bytes),
             text(one.choice.algorithm), text(one.choice.protocol), number(one.time_us),
             number(one.low_us), number(one.high_us), text(why(one)))
            for one in predictions
        ],
        note=" ".join(notes_of(machine, predictions)),
    )  # fmt: skip
    title = f"NCCL's {predictions[0].call.collective} on {machine.name}"
    return render_simulation(title, machine.description, plots, {"Choices": choices})


def why(one: "Predicted") -> str:
    """NCCL's estimates for the best, which decide."""
    if len(one.why) == 1:
        return "nothing to choose: sends and receives"
    best = one.why[:_SHOWN]
    return ", ".join(f"{choice.algorithm}/{choice.protocol} {us:.0f}" for choice, us in best)


def notes_of(machine: "MachineFile", predictions: "Sequence[Predicted]") -> list[str]:
    """How far to trust them."""
    from unisono.simulate.nccl import UNMEASURED

    notes = [
        f"No public table has run {name}: its times are NCCL's own constants, and nobody "
        "knows how far off they are."
        for name in sorted({one.choice.algorithm for one in predictions} & set(UNMEASURED))
    ]
    if machine.calibration is None:
        notes.append(
            f"Nothing was fitted to {machine.name}: 4 of 5 measured times lie between from and "
            "to.\n`unisono calibrate` with nccl-tests' output of the machine narrows that."
        )
    return notes
