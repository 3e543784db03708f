"""One rank: how long the start of a job takes, in milliseconds of the slowest rank.

unisono run -n 8 tools/gate/job_start.py OUT.json
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

began = time.perf_counter()
import unisono  # noqa: E402


def main(out: str) -> None:
    imported = time.perf_counter()
    with unisono.init() as comm:
        joined = time.perf_counter()
        comm.all_reduce(np.ones(2, np.float32))
        called = time.perf_counter()
        spans = np.array([imported - began, joined - imported, called - joined])
        slowest = comm.all_reduce(spans, op="max") * 1e3
        names = ("import, ms", "join, ms", "first all-reduce, ms")
        if comm.rank == 0:
            values = dict(zip(names, slowest.tolist(), strict=True))
            Path(out).write_text(json.dumps(values))
        comm.barrier()


if __name__ == "__main__":
    main(sys.argv[1])
