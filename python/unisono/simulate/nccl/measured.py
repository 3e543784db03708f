"""What was measured of NCCL on a machine, and its calibration from that."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unisono.errors import MisuseError
from unisono.simulate.files import read_table
from unisono.simulate.measurements import read_measurements
from unisono.simulate.nccl.choice import Call, Choice
from unisono.simulate.nccl.fit import Point, fit_one, most_helpful, predict_us
from unisono.simulate.nccl.machine import Calibration, MachineFile
from unisono.simulate.nccl.model import values_of
from unisono.simulate.nccl.outputs import MODELLED, is_nccl_tests, parse_nccl_tests
from unisono.simulate.nccl.tables import ALGORITHMS, PROTOCOLS

_SIZES = [1 << bits for bits in range(10, 34, 2)]
_SUGGESTED = 4


def read_points(path: Path, machine: MachineFile, ranks: int = 0, nodes: int = 0) -> list[Point]:
    """Reads the points of nccl-tests' or rccl-tests' output, or of our bench's JSON.

    Args:
        path: The file.
        machine: Where it was measured.
        ranks: The number of ranks, for output that does not list its devices; 0: it does.
        nodes: The number of nodes, for the same output.

    Raises:
        MisuseError: It has no measurement, or does not say of what.
    """
    text = read_table(path)
    if is_nccl_tests(text) or not text.lstrip().startswith("{"):
        return parse_nccl_tests(text, str(path), machine, ranks, nodes)
    rows = read_measurements(path, "nccl", point_to_point=True)
    found = [
        Point(
            machine, Call(row.collective, row.bytes, row.ranks, row.nodes), row.time_us,
            _choice(row.algorithm, row.protocol),
        )
        for row in rows
        if row.collective in MODELLED
    ]  # fmt: skip
    if not found:
        raise MisuseError(f"{path} has no measurement of {', '.join(MODELLED)}")
    return found


def _choice(algorithm: str, protocol: str) -> Choice | None:
    """What a row says that ran, if it says both."""
    is_known = algorithm in ALGORITHMS and protocol in PROTOCOLS
    return Choice(algorithm, protocol) if is_known else None


@dataclass(frozen=True)
class Calibrated:
    """A machine with its calibration.

    Attributes:
        before: Median error of all points without it, as a part.
        held: Median error on every second point, fitted to the others.
        next_points: What to measure next, and the uncertainty that is left then.
    """

    machine: MachineFile
    before: float
    held: float
    next_points: list[tuple[Call, float]]


def calibrate_machine(
    machine: MachineFile, points: Sequence[Point], sources: Sequence[str]
) -> Calibrated:
    """Fits all points; how good that is, the two halves say of each other.

    Raises:
        MisuseError: There are fewer than four points.
    """
    if len(points) < 4:
        raise MisuseError(f"{len(points)} measurements; a calibration needs 4 or more")
    elsewhere = values_of(machine.model_copy(update={"calibration": None}))
    ordered = sorted(points, key=lambda one: (one.call.collective, one.call.ranks, one.call.bytes))
    halves = (ordered[::2], ordered[1::2])
    off: list[float] = []
    for given, held in (halves, halves[::-1]):
        off += _errors(held, {**elsewhere, **fit_one(given, elsewhere).values})
    fit = fit_one(ordered, elsewhere)
    error = float(np.median(off))
    calibration = Calibration(
        measurements=list(sources), points=len(points), error=round(error, 4),
        factors={name: round(math.exp(value), 4) for name, value in sorted(fit.values.items())},
        spread=round(float(np.quantile(off, 0.8)), 4),
    )  # fmt: skip
    shapes = {(one.call.collective, one.call.ranks, one.call.nodes) for one in points}
    calls = [Call(kind, size, r, n) for kind, r, n in sorted(shapes) for size in _SIZES]
    return Calibrated(
        machine.model_copy(update={"calibration": calibration}),
        float(np.median(_errors(ordered, elsewhere))),
        error,
        most_helpful(fit, machine, calls, _SUGGESTED),
    )


def _errors(points: Sequence[Point], values: dict[str, float]) -> list[float]:
    times = predict_us(points, values)
    return [abs(float(t) / p.time_us - 1) for t, p in zip(times, points, strict=True)]
