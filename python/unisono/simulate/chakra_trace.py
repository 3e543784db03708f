"""Chakra execution traces (MLCommons), as they are written: protobuf, or its JSON.

A trace is a sequence of messages, each after its length: metadata, then nodes with what they depend
on. The messages are described here rather than in generated code; other fields are skipped.
"""

import ast
import gzip
import io
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, Message

from unisono.errors import MisuseError
from unisono.files import read_bounded, read_stream
from unisono.simulate.files import starts_json

_MAX_BYTES = 1 << 30
# Real traces shrink to a tenth when they are compressed.
_MAX_GROWTH = 16
_SPARE_BYTES = 16 << 20
# Each node takes some 500 bytes, each dependency 24.
_MAX_NODES = 1_000_000
_MAX_DEPENDENCIES = 8_000_000
# So many hold 100,000 ranks in ten groups each.
_MAX_GROUPS_CHARACTERS = 8 << 20
METADATA, COMPUTE, SEND, RECV, COLLECTIVE = 1, 4, 5, 6, 7
# A node of communication names its own rank by this attribute.
_OWN_END = {SEND: "comm_src", RECV: "comm_dst"}
_CONVERT = "link it with chakra_trace_link and convert the result with chakra_converter"

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
    message(
        "GlobalMetadata",
        ("version", 1, _STRING, False, ""),
        ("attr", 2, _MESSAGE, True, "AttributeProto"),
    )
    message("IOInfo", ("values", 1, _STRING, False, ""))
    message(
        "Node",
        ("id", 1, _UINT64, False, ""),
        ("name", 2, _STRING, False, ""),
        ("type", 3, _ENUM, False, "NodeType"),
        ("ctrl_deps", 4, _UINT64, True, ""),
        ("data_deps", 5, _UINT64, True, ""),
        ("duration_micros", 7, _UINT64, False, ""),
        ("inputs", 8, _MESSAGE, False, "IOInfo"),
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


@dataclass(frozen=True)
class Trace:
    """The trace of one rank.

    Attributes:
        rank: As its metadata or its messages state it; None: they do not.
        nodes: In the file's order; at least one.
    """

    rank: int | None
    nodes: list[Any]


def read_trace(path: Path) -> Trace:
    """Reads the trace of one rank.

    Raises:
        MisuseError: It is no trace, has no node, or ends early; the message has the byte's offset.
    """
    contents = read_bounded(path, _MAX_BYTES)
    if contents[:2] == b"\x1f\x8b":
        most = min(_MAX_BYTES, _SPARE_BYTES + _MAX_GROWTH * len(contents))
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(contents)) as file:
                contents = read_stream(file, most, f"{path}, unpacked,")
        except (OSError, EOFError, zlib.error) as error:
            raise MisuseError(f"cannot read {path}: {error}") from None
    read = _read_json if starts_json(contents) else _read_messages
    messages = iter(read(path, contents))
    metadata = next(messages, None)
    nodes = _bounded(path, messages)
    if not nodes:
        raise MisuseError(
            f"{path}: a Chakra trace without a node{', only metadata' if metadata else ''}; there "
            "is nothing to simulate"
        )
    return Trace(_own_rank(path, metadata, nodes), nodes)


def _own_rank(path: Path, metadata: Any, nodes: list[Any]) -> int | None:
    """The rank that the contents state, if they state one."""
    stated: dict[int, str] = {}
    named = [("its metadata", attributes_of(metadata).get("rank"))]
    messages = (node for node in nodes if node.type in _OWN_END)
    named += [(f"node {one.id}", attributes_of(one).get(_OWN_END[one.type])) for one in messages]
    for where, value in named:
        if value is None:
            continue
        try:
            stated.setdefault(int(value), where)
        except ValueError:
            raise MisuseError(f"{path}: {where} has rank '{value}', not a number") from None
        if len(stated) > 1:
            both = " and ".join(f"{rank} by {place}" for rank, place in stated.items())
            raise MisuseError(f"{path}: a trace is of one rank, and it is of rank {both}")
    return next(iter(stated), None)


def attributes_of(message: Any) -> dict[str, Any]:
    """The attributes of a node, or of the metadata, that have one value, by name."""
    return {
        one.name: getattr(one, one.WhichOneof("value"))
        for one in message.attr
        if one.WhichOneof("value")
    }


def groups_of(nodes: Iterable[Any]) -> list[tuple[str, list[int]]]:
    """Process groups with their ranks, as PyTorch's node of them lists them; no ranks: all.

    That node has the text of a Python list, whose one text is JSON. One that is not so has none.
    """
    for node in nodes:
        is_listed = node.type == METADATA and node.inputs.values.startswith("[")
        if not is_listed or len(node.inputs.values) > _MAX_GROUPS_CHARACTERS:
            continue
        try:
            (text,) = ast.literal_eval(node.inputs.values)
            return [
                (str(one["pg_name"]), [int(rank) for rank in one["ranks"]])
                for one in json.loads(text)
            ]
        except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
            continue
    return []


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
        text = contents.decode().lstrip()
        at, number = 0, 0
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            while at < len(text) and text[at].isspace():
                at += 1
            if not number:
                _refuse_other_trace(path, value)
            kind = _Node if number else _Metadata
            yield json_format.ParseDict(value, kind(), ignore_unknown_fields=True)
            number += 1
    except MisuseError:
        raise
    except (ValueError, RecursionError, json_format.ParseError) as error:
        raise MisuseError(f"{path}: {error}") from None


def _refuse_other_trace(path: Path, first: Any) -> None:
    """Raises MisuseError for the host's or the device's trace, of which Chakra's is made."""
    if isinstance(first, list) or "traceEvents" in first:
        raise MisuseError(
            f"{path} is a Kineto trace (PyTorch's profiler), not Chakra's: with the host's trace, "
            f"{_CONVERT}"
        )
    if isinstance(first.get("nodes"), list):
        raise MisuseError(
            f"{path} is a host trace (PyTorch's ExecutionTraceObserver), not Chakra's: with "
            f"Kineto's trace of the device, {_CONVERT}"
        )
