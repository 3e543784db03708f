"""nccl-tests' output, and a machine's calibration from it."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unisono.errors import MisuseError
from unisono.simulate.files import read_table
from unisono.simulate.measurements import read_measurements
from unisono.simulate.nccl.choice import Call
from unisono.simulate.nccl.fit import Point, fit_one, most_helpful, predict_us
from unisono.simulate.nccl.machine import Calibration, MachineFile
from unisono.simulate.nccl.model import values_of

# nccl-tests' programs, as its output names them.
_PROGRAMS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}  # fmt: skip
_PROGRAM = re.compile(rf"\b({'|'.join(_PROGRAMS)})(?:_perf)\b")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s+.*?\bon\s+(\S+)")
# Bytes, elements, type, operation, root, and the time out of place.
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)\s+([0-9.]+)\s")
_SIZES = [1 << bits for bits in range(10, 34, 2)]
_SUGGESTED = 4


def read_points(path: Path, machine: MachineFile, ranks: int = 0, nodes: int = 0) -> list[Point]:
    """Reads the points of nccl-tests' output, or of our bench's JSON.

    Args:
        path: The file.
        machine: Where it was measured.
        ranks: The number of ranks, for a table that does not list its devices; 0: it does.
        nodes: The number of nodes, for the same tables.

    Raises:
        MisuseError: It has no measurement, or does not say of what.
    """
    text = read_table(path)
    if text.lstrip().startswith("{"):
        rows = read_measurements(path, "nccl", point_to_point=True)
        return [
            Point(machine, Call(row.collective, row.bytes, row.ranks, row.nodes), row.time_us)
            for row in rows
            if row.collective in _PROGRAMS.values()
        ]
    return parse_nccl_tests(text, str(path), machine, ranks, nodes)


def parse_nccl_tests(
    text: str, where: str, machine: MachineFile, ranks: int = 0, nodes: int = 0
) -> list[Point]:
    """Out of place; several runs may follow each other.

    Raises:
        MisuseError: There is no row, or no program or no devices are named before one.
    """
    collective, hosts = "", dict[int, str]()
    found: list[Point] = []
    in_rows = False
    for number, line in enumerate(text.splitlines(), start=1):
        # A launcher may put a prefix before each line.
        line = re.sub(r"^\s*(?:\[[\d,]+\]<\w+>|\d+):\s?", "", line)
        if program := _PROGRAM.search(line):
            collective = _PROGRAMS[program[1]]
        if rank := _RANK.search(line):
            if in_rows:
                hosts, in_rows = {}, False
            hosts[int(rank[1])] = rank[2]
        row = _ROW.match(line)
        if row is None or float(row[6]) <= 0 or int(row[1]) == 0:
            continue
        in_rows = True
        if not collective:
            raise MisuseError(
                f"{where}:{number}: no program is named before the rows; give the command's line "
                f"too, as: {', '.join(f'{name}_perf' for name in _PROGRAMS)}"
            )
        count, on = ranks or len(hosts), nodes or len(set(hosts.values()))
        if count < 2:
            raise MisuseError(
                f"{where}:{number}: no devices are listed before the rows; say --ranks and --nodes"
            )
        call = Call(collective, int(row[1]), count, on or -(-count // _local(machine)))
        found.append(Point(machine, call, float(row[6])))
    if not found:
        raise MisuseError(f"{where} has no row of nccl-tests")
    return found


def _local(machine: MachineFile) -> int:
    return int(machine.hardware.ranks_per_node.value)


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
