"""How far predicted training steps are off from published ones.

    python studies/simulator/training_steps.py [--speed TFLOPS]

Prints a table, with a row for each step of published_steps.yaml. With --speed, GEMMs of every shape
reach that speed on an H100, and the same part of the peak on another GPU, as they did before a
GEMM's time depended on its shape.
"""

import argparse
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from unisono.simulate import Layout, Model, find_device, find_model, nccl
from unisono.simulate.plan_training import Network, estimate_step
from unisono.simulate.training_options import Options

TABLE = Path(__file__).with_name("published_steps.yaml")
_LAYOUT = ("tensor", "pipeline", "context", "expert", "virtual")


@dataclass(frozen=True)
class Published:
    """A published step, and the one that is predicted for it, in seconds."""

    name: str
    source: str
    is_fitted: bool
    gpus: int
    measured_s: float
    predicted_s: float
    mfu: float
    needs_gb: float

    @property
    def error(self) -> float:
        """How much longer the predicted step is, as a part of the measured one."""
        return self.predicted_s / self.measured_s - 1


def read_table() -> dict[str, Any]:
    """The document of published_steps.yaml."""
    document: dict[str, Any] = yaml.safe_load(TABLE.read_text())
    return document


def model_of(document: dict[str, Any], name: str) -> Model:
    """A model of the table, by its name."""
    dimensions = document["models"][name]
    return find_model(dimensions) if isinstance(dimensions, str) else Model(name, **dimensions)


def predict(document: dict[str, Any], row: dict[str, Any], speed: float = 0.0) -> Published:
    """What is predicted for a row; `speed`: see --speed; 0: not given."""
    model = model_of(document, row["model"])
    device = find_device(row["gpu"])
    if speed:
        part = speed / find_device("h100").peak_tflops
        device = replace(device, tflops=part * device.peak_tflops, sms=0)
    kinds = {kind: row.get(kind, 1) for kind in _LAYOUT}
    data = row["gpus"] // (kinds["tensor"] * kinds["pipeline"] * kinds["context"])
    shares = {"shard": data} if row["optimizer"] == "parameters" else {"replicate": data}
    how = Options(
        micro_batch=row.get("micro_batch", 1), recompute=row.get("recompute", "none"),
        optimizer="sharded", gradient_bytes=row.get("gradient_bytes", 4),
    )  # fmt: skip
    tokens = row["sequences"] * model.sequence
    step = estimate_step(
        model, Layout(**kinds, **shares), replace(device, memory_gb=0), how,
        Network(nccl.find_machine(row["machine"])), tokens, overlap=row.get("overlap", False),
    )  # fmt: skip
    if "step_s" in row:
        measured = row["step_s"]
    elif "tokens_per_s" in row:
        measured = tokens / row["tokens_per_s"]
    else:
        measured = model.operations * tokens / row["gpus"] / row["model_tflops_per_gpu"] / 1e12
    return Published(
        row["name"], row["source"], row["name"] in document["split"]["fit"], row["gpus"], measured,
        step.time_s, step.mfu, step.memory.total / 1e9,
    )  # fmt: skip


def predict_all(speed: float = 0.0) -> list[Published]:
    """All rows of the table."""
    document = read_table()
    return [predict(document, row, speed) for row in document["steps"]]


def held_by(rows: list[Published], part: float = 0.8) -> float:
    """The factor within which so many of the rows are, with sources weighted alike.

    One source more, of which nothing is known, stands for the one that is asked about.
    """
    sources = [one.source for one in rows]
    off = sorted(
        (max(1 + one.error, 1 / (1 + one.error)), 1 / sources.count(one.source)) for one in rows
    )
    needed, reached = part * (len(set(sources)) + 1), 0.0
    for factor, weight in off:
        reached += weight
        if reached >= needed - 1e-9:
            return factor
    return off[-1][0]


def main() -> None:
    """Prints the table and what the errors are."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--speed", type=float, default=0.0, help="TFLOP/s of every GEMM on an H100")
    rows = predict_all(parser.parse_args().speed)
    print(f"{'step':18} {'GPUs':>6} {'rows':9} {'published s':>12} {'predicted s':>12} {'error':>7}"
          f" {'MFU':>6} {'GB':>5}")  # fmt: skip
    for one in rows:
        print(
            f"{one.name:18} {one.gpus:6,} {'fit' if one.is_fitted else 'left out':9} "
            f"{one.measured_s:12.2f} {one.predicted_s:12.2f} {one.error:+7.1%} {one.mfu:6.1%} "
            f"{one.needs_gb:5.0f}"
        )
    for name, part in (("fit", True), ("left out", False)):
        off = [abs(one.error) for one in rows if one.is_fitted is part]
        print(f"{name}: median error {statistics.median(off):.1%}, largest {max(off):.1%}")
    factor = held_by(rows)
    print(f"80 % of all steps, with sources weighted alike, are within a factor of {factor:.3f}")


if __name__ == "__main__":
    main()
