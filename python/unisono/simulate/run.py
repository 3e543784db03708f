"""Simulating collectives: one, or all algorithms that can serve, on all cores."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from unisono import _unisono as native
from unisono.bench.rows import bus_factor
from unisono.errors import MachineError, MisuseError
from unisono.files import written_whole
from unisono.simulate.cluster import Cluster
from unisono.simulate.progress import Progress

_ONE_BLOCK_A_RANK = {"all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"}


@dataclass(frozen=True)
class Hop:
    """A message of the critical path."""

    sender: int
    receiver: int
    bytes: int
    sent_us: float
    arrived_us: float


@dataclass(frozen=True)
class LinkUse:
    """What went over a link.

    Attributes:
        name: "rank 3", "node 0 NIC 2", or "rack 1 up 0".
        use: The part of the time in which it could have carried as much.
    """

    name: str
    bytes: int
    gb_s: float
    use: float


@dataclass(frozen=True)
class Simulated:
    """What a simulated collective took.

    Attributes:
        size_bytes: The larger of input and output of the rank that has most, as it was simulated.
        time_us: Until the last rank has ended.
        closed_form_us: What the algorithm's stated cost (alpha a step, beta a byte) comes to.
        node_port_use: The part of the time in which the busiest rank's port inside its node sends.
        nic_use: The same of the busiest NIC.
        simulated_ranks: Fewer than `ranks` where ranks in the same state were simulated once.
        not_collapsed: Why they were not; empty if they were.
        shares: Parts of the critical path, with `explain`: us of latency, bytes, queueing...
        hops: Its messages, with `explain`.
        links: What every port of a rank and every NIC has sent, and with flows every uplink
            between units of the network has carried.
    """

    collective: str
    algorithm: str
    protocol: str
    channels: int
    ranks: int
    nodes: int
    size_bytes: int
    time_us: float
    closed_form_us: float
    messages: int
    events: int
    node_port_use: float
    nic_use: float
    simulated_ranks: int
    not_collapsed: str
    path_messages: int = 0
    path_messages_inter_node: int = 0
    shares: dict[str, float] = field(default_factory=dict)
    hops: list[Hop] = field(default_factory=list)
    links: list[LinkUse] = field(default_factory=list)

    @property
    def algbw_gb_s(self) -> float:
        """size_bytes / time, in 10^9 bytes a second."""
        return self.size_bytes / self.time_us / 1000 if self.time_us > 0 else 0.0

    @property
    def busbw_gb_s(self) -> float:
        """algbw times the bus factor, as nccl-tests defines it."""
        return self.algbw_gb_s * bus_factor(self.collective, self.ranks)


def block_count(collective: str, size_bytes: int, ranks: int, element_bytes: int) -> int:
    """Elements of a block, where the larger of input and output has `size_bytes`; at least one."""
    blocks = ranks if collective in _ONE_BLOCK_A_RANK else 1
    return max(1, size_bytes // (blocks * element_bytes))


def simulate(
    cluster: Cluster,
    collective: str,
    algorithm: str,
    *,
    size_bytes: int,
    ranks: int,
    nodes: int = 0,
    type: str = "float32",  # noqa: A002
    protocol: str = "simple",
    channels: int = 0,
    model: str = "loggops",
    noise: float = 0.0,
    seed: int = 1,
    explain: bool = False,
    calls: int = 1,
    collapse: bool = True,
    timeline: str = "",
    progress: native.SimulationProgress | None = None,
) -> Simulated:
    """Simulates a built-in algorithm's plan.

    Args:
        cluster: Where.
        collective: "all_reduce" and so on.
        algorithm: "ring" and so on.
        size_bytes: The larger of input and output; at least one element a block is taken.
        ranks: Fill one node after another.
        nodes: Spread them evenly over so many nodes instead.
        type: The type of the elements.
        protocol: simple, ll or ll128.
        channels: 0: as the cluster's file says.
        model: loggops (ports take turns), flows (links are shared), alpha_beta (nothing is).
        noise: Every latency is longer by up to this part of it.
        seed: The seed of the noise.
        explain: Also the critical path, of all calls.
        calls: So many, back to back: a rank starts the next when its part of one has ended. The
            time is that of one; it is less than a single call's where ranks need not wait.
        collapse: Simulate ranks in the same state once.
        timeline: A file for a time-line that Perfetto shows.
        progress: For another thread to see how far it is, or to stop it.

    Raises:
        MisuseError: The algorithm cannot serve, or the cluster has too few places.
        MachineError: The time-line cannot be written.
    """
    entry = native.find_algorithm(f"{algorithm}_{collective}")
    element_bytes = bytes_of_element(type)
    blocks = ranks if collective in _ONE_BLOCK_A_RANK else 1
    count = block_count(collective, size_bytes, ranks, element_bytes)
    channels = channels or cluster.channels
    with timeline_to(timeline) as descriptor:
        result = native.simulate_collective(
            cluster.machine, entry, ranks=ranks, nodes=nodes, count=count, type=type,
            protocol=protocol, channels=channels, model=model, noise=noise, seed=seed,
            explain=explain, calls=calls, collapse=collapse, timeline=descriptor, progress=progress,
        )  # fmt: skip
    return _simulated(
        cluster, result, collective, algorithm, protocol, channels,
        count * blocks * element_bytes, explain, calls,
    )  # fmt: skip


def simulate_plan(
    cluster: Cluster,
    plan: native.Plan,
    *,
    size_bytes: int,
    nodes: int = 0,
    type: str = "float32",  # noqa: A002
    model: str = "loggops",
    explain: bool = False,
    progress: native.SimulationProgress | None = None,
) -> Simulated:
    """Simulates any plan: of a file, or of a program. It need not be right.

    Args:
        cluster: Where.
        plan: What.
        size_bytes: The larger of input and output; at least one element a block is taken.
        nodes: Spread the ranks evenly over so many; 0: fill one node after another.
        type: The type of the elements.
        model: As in `simulate`.
        explain: Also the critical path.
        progress: For another thread to see how far it is, or to stop it.

    Returns:
        The outcome; there is no closed form of a plan's cost, so that one is 0.

    Raises:
        MisuseError: The cluster has too few places, or the plan is malformed.
    """
    count, simulated_bytes = plan_count(plan, size_bytes, type)
    result = native.simulate_plan(
        cluster.machine, plan, nodes=nodes, count=count, type=type, model=model, explain=explain,
        progress=progress,
    )  # fmt: skip
    return _simulated(
        cluster, result, plan.collective, plan.name.removesuffix(f"_{plan.collective}"),
        plan.protocol, plan.channels, simulated_bytes, explain,
    )  # fmt: skip


@contextlib.contextmanager
def timeline_to(path: str) -> Iterator[int]:
    """What the core writes a time-line to; it takes the path's place when all has gone well."""
    if not path:
        yield -1
        return
    with written_whole(path) as descriptor:
        try:
            yield descriptor
        except MachineError as error:
            raise MachineError(f"{path}: {error}") from None


def plan_count(plan: native.Plan, size_bytes: int, type: str) -> tuple[int, int]:  # noqa: A002
    """Elements of a block where the larger of input and output has so many bytes; at least one.

    Returns:
        The elements, and the bytes of the larger of input and output with these.
    """
    element_bytes = bytes_of_element(type)
    blocks = max(
        max(plan.input_blocks(rank), plan.output_blocks(rank), 1) for rank in range(plan.ranks)
    )
    count = max(1, size_bytes // (blocks * element_bytes))
    return count, count * blocks * element_bytes


def bytes_of_element(type: str) -> int:  # noqa: A002
    """The bytes of an element of a type, by its name.

    Raises:
        MisuseError: There is no such type.
    """
    found = dict(native.data_types()).get(type)
    if found is None:
        raise MisuseError(f"there is no type '{type}'")
    return found


def _simulated(
    cluster: Cluster,
    result: native.SimulatedCollective,
    collective: str,
    algorithm: str,
    protocol: str,
    channels: int,
    size_bytes: int,
    explained: bool,
    calls: int = 1,
) -> Simulated:
    time_ns = result.time_us * 1000

    def use(sent_bytes: int, gb_s: float) -> float:
        return sent_bytes / gb_s / time_ns if time_ns > 0 else 0.0

    return Simulated(
        collective=collective,
        algorithm=algorithm,
        protocol=protocol,
        channels=channels,
        ranks=result.ranks,
        nodes=result.nodes,
        size_bytes=size_bytes,
        time_us=result.time_us / calls,
        closed_form_us=result.closed_form_us,
        messages=result.messages,
        events=result.events,
        node_port_use=use(result.node_port_bytes, cluster.machine.node_gb_s),
        nic_use=use(result.nic_bytes, cluster.machine.nic_gb_s),
        simulated_ranks=result.simulated_ranks,
        not_collapsed=result.not_collapsed,
        path_messages=result.path_messages,
        path_messages_inter_node=result.path_messages_inter_node,
        shares=result.shares if explained else {},
        hops=[Hop(*hop) for hop in result.hops] if explained else [],
        links=list(_links(cluster, result)),
    )


def _links(cluster: Cluster, result: native.SimulatedCollective) -> Iterator[LinkUse]:
    time_ns = result.time_us * 1000

    def used(name: str, carried: float, gb_s: float) -> LinkUse:
        return LinkUse(name, int(carried), gb_s, carried / gb_s / time_ns if time_ns > 0 else 0.0)

    for owner, nic, sent, _, _ in result.ports:
        if nic < 0:
            yield used(f"rank {owner}", sent, cluster.machine.node_gb_s)
        else:
            yield used(f"node {owner} NIC {nic}", sent, cluster.machine.nic_gb_s)
    for level, unit, number, up, gb_s, carried in result.links:
        way = "up" if up else "down"
        yield used(f"{cluster.file.network[level].name} {unit} {way} {number}", carried, gb_s)


@dataclass(frozen=True)
class Job:
    """One simulation of a sweep."""

    algorithm: str
    protocol: str
    ranks: int
    size_bytes: int


def _work(job: Job) -> float:
    """Some multiple of its steps: every rank's tiles, and at least one for each other rank."""
    return job.ranks * (job.ranks + job.size_bytes / (512 << 10))


def simulate_all(
    cluster: Cluster,
    collective: str,
    jobs: Sequence[Job],
    options: Mapping[str, Any],
    *,
    done: Callable[[], None] = lambda: None,
    progress: Progress | None = None,
) -> tuple[list[Simulated], list[tuple[Job, str]]]:
    """Many simulations on all cores, with the same further options of `simulate`.

    Args:
        cluster: Where.
        collective: "all_reduce" and so on.
        jobs: Which ones; the largest begin first.
        options: The options of `simulate`, the same for all.
        done: Called after each.
        progress: For another thread to see how far they are, or to stop them.

    Returns:
        What could be simulated, fastest first within ranks and size; and the others with the reason
        why not.
    """

    watch = progress or Progress()
    ordered = sorted(jobs, key=_work, reverse=True)
    parts = {job: watch.part(_work(job)) for job in ordered}

    def one(job: Job) -> Simulated:
        with parts[job] as part:
            return simulate(
                cluster, collective, job.algorithm, size_bytes=job.size_bytes, ranks=job.ranks,
                protocol=job.protocol, progress=part.native, **options,
            )  # fmt: skip

    results: list[Simulated] = []
    refused: list[tuple[Job, str]] = []
    # The native core lets go of the GIL.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        running = {pool.submit(one, job): job for job in ordered}
        for future in as_completed(running):
            done()
            try:
                results.append(future.result())
            except MisuseError as error:
                refused.append((running[future], str(error)))
    results.sort(key=lambda one: (one.ranks, one.size_bytes, one.time_us, one.algorithm))
    refused.sort(key=lambda one: (one[0].ranks, one[0].size_bytes, one[0].algorithm))
    return results, refused
