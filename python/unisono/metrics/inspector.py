"""The names, labels and values that NCCL Inspector's Prometheus mode writes.

Dashboards made for it work with calls of Unisono. Its gauges are means over the calls since the
last scrape: of bandwidth the geometric, of time the arithmetic one.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unisono.bench.rows import bus_factor
from unisono.metrics.calls import Finished

__all__ = ["Inspector", "size_class"]

_LABELS = ("version", "slurm_job_id", "node", "gpu", "comm_name", "n_nodes", "nranks")
_VERSION = "unisono"
_NAMES = {
    "all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast", "reduce": "Reduce", "all_to_all": "AlltoAll", "gather": "Gather",
    "scatter": "Scatter", "send": "Send", "receive": "Recv",
}  # fmt: skip
_UNITS = ("B", "KB", "MB", "GB", "TB")


def size_class(size: int) -> str:
    """Such as "4-5KB", by powers of 1024, or "0B"."""
    if size == 0:
        return "0B"
    unit = min((size.bit_length() - 1) // 10, len(_UNITS) - 1)
    lower = size >> (10 * unit)
    return f"{lower}-{lower + 1}{_UNITS[unit]}"


@dataclass
class _Window:
    """Sums over the calls since the last scrape."""

    calls: int = 0
    microseconds: float = 0.0
    logarithms: float = 0.0
    with_bandwidth: int = 0

    def add(self, call: Finished, ranks: int) -> None:
        self.calls += 1
        self.microseconds += 1e6 * call.seconds
        factor = 1.0 if call.is_message else bus_factor(call.collective, ranks) if ranks > 1 else 0
        if call.seconds > 0 and call.entry["bytes"] * factor > 0:
            self.logarithms += math.log(1e-9 * call.entry["bytes"] * factor / call.seconds)
            self.with_bandwidth += 1


class Inspector:
    """Collects calls, and gives the metrics of those since the last time."""

    def __init__(self) -> None:
        self._windows: dict[tuple[bool, tuple[str, ...]], _Window] = {}
        self._totals: dict[tuple[bool, str], list[int]] = {}

    def add(self, call: Finished) -> None:
        """Of a call that has ended; failed ones have no time that means anything."""
        if call.entry["state"] != "ended" or call.collective not in _NAMES:
            return
        record = call.record
        # A record does not say how many nodes the group has.
        nodes = "1" if record["ranks"] == 1 else "unknown"
        labels: tuple[str, ...] = (
            *_common(record["node"]), record["group"], nodes, str(record["ranks"]),
            _NAMES[call.collective], size_class(call.entry["bytes"]),
        )  # fmt: skip
        if not call.is_message:
            labels += (f"{call.entry['plan'] or 'unknown'}_{call.entry['protocol']}",)
        window = self._windows.setdefault((call.is_message, labels), _Window())
        window.add(call, record["ranks"])
        self._of(call.is_message, record["node"])[0] += 1

    def miss(self, is_message: bool, node: str, calls: int) -> None:
        """Of calls that the record no longer had."""
        totals = self._of(is_message, node)
        totals[0] += calls
        totals[1] += calls

    def _of(self, is_message: bool, node: str) -> list[int]:
        return self._totals.setdefault((is_message, node), [0, 0])

    def collect(self, core: Any) -> Iterator[Any]:
        """The families; `core` is prometheus_client.core."""
        for is_message, prefix, own in (
            (False, "nccl_", ("collective", "message_size", "algo_proto")),
            (True, "nccl_p2p_", ("p2p_operation", "message_size")),
        ):
            names = (*_LABELS, *own)
            bandwidth = core.GaugeMetricFamily(
                f"{prefix}bus_bandwidth_gbs", "NCCL Inspector's: bus bandwidth in GB/s.",
                labels=names,
            )  # fmt: skip
            time = core.GaugeMetricFamily(
                f"{prefix}{'' if is_message else 'collective_'}exec_time_microseconds",
                "NCCL Inspector's: mean time of a call.", labels=names,
            )  # fmt: skip
            for (of_message, labels), window in self._windows.items():
                if of_message is not is_message:
                    continue
                time.add_metric(labels, window.microseconds / window.calls)
                if window.with_bandwidth:
                    mean = math.exp(window.logarithms / window.with_bandwidth)
                    bandwidth.add_metric(labels, mean)
            yield from (bandwidth, time)
            total, dropped = (
                core.CounterMetricFamily(f"nccl_{'p2p' if is_message else 'collectives'}{what}",
                                         f"NCCL Inspector's: {about}.", labels=_LABELS[:4])
                for what, about in (("", "calls"), ("_dropped", "calls that were not recorded"))
            )  # fmt: skip
            for (of_message, node), counts in self._totals.items():
                if of_message is is_message:
                    total.add_metric(_common(node), counts[0])
                    dropped.add_metric(_common(node), counts[1])
            yield from (total, dropped)
        self._windows.clear()


def _common(node: str) -> tuple[str, str, str, str]:
    # The record does not say which GPU has taken a call.
    return _VERSION, os.environ.get("SLURM_JOB_ID", "unknown"), node, "unknown"
