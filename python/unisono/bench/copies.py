"""How well large calls use the cores: what each must copy, against how fast cores copy."""

import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from unisono import _unisono as native
from unisono.bench.peers import OURS
from unisono.bench.rows import Row
from unisono.tables import Table, label, number

# Smaller calls are made of latencies.
_LEAST_BYTES = 1 << 20
_COPIED_BYTES = 64 << 20
_REPEATS = 7


def copied_bytes(collective: str, size_bytes: int, ranks: int) -> float:
    """Bytes that the busiest core copies, or adds, at least, in memory shared between processes.

    Data for another process is written once by its owner, for all who want it, and
    read once by each of those; the own part of a result is copied once. Size is that of the larger
    of input and output.
    """
    block = size_bytes / ranks
    others = size_bytes - block
    return {
        "broadcast": float(size_bytes),  # written once by the root, read once by each other rank
        "send_recv": float(size_bytes),
        "all_gather": block + block + others,  # own part, written for the others, read from them
        "all_to_all": block + others + others,
        "reduce_scatter": others + others,  # written for the others; read and added
        "all_reduce": others + others + block + others,  # and the sums gathered
    }[collective]


def copy_bandwidth_gb_s(ranks: int) -> float:
    """GB/s at which a core copies 64 MiB while as many others do as ranks have cores."""
    import numpy as np  # here, so that help does not wait for it

    copiers = max(1, min(ranks, len(os.sched_getaffinity(0))))
    pairs = [
        (np.ones(_COPIED_BYTES, np.uint8), np.zeros(_COPIED_BYTES, np.uint8))
        for _ in range(copiers)
    ]

    def copy(pair: "tuple[np.ndarray, np.ndarray]") -> float:
        begin = time.perf_counter()
        np.copyto(pair[1], pair[0])
        return time.perf_counter() - begin

    with ThreadPoolExecutor(copiers) as pool:
        slowest = [max(pool.map(copy, pairs)) for _ in range(_REPEATS)]
    return _COPIED_BYTES / statistics.median(slowest) / 1e9


def copies_table(rows: Sequence[Row], bandwidth_gb_s: float) -> Table:
    """For large calls of ours: the time their copies take at that bandwidth, and its share.

    More than 1 is possible: what lies in a cache is copied faster, and stores past the caches save
    reading what they overwrite. With more ranks than cores, a core copies for several.
    """
    names = ("size", "a rank copies", "limit (us)", "ours (us)", "share")
    table = Table([label("collective", folds=True), *map(number, names)], keys=2)
    cores = len(os.sched_getaffinity(0))
    for row in rows:
        if row.implementation != OURS or row.bytes < _LEAST_BYTES:
            continue
        copied = copied_bytes(row.collective, row.bytes, row.ranks)
        limit_us = copied * max(1.0, row.ranks / cores) / bandwidth_gb_s / 1e3
        table.add_row(
            row.collective,
            native.format_bytes(row.bytes),
            native.format_bytes(round(copied)),
            f"{limit_us:.0f}",
            f"{row.time_us:.0f}",
            f"{limit_us / row.time_us:.2f}",
        )
    return table
