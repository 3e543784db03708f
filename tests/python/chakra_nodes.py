"""Encodes Chakra traces for tests, from the format's field numbers."""

from __future__ import annotations


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(number: int, key: str, value: int | str | bool) -> bytes:
    where = 27 if isinstance(value, bool) else 9 if isinstance(value, int) else 29
    return field(number, field(1, key) + field(where, int(value) if where != 29 else value))


def node(number: int, name: str, kind: int, deps: list[int], duration: int = 0, *,
         ctrl: list[int] | None = None, inputs: str = "", **attributes: int | str | bool,
) -> bytes:  # fmt: skip
    out = field(1, number) + field(2, name) + field(3, kind)
    if ctrl:
        out += field(4, b"".join(map(varint, ctrl)))
    if deps:
        out += field(5, b"".join(map(varint, deps)))
    out += field(7, duration)
    if inputs:
        out += field(8, field(1, inputs))
    return out + b"".join(attribute(10, *one) for one in attributes.items())


def trace(
    nodes: list[bytes], metadata: bytes = field(1, "0.0.4"), rank: int | str | None = None
) -> bytes:
    if rank is not None:
        metadata += attribute(2, "rank", rank)
    return b"".join(varint(len(part)) + part for part in (metadata, *nodes))
