"""Joins by unisono.init() under torchrun, twice; in the first attempt rank 1 fails in between."""

import os

import numpy as np
import unisono

for turn in range(2):
    with unisono.init(timeout=60, bootstrap_timeout=60) as comm:
        total = comm.all_reduce(np.array([comm.rank + 1 + turn]))[0]
        attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
        print(f"attempt {attempt}: rank {comm.rank} of {comm.size}: {total}", flush=True)
    if attempt == "0" and comm.rank == 1:
        raise SystemExit(1)
