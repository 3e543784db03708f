"""The page of what NCCL chooses on a machine, why, and how long it takes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unisono.report.parts import Column, Table, number, size, text
from unisono.report.simulation import Curve, render_simulation

if TYPE_CHECKING:
    from unisono.simulate.nccl import MachineFile, Predicted

_SHOWN = 3


def report_of_nccl(
    machine: "MachineFile",
    predictions: "Sequence[Predicted]",
    measured_us: Sequence[float] = (),
) -> str:
    """Time by size with its interval as a band, for each number of ranks, and what was chosen.

    Args:
        machine: Where.
        predictions: Of one collective, or of each that was measured.
        measured_us: What was measured for each of them, if it was.
    """
    plots: dict[str, list[Curve]] = {}
    measured = measured_us or [0.0] * len(predictions)
    pairs = zip(predictions, measured, strict=True)
    for one, us in sorted(pairs, key=lambda pair: (pair[0].call.ranks, pair[0].call.bytes)):
        title = f"{one.call.collective} on {one.call.ranks} ranks"
        curves = plots.setdefault(title, [Curve("predicted", "nccl")])
        curves[0].points.append((one.call.bytes, one.time_us))
        curves[0].band.append((one.call.bytes, one.low_us, one.high_us))
        if us > 0:
            if len(curves) == 1:
                curves.append(Curve("measured", "measured", is_measured=True))
            curves[1].points.append((one.call.bytes, us))
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
