"""Turns the tables of settings, the core's and a leaf's, into the reference page of settings."""

from __future__ import annotations

import re
from dataclasses import dataclass

SOURCES = ("src/base/settings.cc", "bindings/nccl/settings.cc")

_ROW = re.compile(
    r'SettingRow\{\s*Setting::\w+,\s*"(?P<variable>\w+)",\s*(?P<type>\w+),\s*'
    r'"(?P<default>[^"]*)",\s*(?P<meaning>(?:"(?:[^"\\]|\\.)*"\s*)+)\}',
)

_TYPES = {
    "text": "text",
    "integer": "whole number",
    "size_bytes": "size (`512KiB`)",
    "duration": "time (`300s`, `250ms`)",
    "boolean": "`1` or `0`",
}


@dataclass(frozen=True)
class Row:
    """One setting."""

    variable: str
    type: str
    default: str
    meaning: str


def rows(source: str) -> list[Row]:
    """The rows of the table, in order."""
    found = []
    for match in _ROW.finditer(source):
        words = re.findall(r'"((?:[^"\\]|\\.)*)"', match["meaning"])
        meaning = "".join(words).replace('\\"', '"')
        found.append(Row(match["variable"], match["type"], match["default"], meaning))
    return found


def markdown(source: str) -> str:
    """The page."""
    lines = [
        "# Settings",
        "",
        "This page lists all settings with their defaults. It is for people who tune a job.",
        "Every setting is an environment variable, read once, when the library is first used.",
        "`unisono.init(settings=...)` and `InitOptions::settings` give one communicator others.",
        "If a value cannot be read, making a communicator fails with an error that names it.",
        "",
        "| variable | type | default | meaning |",
        "|---|---|---|---|",
    ]
    for row in rows(source):
        default = f"`{row.default}`" if row.default else "empty"
        meaning = row.meaning.replace("|", "\\|")
        lines.append(f"| `{row.variable}` | {_TYPES[row.type]} | {default} | {meaning} |")
    return "\n".join(lines) + "\n"
