"""Chakra execution traces (MLCommons) as workloads: one file a rank.

Chakra's own feeder (et_feeder.cpp of mlcommons/chakra) issues a node once its data dependencies
have ended, and never looks at control dependencies. So these may name callers that the converter
has removed.
"""

import heapq
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unisono.errors import MisuseError
from unisono.simulate.chakra_trace import (
    COLLECTIVE,
    COMPUTE,
    RECV,
    SEND,
    attributes_of,
    groups_of,
    read_trace,
)
from unisono.simulate.trace_ranks import by_rank, rank_of_name
from unisono.simulate.workload import Call, Task, TaskList, Workload

_ACTS = (COMPUTE, SEND, RECV, COLLECTIVE)
_COLLECTIVES = {
    0: "all_reduce", 1: "reduce", 2: "all_gather", 3: "gather", 4: "scatter", 5: "broadcast",
    6: "all_to_all", 7: "reduce_scatter", 8: "reduce_scatter", 9: "all_reduce",
}  # fmt: skip
# Whose size in a trace is the input's; ours is the larger of input and output.
_INPUT_IS_A_SHARE = {"all_gather", "gather"}
_WORLD = "world"


def load_chakra(
    paths: Iterable[Path], groups: Mapping[str, list[int]] | None = None, name: str = "chakra"
) -> Workload:
    """The workload of the traces of all ranks, one file a rank.

    Compute takes its recorded time, on one stream for the host and one for each of the device's.
    Communication is simulated. A trace's rank is what its metadata (`rank`) or its messages
    (`comm_src`, `comm_dst`) state, or else its name.

    Args:
        paths: The files.
        groups: Ranks of each process group that nodes name, before what the traces themselves say
            of it; a node without a group is of all ranks.
        name: The name of the workload.

    Raises:
        MisuseError: A trace is missing or wrong, ends early, or what nodes depend on is unknown or
            goes round in a cycle; or none of them computes or communicates.
    """
    traces = by_rank("traces", _with_ranks(paths))
    workload = Workload(
        name, len(traces), {_WORLD: [list(range(len(traces)))]}, is_recorded_of_nccl=True
    )
    for group, ranks in itertools.chain(*map(groups_of, traces.values())):
        known_as = workload.communicators.setdefault(group, [])
        members = ranks or list(range(len(traces)))
        # A group of ranks without traces may be listed where no node is on it.
        if members not in known_as and 0 <= min(members) <= max(members) < len(traces):
            known_as.append(members)
    for group, ranks in (groups or {}).items():
        workload.communicators[group] = [list(ranks)]
    for rank in range(len(traces)):
        tasks = TaskList([rank])
        places: dict[int, int] = {}
        known = {node.id for node in traces[rank]}
        for node in _in_order(rank, traces[rank]):
            after = tuple(places[other] for other in _dependencies(node, known))
            places[node.id] = tasks.add(_task(workload, rank, node, after))
        workload.lists.append(tasks)
    if not any(node.type in _ACTS for node in itertools.chain(*traces.values())):
        raise MisuseError(f"{name}: no node of its traces computes or communicates")
    return workload


def _with_ranks(paths: Iterable[Path]) -> Iterator[tuple[Path, int, list[Any]]]:
    for path in paths:
        trace = read_trace(path)
        rank = rank_of_name(path, "step.0.et") if trace.rank is None else trace.rank
        yield path, rank, trace.nodes


def _dependencies(node: Any, known: Container[int]) -> Iterator[int]:
    """The nodes that a node waits for: a missing control dependency holds nothing up."""
    yield from (other for other in node.ctrl_deps if other in known)
    yield from node.data_deps


def _in_order(rank: int, nodes: list[Any]) -> Iterable[Any]:
    """Nodes after all that they depend on, otherwise in the trace's order."""
    places = {node.id: place for place, node in enumerate(nodes)}
    if len(places) < len(nodes):
        raise MisuseError(f"rank {rank}: two nodes have one number")
    waits = [0] * len(nodes)
    waiters: list[list[int]] = [[] for _ in nodes]
    for place, node in enumerate(nodes):
        for other in _dependencies(node, places):
            if other not in places:
                raise MisuseError(
                    f"rank {rank}: node {node.id} ({node.name}) depends on node {other}, which the "
                    "trace does not have; it may end early"
                )
            waiters[places[other]].append(place)
            waits[place] += 1
    ready = [place for place, count in enumerate(waits) if count == 0]
    done = 0
    while ready:
        place = heapq.heappop(ready)
        yield nodes[place]
        done += 1
        for waiter in waiters[place]:
            waits[waiter] -= 1
            if waits[waiter] == 0:
                heapq.heappush(ready, waiter)
    if done < len(nodes):
        place = next(place for place, count in enumerate(waits) if count > 0)
        way: list[int] = []
        while place not in way:
            way.append(place)
            node = nodes[place]
            place = next(
                places[other] for other in _dependencies(node, places)
                if waits[places[other]] > 0
            )  # fmt: skip
        cycle = [nodes[one].id for one in (*way[way.index(place) :], place)]
        raise MisuseError(
            f"rank {rank}: nodes depend on each other in a cycle: "
            + " needs ".join(map(str, cycle[:16]))
        )


def _task(workload: Workload, rank: int, node: Any, after: tuple[int, ...]) -> Task:
    attributes = attributes_of(node)
    is_host = bool(attributes.get("is_cpu_op", False))
    # The host's call of a collective is a node of the same type, but only the device's node has the
    # attributes of the communication.
    is_call = is_host and not {"comm_type", "comm_size"} & attributes.keys()

    def needed(name: str) -> int:
        if name not in attributes:
            raise MisuseError(f"rank {rank}: node {node.id} ({node.name}) has no {name}")
        return int(attributes[name])

    if node.type == COLLECTIVE and not is_call:
        kind = needed("comm_type")
        if kind not in _COLLECTIVES:
            raise MisuseError(f"rank {rank}: node {node.id} has comm_type {kind}; it is 0 to 9")
        collective = _COLLECTIVES[kind]
        group = str(attributes.get("pg_name", "")) or _WORLD
        known = workload.communicators
        members = next((one for one in known.get(group, []) if rank in one), None)
        if members is None:
            holding = [name for name, all_of in known.items() if any(rank in one for one in all_of)]
            raise MisuseError(
                f"rank {rank}: node {node.id} is on process group '{group}'; there are "
                f"{', '.join(holding)} with this rank: name its ranks in groups.json"
            )
        ranks = len(members)
        size = needed("comm_size") * (ranks if collective in _INPUT_IS_A_SHARE else 1)
        call = Call(collective, size, type="uint8")
        return Task("collective", node.name, group, after, call=call, communicator=group)
    if node.type in (SEND, RECV) and not is_call:
        is_send = node.type == SEND
        peer = needed("comm_dst" if is_send else "comm_src")
        stream = f"{'send to' if is_send else 'recv from'} {peer}"
        return Task(
            "send" if is_send else "recv", node.name, stream, after, peer=peer,
            size_bytes=needed("comm_size"), tag=int(attributes.get("comm_tag", 0)),
        )  # fmt: skip
    # What is neither compute nor communication takes no time of its own, but keeps the order.
    duration = 1e3 * node.duration_micros if node.type == COMPUTE or is_call else 0.0
    stream = "host" if is_host else f"device {attributes.get('stream', 0)}"
    return Task("compute", node.name, stream, after, duration_ns=duration)
