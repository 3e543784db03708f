"""What a bench says in sentences: where it ran, whether to trust its times, and its average."""

from collections.abc import Sequence
from typing import Any

from unisono import _unisono as native
from unisono.bench.cases import Request
from unisono.bench.device_rows import DeviceRow
from unisono.bench.rows import Row
from unisono.bench.tables import three_digits


def head_of(request: Request, facts: dict[str, Any]) -> list[str]:
    """The lines before the table: ranks, nodes, version, machine and its load.

    Args:
        request: What is measured.
        facts: Of `machine_facts`, from before the ranks started.
    """
    nodes = f"{request.nodes} nodes" if request.nodes > 1 else "1 node"
    ranks = f"{request.ranks} rank{'s' if request.ranks > 1 else ''} on {nodes}"
    if request.netbed:
        ranks += " of a netbed"
    crowd = request.ranks / facts["cores"]
    shared = f", {crowd:.2g} ranks a core" if crowd > 1 else ""
    return [f"unisono {facts['unisono']}, {ranks}{shared}", machine_line(facts)]


def machine_line(facts: dict[str, Any]) -> str:
    """The machine and its load, in one line."""
    return (
        f"{facts['processor']}, {facts['cores']} cores, "
        f"{native.format_bytes(facts['memory_bytes'])} of memory, load {facts['load'][0]:.1f}"
    )


def doubt_of(ranks: int, facts: dict[str, Any]) -> str:
    """Why the times are not trustworthy: others left no core for each rank. Empty if they are."""
    load, cores = facts["load"][0], facts["cores"]
    if load <= max(1, cores - ranks):
        return ""
    return f"load {load:.0f} on {cores} cores: these times are not trustworthy"


def disturbed(rows: Sequence[Row]) -> str:
    """A sentence on repeats that took much longer than the others; empty if there are none."""
    found = [row for row in rows if row.outliers]
    if not found:
        return ""
    worst = max(found, key=lambda row: row.most_us / row.time_us)
    return (
        f"{len(found)} of {len(rows)} results have repeats that took more than 1.5 times the "
        f"median, up to {three_digits(worst.most_us / worst.time_us)} times ({worst.collective} of "
        f"{native.format_bytes(worst.bytes)}): something else ran meanwhile"
    )


def average_bandwidth(rows: Sequence[Row] | Sequence[DeviceRow]) -> str:
    """The mean of all rows' bus bandwidth, as nccl-tests' last line."""
    timed = [row.busbw_gb_s for row in rows if row.bytes]
    mean = sum(timed) / len(timed) if timed else 0.0
    return f"average bus bandwidth: {three_digits(mean)} GB/s"
