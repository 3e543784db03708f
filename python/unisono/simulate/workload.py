"""Workloads: what every rank of an application computes and communicates, and how long it takes.

Ranks that do the same share a list of tasks. A task stands on a stream of its rank; those of one
stream follow each other, and a task may also wait for earlier ones of other streams.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.simulate.cluster import Cluster
from unisono.simulate.run import Hop, timeline_to

AUTOMATIC = "automatic"


@dataclass(frozen=True)
class Call:
    """A collective.

    Attributes:
        collective: "all_reduce" and so on.
        size_bytes: The larger of input and output.
        algorithm: A name, or "automatic": the one that is fastest by itself on the
            cluster, simulated (`choose_plan`).
        protocol: simple, ll or ll128.
        channels: 0: as the cluster's file says.
        type: The type of the elements.
        root: Its place in the group.
    """

    collective: str
    size_bytes: int
    algorithm: str = AUTOMATIC
    protocol: str = "simple"
    channels: int = 0
    type: str = "float32"
    root: int = 0


@dataclass(frozen=True)
class Task:
    """One thing that a rank does.

    Attributes:
        kind: What it is.
        name: In time-lines and tables.
        stream: Tasks of one stream follow each other.
        after: Earlier tasks of the list that it waits for, by their places.
        duration_ns: The duration of a compute task.
        call: The call of a collective.
        communicator: A collective's; of a message: `peer` is then an offset in the group.
        peer: A message's: a rank, or the offset to this rank's place, modulo the group's size.
        size_bytes: The size of a message.
        tag: The tag of a message; matched with order, by sender and receiver.
    """

    kind: Literal["compute", "collective", "send", "recv"]
    name: str = ""
    stream: str = "main"
    after: tuple[int, ...] = ()
    duration_ns: float = 0.0
    call: Call | None = None
    communicator: str = ""
    peer: int = 0
    size_bytes: int = 0
    tag: int = 0


@dataclass
class TaskList:
    """What some ranks do."""

    ranks: Sequence[int]
    tasks: list[Task] = field(default_factory=list)

    def add(self, task: Task) -> int:
        """Appends a task and returns its place, for others' `after`."""
        self.tasks.append(task)
        return len(self.tasks) - 1

    def compute(
        self, name: str, duration_ns: float, *, stream: str = "compute", after: Sequence[int] = ()
    ) -> int:
        """Appends a compute task."""
        return self.add(Task("compute", name, stream, tuple(after), duration_ns=duration_ns))

    def collective(
        self, name: str, call: Call, over: str, *, stream: str = "", after: Sequence[int] = ()
    ) -> int:
        """Appends a call on the communicator `over`, on its own stream if none is named."""
        return self.add(
            Task("collective", name, stream or over, tuple(after), call=call, communicator=over)
        )


@dataclass
class Workload:
    """An application: communicators, each with its groups of ranks, and lists of tasks.

    Attributes:
        communicators: By name: disjoint groups of ranks, each in the order of its ranks.
        lists: A rank stands in one at most.
        iterations: How often each list is gone through.
        message_protocol: The protocol of messages between two ranks.
        message_channels: 0: as the cluster's file says.
        tokens: The number of tokens in a training step; 0: it is none.
        operations: Operations of the step's model, nothing computed twice.
        peak_tflops: The peak of a rank's device, 10^12 operations a second; 0: unknown.
        implementation: Whose calls they are: "unisono" (plans, which the event simulator runs), or
            "nccl" (NCCL's model).
        is_recorded_of_nccl: NCCL ran them when they were recorded.
    """

    name: str
    ranks: int
    communicators: dict[str, list[list[int]]] = field(default_factory=dict)
    lists: list[TaskList] = field(default_factory=list)
    iterations: int = 1
    message_protocol: str = "simple"
    message_channels: int = 0
    tokens: int = 0
    operations: float = 0.0
    peak_tflops: float = 0.0
    implementation: Literal["unisono", "nccl"] = "unisono"
    is_recorded_of_nccl: bool = False

    def to_json(self, channels: int) -> str:
        """The form that the native simulator reads; `channels` stands in where none are given.

        Raises:
            MisuseError: A task names no communicator, or has more streams than there may be.
        """
        names = list(self.communicators)
        calls: dict[Call, int] = {}
        lists = []
        for number, one in enumerate(self.lists):
            streams: dict[str, int] = {}
            tasks = []
            for place, task in enumerate(one.tasks):
                if task.communicator and task.communicator not in self.communicators:
                    raise MisuseError(
                        f"{self.name}: task {place} ({task.name}) of list {number} is over "
                        f"'{task.communicator}'; there are {', '.join(names) or 'none'}"
                    )
                tasks.append(
                    _task(task, names, calls, streams.setdefault(task.stream, len(streams)))
                )
            lists.append({"ranks": list(one.ranks), "tasks": tasks, "streams": list(streams)})
        return json.dumps(
            {
                "name": self.name,
                "ranks": self.ranks,
                "iterations": self.iterations,
                "message_protocol": self.message_protocol,
                "message_channels": min(self.message_channels or channels, 64),
                "communicators": [
                    {"name": name, "groups": groups} for name, groups in self.communicators.items()
                ],
                "calls": [
                    {
                        "collective": call.collective,
                        "algorithm": call.algorithm,
                        "protocol": call.protocol,
                        "channels": call.channels or channels,
                        "bytes": call.size_bytes,
                        "type": call.type,
                        "root": call.root,
                    }
                    for call in calls
                ],
                "lists": lists,
            },
            separators=(",", ":"),
        )

    def with_algorithms(self, algorithms: dict[str, str]) -> "Workload":
        """The same with other algorithms, by collective; what is not named stays as it is."""

        def chosen(task: Task) -> Task:
            if task.call is None or task.call.collective not in algorithms:
                return task
            name = algorithms[task.call.collective]
            return replace(task, call=replace(task.call, algorithm=name))

        lists = [TaskList(one.ranks, [chosen(task) for task in one.tasks]) for one in self.lists]
        return replace(self, lists=lists)


def _task(task: Task, names: list[str], calls: dict[Call, int], stream: int) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": task.kind, "name": task.name, "stream": stream}
    if task.after:
        out["after"] = task.after
    if task.kind == "compute":
        out["ns"] = float(task.duration_ns)
    elif task.kind == "collective":
        if task.call is None:
            raise MisuseError(f"task '{task.name}' is a collective without a call")
        out["communicator"] = names.index(task.communicator)
        out["call"] = calls.setdefault(task.call, len(calls))
    else:
        out |= {"peer": task.peer, "bytes": task.size_bytes, "tag": task.tag}
        if task.communicator:
            out["communicator"] = names.index(task.communicator)
    return out


@dataclass(frozen=True)
class TaskTime:
    """A task as it was run."""

    name: str
    kind: str
    stream: str
    iteration: int
    began_us: float
    ended_us: float
    communicator: str = ""


@dataclass(frozen=True)
class SimulatedWorkload:
    """What a workload took.

    Attributes:
        time_us: Until the last rank has ended.
        iterations_us: When the last rank had ended each iteration.
        compute_us: For which time the shown rank computes, of `time_us`; times at once count once.
        communication_us: The same for collectives and messages.
        exposed_us: For which time it communicates and does not compute.
        simulated_ranks: Fewer than `ranks` where ranks in the same state were simulated once.
        not_collapsed: Why they were not; empty if they were.
        algorithms: For each communicator and collective: its size, and the algorithm that served.
        tasks: The shown rank's.
        shares: Parts of the critical path, with `explain`: us of compute, latency, bytes...
        hops: Its messages, with `explain`.
        tokens_per_s: Tokens a second in a training step's last iteration; 0: it is none.
        mfu: Model FLOPs utilization in that iteration, a part of the devices' peak; 0: unknown.
        low_us: Lower end of an interval of `time_us`, where NCCL's model has one; 0: none.
        high_us: Its upper end.
    """

    name: str
    ranks: int
    nodes: int
    time_us: float
    iterations_us: list[float]
    compute_us: float
    communication_us: float
    exposed_us: float
    messages: int
    events: int
    simulated_ranks: int
    not_collapsed: str
    algorithms: list[tuple[str, str, int, str]]
    tasks: list[TaskTime]
    path_messages: int = 0
    path_messages_inter_node: int = 0
    shares: dict[str, float] = field(default_factory=dict)
    hops: list[Hop] = field(default_factory=list)
    tokens_per_s: float = 0.0
    mfu: float = 0.0
    low_us: float = 0.0
    high_us: float = 0.0

    @property
    def last_iteration_us(self) -> float:
        """The last iteration by itself: without what the first one has to fill."""
        before = self.iterations_us[-2] if len(self.iterations_us) > 1 else 0.0
        return self.iterations_us[-1] - before


def simulate_workload(
    cluster: Cluster,
    workload: Workload,
    *,
    model: str = "loggops",
    noise: float = 0.0,
    seed: int = 1,
    explain: bool = False,
    collapse: bool = True,
    timeline: str = "",
    shown_rank: int = 0,
    progress: native.SimulationProgress | None = None,
) -> SimulatedWorkload:
    """Simulates a workload; its ranks fill one node after another.

    Args:
        cluster: Where.
        workload: What.
        model: loggops (ports take turns), flows (links are shared), alpha_beta (nothing is).
        noise: Every latency is longer by up to this part of it.
        seed: The seed of the noise.
        explain: Also the critical path.
        collapse: Simulate ranks in the same state once.
        timeline: A file for a time-line that Perfetto shows.
        shown_rank: Whose tasks the result lists.
        progress: For another thread to see how far it is, or to stop it.

    Raises:
        MisuseError: The workload is wrong, an algorithm cannot serve, the cluster has too few
            places, or ranks wait for each other, with the cycle.
        MachineError: The time-line cannot be written.
    """
    text = workload.to_json(cluster.channels)
    with timeline_to(timeline) as descriptor:
        result = native.simulate_workload(
            cluster.machine, text, model=model, noise=noise, seed=seed, explain=explain,
            collapse=collapse, timeline=descriptor, shown_rank=shown_rank, progress=progress,
        )  # fmt: skip
    calls = json.loads(text)["calls"]
    listed = next((one.tasks for one in workload.lists if shown_rank in one.ranks), [])
    tasks = [
        TaskTime(
            listed[task].name,
            listed[task].kind,
            listed[task].stream,
            iteration,
            began,
            ended,
            listed[task].communicator,
        )
        for task, iteration, began, ended in result.tasks
    ]
    return summed_up(
        workload,
        SimulatedWorkload(
            name=workload.name, ranks=result.ranks, nodes=result.nodes, time_us=result.time_us,
            iterations_us=result.iterations_us, compute_us=0.0, communication_us=0.0,
            exposed_us=0.0, messages=result.messages, events=result.events,
            simulated_ranks=result.simulated_ranks, not_collapsed=result.not_collapsed,
            algorithms=[
                (communicator, calls[call]["collective"], calls[call]["bytes"], algorithm)
                for communicator, call, _, algorithm in result.served
            ],
            tasks=tasks, path_messages=result.path_messages,
            path_messages_inter_node=result.path_messages_inter_node,
            shares=result.shares if explain else {},
            hops=[Hop(*hop) for hop in result.hops] if explain else [],
        ),
    )  # fmt: skip


def summed_up(workload: Workload, done: SimulatedWorkload) -> SimulatedWorkload:
    """A result with what follows from its tasks and iterations: where time goes, and MFU."""
    compute = _union((one.began_us, one.ended_us) for one in done.tasks if one.kind == "compute")
    communicate = _union(
        (one.began_us, one.ended_us) for one in done.tasks if one.kind != "compute"
    )
    either = _union([*compute, *communicate])
    done = replace(
        done, compute_us=_length(compute), communication_us=_length(communicate),
        exposed_us=_length(either) - _length(compute),
    )  # fmt: skip
    seconds = done.last_iteration_us / 1e6
    if seconds <= 0:
        return done
    peak = workload.peak_tflops * 1e12 * workload.ranks
    mfu = workload.operations / seconds / peak if peak > 0 else 0.0
    return replace(done, tokens_per_s=workload.tokens / seconds, mfu=mfu)


def _union(spans: Any) -> list[tuple[float, float]]:
    """The spans, joined where they meet."""
    joined: list[tuple[float, float]] = []
    for began, ended in sorted(spans):
        if joined and began <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], ended))
        else:
            joined.append((began, ended))
    return joined


def _length(spans: list[tuple[float, float]]) -> float:
    return sum(ended - began for began, ended in spans)
