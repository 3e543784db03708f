"""GOAL schedules: of collectives, plans and workloads, read, written and run."""

import re
from dataclasses import dataclass
from pathlib import Path

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.files import read_bounded, write_whole
from unisono.simulate.cluster import Cluster
from unisono.simulate.run import block_count, plan_count
from unisono.simulate.workload import Workload

# A step of some 10,000 ranks takes this much as binary.
_MAX_BYTES = 4 << 30
_TEXT_SUFFIX = ".goal"
_BINARY_SUFFIX = ".bin"
SUFFIXES = (_TEXT_SUFFIX, _BINARY_SUFFIX)
_NS = {"L": "latency_ns", "o": "overhead_ns", "g": "gap_ns"}
_NS_A_BYTE = {"G": "gap_ns_per_byte", "O": "overhead_ns_per_byte"}
_PARAMETER = re.compile(r"([LogGOS])=([0-9.eE+-]+)([A-Za-z/]+)")


@dataclass(frozen=True)
class LogGops:
    """The parameters of the model.

    Attributes:
        rendezvous_bytes: S: larger messages wait for their receive; 0: none do.
    """

    latency_ns: float = 0.0
    overhead_ns: float = 0.0
    gap_ns: float = 0.0
    gap_ns_per_byte: float = 0.0
    overhead_ns_per_byte: float = 0.0
    rendezvous_bytes: int = 0


def parse_log_gops(text: str) -> LogGops:
    """As "L=3.7us,o=200ns,g=5ns,G=0.04ns/B,O=0ns/B,S=64KiB"; what is left out is 0.

    Raises:
        MisuseError: A parameter is unknown, stands twice, or has no or another unit.
    """
    values: dict[str, float] = {}
    example = "L=3.7us,o=200ns,g=5ns,G=0.04ns/B,O=0ns/B,S=64KiB"
    for part in text.split(","):
        match = _PARAMETER.fullmatch(part.strip())
        if match is None:
            raise MisuseError(f"'{part}' is no parameter of LogGOPS with a unit; write {example}")
        name, number, unit = match.groups()
        if name in values:
            raise MisuseError(f"{name} is given twice in '{text}'")
        if name == "S":
            values[name] = native.parse_bytes(number + unit)
            continue
        known = {"ns/B": 1.0} if name in _NS_A_BYTE else {"ns": 1.0, "us": 1e3, "ms": 1e6}
        if unit not in known:
            raise MisuseError(f"'{part}' has the unit {unit}; it is one of {', '.join(known)}")
        try:
            values[name] = float(number) * known[unit]
        except ValueError:
            raise MisuseError(f"'{number}' in '{part}' is no number") from None
    times = {field: values.get(name, 0.0) for name, field in (_NS | _NS_A_BYTE).items()}
    return LogGops(rendezvous_bytes=int(values.get("S", 0)), **times)


def read_goal(path: str | Path) -> native.GoalSchedule:
    """A schedule, from text or binary.

    Raises:
        MisuseError: It is none; the message has line and column, or the byte's offset.
    """
    path = Path(path)
    contents = read_bounded(path, _MAX_BYTES)
    try:
        return native.GoalSchedule.read(contents)
    except MisuseError as error:
        raise MisuseError(f"{path}: {error}") from None


def write_goal(schedule: native.GoalSchedule, path: Path) -> None:
    """Writes text to *.goal, binary to *.bin.

    Raises:
        MisuseError: The name ends otherwise.
        MachineError: It cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise MisuseError(f"{path}: a GOAL file ends in .goal (text) or .bin (binary)")
    is_text = path.suffix == _TEXT_SUFFIX
    contents = schedule.to_text().encode() if is_text else schedule.to_binary()
    write_whole(path, contents)


def goal_of_workload(cluster: Cluster, workload: Workload) -> native.GoalSchedule:
    """A workload as GOAL: every message a send and a receive, every thread block a cpu."""
    return native.goal_of_workload(cluster.machine, workload.to_json(cluster.channels))


def goal_of_collective(
    cluster: Cluster,
    collective: str,
    algorithm: str,
    *,
    size_bytes: int,
    ranks: int,
    nodes: int = 0,
    protocol: str = "simple",
    channels: int = 0,
) -> native.GoalSchedule:
    """A collective's plan as GOAL; arguments are those of `simulate`."""
    entry = native.find_algorithm(f"{algorithm}_{collective}")
    return native.goal_of_collective(
        cluster.machine, entry, ranks=ranks, nodes=nodes, protocol=protocol,
        count=block_count(collective, size_bytes, ranks, 4), channels=channels or cluster.channels,
    )  # fmt: skip


def goal_of_plan(
    cluster: Cluster,
    plan: native.Plan,
    *,
    size_bytes: int,
    type: str = "float32",  # noqa: A002
) -> native.GoalSchedule:
    """Any plan as GOAL; arguments are those of `simulate_plan`.

    Raises:
        MisuseError: The plan is malformed, or has one-sided steps, which GOAL cannot say.
    """
    count, _ = plan_count(plan, size_bytes, type)
    return native.goal_of_plan(cluster.machine, plan, count=count, type=type)


def run_goal(
    schedule: native.GoalSchedule,
    where: Cluster | LogGops,
    *,
    progress: native.SimulationProgress | None = None,
) -> native.GoalResult:
    """Runs a schedule with a cluster's costs, or with those of LogGOPS alone, as LogGOPSim does.

    Args:
        schedule: What.
        where: Whose costs.
        progress: For another thread to see how far it is, or to stop it.

    Raises:
        MisuseError: The cluster has too few places, or ranks wait for each other, with the cycle.
    """
    if isinstance(where, Cluster):
        return native.run_goal(where.machine, schedule, progress=progress)
    machine = native.Machine.log_gops(
        schedule.ranks, latency_ns=where.latency_ns, overhead_ns=where.overhead_ns,
        gap_ns=where.gap_ns, gap_ns_per_byte=where.gap_ns_per_byte,
        overhead_ns_per_byte=where.overhead_ns_per_byte,
    )  # fmt: skip
    if where.rendezvous_bytes:
        return native.run_goal(
            machine, schedule, rendezvous_bytes=where.rendezvous_bytes, progress=progress
        )
    return native.run_goal(machine, schedule, progress=progress)
