"""What the measurements of PyTorch on GPUs end with."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def slowest(values: list[float], group: dist.ProcessGroup) -> list[float]:
    """Each of the values, of the rank where it is most; the group takes host memory."""
    every = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(every, dist.ReduceOp.MAX, group=group)
    return every.tolist()


def finish(subject: str, table: str, rows: Sequence[Any], json_to: Path | None) -> None:
    """Prints where it was measured, of what, and the table, and keeps the rows; of rank 0."""
    version = ".".join(map(str, torch.cuda.nccl.version()))
    about = (
        f"{dist.get_world_size()} x {torch.cuda.get_device_name()}, {datetime.now(UTC):%F %R} UTC,"
        f" PyTorch {torch.__version__}, NCCL {version}; {subject}"
    )
    print(f"\n{about}\n\n{table}")
    if json_to:
        text = {"about": about, "rows": [asdict(row) for row in rows]}
        json_to.write_text(json.dumps(text, indent=1) + "\n")
