"""Packs entries of a record as files have them."""

from __future__ import annotations

import base64
from typing import Any

_SINCE = ("started_ns", "launched_ns", "ended_ns")


def packed(record: dict[str, Any], name: str, count: int) -> dict[str, Any]:
    """The record with the first entries of a kind as columns."""
    entries = record[name][:count]
    names = sorted({value for one in entries for value in one.values() if isinstance(value, str)})
    members = {member for one in entries for member in one} | {"launched_ns"}
    if name == "collectives":
        members |= {"operation"}
        names.append("")
    columns = {}
    for member in sorted(members - {"state"}):
        values = []
        for one in entries:
            value = one.get(member, "" if member == "operation" else 0)
            if member in _SINCE and value:
                value += 1 - one["scheduled_ns"]
            values.append(names.index(value) if isinstance(value, str) else value)
        least = min(values)
        data = b"".join((value - least).to_bytes(8, "little") for value in values)
        columns[member] = {
            "least": least,
            "width": 8,
            "data": base64.b64encode(data).decode(),
        }
    packs = {"entries": len(entries), "names": names, "columns": columns}
    return record | {f"packed_{name}": packs, name: record[name][count:]}
