"""The parameters in the package, and what a machine's own calibration adds to them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import yaml
from pydantic import Field

from unisono.errors import MisuseError
from unisono.simulate.files import Part, folder, parse, read
from unisono.simulate.nccl.choice import Call, Choice, candidates, formula_us
from unisono.simulate.nccl.fit import Point, predict_us
from unisono.simulate.nccl.intervals import Widths
from unisono.simulate.nccl.machine import MachineFile, platform_of
from unisono.simulate.nccl.timing import Model


class ModelFile(Part):
    """clusters/nccl/model.yaml, format 1.

    Attributes:
        sites: Whose public tables were fitted.
        factors: The factors of NCCL's own constants and of data sheets, by parameter.
        widths: By kind of call, the factor by which 80 % of the times on a machine that was not
            fitted are off at most.
    """

    format: Literal[1]
    sites: list[str]
    factors: dict[str, float] = Field(min_length=1)
    widths: dict[str, float] = Field(min_length=1)


def to_yaml(values: Mapping[str, float], widths: Widths, sites: Sequence[str]) -> str:
    """The text of a model file."""
    document = {
        "format": 1,
        "sites": list(sites),
        "factors": {name: round(math.exp(value), 4) for name, value in sorted(values.items())},
        "widths": {kind: round(math.exp(w), 3) for kind, w in widths.by_kind.items()},
    }
    head = "# Written by studies/simulator/unfitted.py --write; see docs/how-to/simulate.md\n"
    text: str = yaml.safe_dump(document, sort_keys=False)
    return head + text


@cache
def shipped() -> ModelFile:
    """The model file of the package."""
    path = folder() / "nccl" / "model.yaml"
    return parse(ModelFile, read(path), str(path))


def values_of(machine: MachineFile) -> dict[str, float]:
    """Logarithms of the factors: what all machines have, and what this one was found to have."""
    factors = dict(shipped().factors)
    if machine.calibration is not None:
        factors |= machine.calibration.factors
    return {name: math.log(value) for name, value in factors.items()}


@dataclass(frozen=True)
class Predicted:
    """What NCCL does on a machine, and how long it takes.

    Attributes:
        low_us: Lower end of the interval; with `high_us` it holds four of five measured times.
        is_fitted: The machine has a calibration.
        why: What NCCL's own formula gives for each algorithm and protocol it could choose.
    """

    call: Call
    choice: Choice
    time_us: float
    low_us: float
    high_us: float
    is_fitted: bool
    why: list[tuple[Choice, float]]


def predict(machine: MachineFile, call: Call, choice: Choice | None = None) -> Predicted:
    """A call on a machine.

    Raises:
        MisuseError: The machine cannot run it.
    """
    point = Point(machine, call, 1.0, choice)
    chosen = point.terms.choice
    (time_us,) = map(float, predict_us([point], values_of(machine)))
    platform = platform_of(machine, call.nodes, call.ranks // call.nodes)
    why = [(one, formula_us(call, one, platform)) for one in candidates(call, platform)]
    low, high = _widths(machine).interval_us(call, time_us)
    return Predicted(
        call, chosen, time_us, low, high, machine.calibration is not None,
        sorted(why, key=lambda one: one[1]),
    )  # fmt: skip


def forced(
    machine: MachineFile, call: Call, algorithm: str | None = None, protocol: str | None = None
) -> Predicted:
    """A call where NCCL may take one algorithm, one protocol, or one of both alone.

    What is left open, NCCL chooses, as with NCCL_ALGO and NCCL_PROTO.

    Args:
        machine: Where.
        call: What is called.
        algorithm: "ring" and so on; None: any.
        protocol: "ll", "ll128" or "simple"; None: any.

    Raises:
        MisuseError: NCCL cannot run the call so.
    """
    platform = platform_of(machine, call.nodes, call.ranks // max(1, call.nodes))
    able = candidates(call, platform)
    left = [
        one
        for one in able
        if algorithm in (None, one.algorithm) and protocol in (None, one.protocol)
    ]
    if not left:
        raise MisuseError(
            f"NCCL does not run {call.collective} of {call.ranks} ranks on {call.nodes} nodes of "
            f"{machine.name} with {' and '.join(filter(None, (algorithm, protocol)))}; it can take "
            f"{', '.join(f'{one.algorithm}/{one.protocol}' for one in able)}"
        )
    return predict(machine, call, min(left, key=lambda one: formula_us(call, one, platform)))


def parts_us(machine: MachineFile, predicted: Predicted) -> dict[str, float]:
    """What a predicted time consists of, in microseconds; the parts add up to the time."""
    point = Point(machine, predicted.call, 1.0, predicted.choice)
    model = Model([point.terms])
    values = values_of(machine)
    return model.parts_us(np.array([values.get(name, 0.0) for name in model.names]))


def _widths(machine: MachineFile) -> Widths:
    widths = {kind: math.log(factor) for kind, factor in shipped().widths.items()}
    if machine.calibration is not None:
        own = math.log1p(machine.calibration.spread)
        widths = {kind: min(width, own) for kind, width in widths.items()}
    return Widths(widths)
