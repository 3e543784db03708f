"""Turns the schemas of the files that Unisono reads into the reference page of file formats."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from unisono.simulate import cluster, quantities, workload_file
from unisono.simulate.cluster import ClusterFile
from unisono.simulate.workload_file import ModelFile, WorkloadFile
from unisono.synthesize.links import LinksFile

Schema = type[BaseModel]

_LEAD = """\
# File formats

This page lists the members of the files that Unisono reads and writes, generated from their
schemas. It is for people who write such files, or programs that do. A member that is not listed is
an error, and so is a newer version.

| file | form | described in |
|---|---|---|
| plan | text, JSON | [plan grammar](plan.md), [JSON schema](../schema/plan-v1.schema.json) |
| selection table | JSON | [tune](../how-to/tuning.md#write-a-selection-file) |
| cluster | YAML | [below](#cluster-file), [simulate a cluster](../how-to/simulate.md) |
| workload | YAML | [below](#workload-file), [simulate a workload](../how-to/workloads.md) |
| model | YAML | [below](#model-file), [plan a training step](../how-to/plan-training.md) |
| links | YAML | [below](#links-file), [synthesise](../how-to/synthesize.md) |
| MSCCL, MSCCL++ | XML, JSON | [exchange MSCCL files](../how-to/msccl-files.md) |
| GOAL, Chakra, Flight Recorder | | [simulate a workload](../how-to/workloads.md#traces) |

A quantity is a text with a number and a unit, such as `3.7 us`. In cluster files and files of links
it ends with the name of its source in brackets: `25 GB/s [olcf]`.
"""
_FILES: dict[str, Schema] = {
    "Cluster file": ClusterFile,
    "Workload file": WorkloadFile,
    "Model file": ModelFile,
    "Links file": LinksFile,
}
_PLAIN_TYPES = {str: "text", int: "whole number", float: "number", bool: "true or false"}
_MODULES = (quantities, cluster, workload_file)
_QUANTITIES = {
    "Duration": "duration",
    "Bandwidth": "bandwidth",
    "Rate": "bandwidth",
    "Size": "size",
    "Speed": "speed",
    "Plain": "number",
}


def _quantities() -> dict[Any, str]:
    """By the function that reads it: what kind of quantity a member is."""
    return {
        get_args(getattr(module, name))[1].func: kind
        for module in _MODULES
        for name, kind in _QUANTITIES.items()
        if hasattr(module, name)
    }


def title(schema: Schema) -> str:
    """How a part of a file is called."""
    return next((name for name, one in _FILES.items() if one is schema), schema.__name__.strip("_"))


def _type_text(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(inner[0])
    if origin is Literal:
        return " or ".join(f"`{one}`" if one != "" else "nothing" for one in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_type_text(one) for one in inner if one is not type(None))
    if origin is list:
        return f"list of {_type_text(inner[0])}"
    if origin is tuple:
        return " and then ".join(_type_text(one) for one in inner)
    if origin is dict:
        return f"names, each with {_type_text(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        anchor = title(annotation).lower().replace(" ", "-")
        return f"[{title(annotation)}](#{anchor})"
    return _PLAIN_TYPES[annotation]


def _default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.default
    if value is PydanticUndefined or value is None or value == "":
        return "nothing"
    if isinstance(value, quantities.Number):
        return f"{value.value:g} {value.unit}".strip()
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _bounds(field: FieldInfo) -> Iterator[str]:
    for rule in field.metadata:
        for name, words in (("ge", "at least"), ("le", "at most"), ("lt", "less than")):
            if (bound := getattr(rule, name, None)) is not None:
                yield f"{words} {bound:,}"
        if (least := getattr(rule, "min_length", None)) is not None:
            yield f"length at least {least:,}"
        if (most := getattr(rule, "max_length", None)) is not None:
            yield f"length at most {most:,}"
        if (pattern := getattr(rule, "pattern", None)) is not None:
            yield f"matches `{pattern}`"


def _kind(field: FieldInfo) -> str:
    """The type of a member, with its bounds."""
    known = _quantities()
    read = [known[rule.func] for rule in field.metadata if getattr(rule, "func", None) in known]
    return ", ".join([read[0] if read else _type_text(field.annotation), *_bounds(field)])


def parts(schema: Schema) -> list[Schema]:
    """A schema and all that its members are made of, in the order of their first use."""
    found: list[Schema] = [schema]
    for one in found:
        one.model_rebuild()
        pending = [field.annotation for field in one.model_fields.values()]
        while pending:
            annotation = pending.pop(0)
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                if annotation not in found:
                    found.append(annotation)
            else:
                pending[:0] = get_args(annotation)
    return found


def table(schema: Schema) -> list[str]:
    """The members of one part, as rows of a table."""
    rows = ["| member | type | default |", "|---|---|---|"]
    for name, field in schema.model_fields.items():
        kind = _kind(field).replace("|", "\\|")
        rows.append(f"| `{field.alias or name}` | {kind} | {_default_text(field)} |")
    return rows


def markdown() -> str:
    """The page."""
    lines = [_LEAD]
    described: set[Schema] = set()
    for schema in _FILES.values():
        for part in parts(schema):
            if part in described:
                continue
            described.add(part)
            lines += ["##" + "#" * (part is not schema) + f" {title(part)}", ""]
            own = part.__dict__.get("__doc__")
            if own and part is not schema:
                lines += [own.strip(), ""]
            lines += [*table(part), ""]
    return "\n".join(lines)
