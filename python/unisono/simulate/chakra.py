"""Chakra execution traces (MLCommons) as workloads: one file a rank, protobuf or its JSON.

A trace is a sequence of messages, each after its length: metadata, then nodes with what they depend
on. The messages are described here rather than in generated code; other fields are skipped.
"""

import gzip
import heapq
import io
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, Message

from unisono.errors import MisuseError
from unisono.files import read_bounded, read_stream
from unisono.simulate.workload import Call, Task, TaskList, Workload

_MAX_BYTES = 1 << 30
# Real traces shrink to a tenth when they are compressed.
_MAX_GROWTH = 16
_SPARE_BYTES = 16 << 20
# Each node takes some 500 bytes, each dependency 24.
_MAX_NODES = 1_000_000
_MAX_DEPENDENCIES = 8_000_000
_RANK = re.compile(r"(\d+)(?:\.(?:et|json))?(?:\.gz)?$")
_COMPUTE, _SEND, _RECV, _COLLECTIVE = 4, 5, 6, 7
_COLLECTIVES = {
    0: "all_reduce", 1: "reduce", 2: "all_gather", 3: "gather", 4: "scatter", 5: "broadcast",
    6: "all_to_all", 7: "reduce_scatter", 8: "reduce_scatter", 9: "all_reduce",
}  # fmt: skip
# Whose size in a trace is the input's; ours is the larger of input and output.
_INPUT_IS_A_SHARE = {"all_gather", "gather"}
_WORLD = "world"

_Field = descriptor_pb2.FieldDescriptorProto
_UINT64, _INT64, _INT32 = _Field.TYPE_UINT64, _Field.TYPE_INT64, _Field.TYPE_INT32
_UINT32, _BOOL, _STRING = _Field.TYPE_UINT32, _Field.TYPE_BOOL, _Field.TYPE_STRING
_ENUM, _MESSAGE = _Field.TYPE_ENUM, _Field.TYPE_MESSAGE
_SINT32, _SINT64 = _Field.TYPE_SINT32, _Field.TYPE_SINT64
_NODE_TYPES = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE",
    "COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE",
)  # fmt: skip


def _messages() -> tuple[type[Message], type[Message]]:
    """GlobalMetadata and Node, with the fields that are read, by their numbers in the format."""
    file = descriptor_pb2.FileDescriptorProto(
        name="unisono/chakra.proto", package="unisono.chakra", syntax="proto3"
    )
    node_type = file.enum_type.add(name="NodeType")
    for number, name in enumerate(_NODE_TYPES):
        node_type.value.add(name=name, number=number)

    def message(name: str, *fields: tuple[str, int, Any, bool, str]) -> None:
        added = file.message_type.add(name=name)
        for field, number, kind, is_list, type_name in fields:
            label = _Field.LABEL_REPEATED if is_list else _Field.LABEL_OPTIONAL
            one = added.field.add(name=field, number=number, type=kind, label=label)
            if type_name:
                one.type_name = f".unisono.chakra.{type_name}"

    message(
        "AttributeProto",
        ("name", 1, _STRING, False, ""),
        ("int32_val", 7, _INT32, False, ""),
        ("int64_val", 9, _INT64, False, ""),
        ("uint32_val", 11, _UINT32, False, ""),
        ("uint64_val", 13, _UINT64, False, ""),
        ("sint32_val", 15, _SINT32, False, ""),
        ("sint64_val", 17, _SINT64, False, ""),
        ("bool_val", 27, _BOOL, False, ""),
        ("string_val", 29, _STRING, False, ""),
    )
    # A value may be zero, which is only told from none where they are one of several.
    attribute = file.message_type[0]
    attribute.oneof_decl.add(name="value")
    for field in attribute.field[1:]:
        field.oneof_index = 0
    message("GlobalMetadata", ("version", 1, _STRING, False, ""))
    message(
        "Node",
        ("id", 1, _UINT64, False, ""),
        ("name", 2, _STRING, False, ""),
        ("type", 3, _ENUM, False, "NodeType"),
        ("ctrl_deps", 4, _UINT64, True, ""),
        ("data_deps", 5, _UINT64, True, ""),
        ("duration_micros", 7, _UINT64, False, ""),
        ("attr", 10, _MESSAGE, True, "AttributeProto"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"unisono.chakra.{name}"))
        for name in ("GlobalMetadata", "Node")
    ]
    return made[0], made[1]


_Metadata, _Node = _messages()


def read_trace(path: Path) -> list[Any]:
    """The nodes of one rank's trace.

    Raises:
        MisuseError: It is no trace, or ends early; the message has the byte's offset.
    """
    contents = read_bounded(path, _MAX_BYTES)
    if contents[:2] == b"\x1f\x8b":
        most = min(_MAX_BYTES, _SPARE_BYTES + _MAX_GROWTH * len(contents))
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(contents)) as file:
                contents = read_stream(file, most, f"{path}, unpacked,")
        except (OSError, EOFError, zlib.error) as error:
            raise MisuseError(f"cannot read {path}: {error}") from None
    if contents[:1] == b"{":
        return _bounded(path, _read_json(path, contents))
    return _bounded(path, _read_messages(path, contents))


def _bounded(path: Path, nodes: Iterable[Any]) -> list[Any]:
    """The nodes; what they take is bounded as they are read."""
    found = []
    dependencies = 0
    for node in nodes:
        found.append(node)
        dependencies += len(node.ctrl_deps) + len(node.data_deps)
        if len(found) > _MAX_NODES or dependencies > _MAX_DEPENDENCIES:
            raise MisuseError(
                f"{path}: more than {_MAX_NODES} nodes or {_MAX_DEPENDENCIES} dependencies, the "
                "most that a trace of one rank may have"
            )
    return found


def _read_messages(path: Path, contents: bytes) -> Iterable[Any]:
    for number, (offset, part) in enumerate(_parts(path, contents)):
        if number and not part:
            raise MisuseError(f"{path}, byte {offset}: message {number} is empty")
        message = _Node() if number else _Metadata()
        try:
            message.ParseFromString(part)
        except DecodeError as error:
            raise MisuseError(f"{path}, byte {offset}: message {number}: {error}") from None
        if number:
            yield message


def _parts(path: Path, contents: bytes) -> Iterable[tuple[int, bytes]]:
    """Messages, each after its length of 7 bits a byte, and where they begin."""
    at = 0
    while at < len(contents):
        begin, size, shift = at, 0, 0
        while True:
            if at == len(contents) or shift > 28:
                raise MisuseError(f"{path}, byte {begin}: a message's length is expected here")
            size |= (contents[at] & 0x7F) << shift
            shift += 7
            at += 1
            if contents[at - 1] < 0x80:
                break
        if size > len(contents) - at:
            raise MisuseError(
                f"{path}, byte {at}: a message of {size} bytes, but only {len(contents) - at} are "
                "left; the trace ends early"
            )
        yield at, contents[at : at + size]
        at += size


def _read_json(path: Path, contents: bytes) -> Iterable[Any]:
    """JSON objects one after another, the first of them metadata, as Chakra's jsonizer writes."""
    decoder = json.JSONDecoder()
    try:
        text = contents.decode()
        at, number = 0, 0
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            while at < len(text) and text[at].isspace():
                at += 1
            if number:
                yield json_format.ParseDict(value, _Node(), ignore_unknown_fields=True)
            number += 1
    except (ValueError, RecursionError, json_format.ParseError) as error:
        raise MisuseError(f"{path}: {error}") from None


def load_chakra(
    paths: Iterable[Path], groups: Mapping[str, list[int]] | None = None, name: str = "chakra"
) -> Workload:
    """The workload of the traces of all ranks, one file a rank, whose name ends in it.

    Compute takes its recorded time, on one stream for the host and one for each of the device's.
    Communication is simulated.

    Args:
        paths: The files.
        groups: Ranks of each process group that nodes name; without a group: all ranks.
        name: The name of the workload.

    Raises:
        MisuseError: A trace is missing or wrong, ends early, or what nodes depend on is unknown or
            goes round in a cycle.
    """
    traces: dict[int, list[Any]] = {}
    for path in paths:
        found = _RANK.search(path.name)
        if found is None:
            raise MisuseError(f"{path}: a trace's name ends in its rank, as in step.0.et")
        traces[int(found[1])] = read_trace(path)
    if not traces:
        raise MisuseError("there are no traces")
    missing = sorted(set(range(max(traces) + 1)) - set(traces))
    if missing:
        raise MisuseError(f"there are no traces of ranks {', '.join(map(str, missing[:10]))}")
    workload = Workload(name, len(traces), {_WORLD: [list(range(len(traces)))]})
    for group, ranks in (groups or {}).items():
        workload.communicators[group] = [list(ranks)]
    for rank in range(len(traces)):
        tasks = TaskList([rank])
        places: dict[int, int] = {}
        for node in _in_order(rank, traces[rank]):
            after = tuple(places[other] for other in (*node.ctrl_deps, *node.data_deps))
            places[node.id] = tasks.add(_task(workload, rank, node, after))
        workload.lists.append(tasks)
    return workload


def _in_order(rank: int, nodes: list[Any]) -> Iterable[Any]:
    """Nodes after all that they depend on, otherwise in the trace's order."""
    places = {node.id: place for place, node in enumerate(nodes)}
    if len(places) < len(nodes):
        raise MisuseError(f"rank {rank}: two nodes have one number")
    waits = [0] * len(nodes)
    waiters: list[list[int]] = [[] for _ in nodes]
    for place, node in enumerate(nodes):
        for other in (*node.ctrl_deps, *node.data_deps):
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
                places[other] for other in (*node.ctrl_deps, *node.data_deps)
                if waits[places[other]] > 0
            )  # fmt: skip
        cycle = [nodes[one].id for one in (*way[way.index(place) :], place)]
        raise MisuseError(
            f"rank {rank}: nodes depend on each other in a cycle: "
            + " needs ".join(map(str, cycle[:16]))
        )


def _task(workload: Workload, rank: int, node: Any, after: tuple[int, ...]) -> Task:
    attributes = {one.name: getattr(one, one.WhichOneof("value")) for one in node.attr
                  if one.WhichOneof("value")}  # fmt: skip

    def needed(name: str) -> int:
        if name not in attributes:
            raise MisuseError(f"rank {rank}: node {node.id} ({node.name}) has no {name}")
        return int(attributes[name])

    if node.type == _COLLECTIVE:
        kind = needed("comm_type")
        if kind not in _COLLECTIVES:
            raise MisuseError(f"rank {rank}: node {node.id} has comm_type {kind}; it is 0 to 9")
        collective = _COLLECTIVES[kind]
        group = str(attributes.get("pg_name", "")) or _WORLD
        if group not in workload.communicators:
            raise MisuseError(
                f"rank {rank}: node {node.id} is on process group '{group}'; there are "
                f"{', '.join(workload.communicators)}: name its ranks"
            )
        ranks = len(workload.communicators[group][0])
        size = needed("comm_size") * (ranks if collective in _INPUT_IS_A_SHARE else 1)
        call = Call(collective, size, type="uint8")
        return Task("collective", node.name, group, after, call=call, communicator=group)
    if node.type in (_SEND, _RECV):
        is_send = node.type == _SEND
        peer = needed("comm_dst" if is_send else "comm_src")
        stream = f"{'send to' if is_send else 'recv from'} {peer}"
        return Task(
            "send" if is_send else "recv", node.name, stream, after, peer=peer,
            size_bytes=needed("comm_size"), tag=int(attributes.get("comm_tag", 0)),
        )  # fmt: skip
    # What is neither compute nor communication takes no time of its own, but keeps the order.
    duration = 1e3 * node.duration_micros if node.type == _COMPUTE else 0.0
    is_host = bool(attributes.get("is_cpu_op", False))
    stream = "host" if is_host else f"device {attributes.get('stream', 0)}"
    return Task("compute", node.name, stream, after, duration_ns=duration)
