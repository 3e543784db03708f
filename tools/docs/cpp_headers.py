"""Turns a public C++ header into Markdown: its comments as prose, its declarations as code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SKIPPED = re.compile(
    r"^(#pragma once|#include\b|namespace \w|}\s*// namespace|extern \"C\" {|}\s*// extern)"
)
_NAMED = re.compile(
    r"\b(?:class|struct|union|enum class|enum|using)\s+(?:\[\[\w+\]\]\s+)?(\w+(?:<[^>]*>)?)"
)
_FUNCTION = re.compile(r"([\w~]+|operator\S+)\s*\(")
_CONSTANT = re.compile(r"\b(\w+)\s*=")


@dataclass
class Entity:
    """A declaration, or several that stand together, with the comment above."""

    comment: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)

    def title(self) -> str:
        """The names that are declared, as a heading."""
        text = " ".join(line.split("//")[0] for line in self.code)
        text = re.sub(r"^\s*template\s*<[^{;]*?>\s+(?=class|struct|using|\w)", "", text)
        text = re.sub(r"\[\[[^]]*\]\]", "", text)
        if match := re.match(r"\s*(?:class|struct|union|enum|using)\b", text):
            named = _NAMED.search(text)
            return named[1] if named else match[0]
        names = []
        for line in self.code:
            match = _FUNCTION.search(line) or _CONSTANT.search(line)
            if match and match[1] not in names and not line.startswith((" ", "}")):
                names.append(match[1])
        return ", ".join(names) or self.code[0].strip()


def _is_complete(code: list[str]) -> bool:
    """Whether the lines form whole declarations: brackets balance, and one has ended."""
    text = "\n".join(line.split("//")[0] for line in code)
    balanced = all(text.count(a) == text.count(b) for a, b in ("{}", "()"))
    return balanced and text.rstrip().endswith((";", "}"))


def parse(text: str) -> tuple[list[str], list[Entity]]:
    """The header's leading comment and its entities, in order."""
    leading: list[str] = []
    entities: list[Entity] = []
    lines = text.splitlines()
    position = 0
    while position < len(lines) and lines[position].startswith("//"):
        leading.append(lines[position][2:].strip())
        position += 1
    entity = Entity()
    for line in lines[position:]:
        if not entity.code:
            if _SKIPPED.match(line):
                entity = Entity()
                continue
            if not line.strip():
                entity = Entity()
                continue
            if line.startswith("//"):
                entity.comment.append(line[2:].removeprefix(" "))
                continue
        elif _is_complete(entity.code) and (not line.strip() or line.startswith(("//", "}  //"))):
            entities.append(entity)
            entity = Entity()
            if line.startswith("//"):
                entity.comment.append(line[2:].removeprefix(" "))
            continue
        entity.code.append(line)
    if entity.code and _is_complete(entity.code):
        entities.append(entity)
    return leading, entities


def public_part(code: list[str]) -> list[str]:
    """A class's declaration without what is private to it."""
    kept: list[str] = []
    hidden = False
    for line in code:
        if re.match(r"^ ?private:", line):
            hidden = True
        elif re.match(r"^ ?(public|protected):", line) or line.startswith("}"):
            hidden = False
        if not hidden:
            kept.append(line)
    while len(kept) > 1 and not kept[-2].strip():
        del kept[-2]
    return kept


def _prose(lines: list[str]) -> str:
    """A comment as Markdown: angle brackets are text; an indented block stays as it is set."""
    out = []
    for line in lines:
        code = line.startswith("    ")
        out.append(line if code else re.sub(r"<(?=[\w/])", "&lt;", line))
    return "\n".join(out)


def markdown(name: str, text: str) -> str:
    """The page of one header; `name` is what one includes."""
    leading, entities = parse(text)
    parts = [f"# `<{name}>`", _prose(leading)]
    for entity in entities:
        parts.append(f"## `{entity.title()}`")
        if entity.comment:
            parts.append(_prose(entity.comment))
        parts.append("```cpp\n" + "\n".join(public_part(entity.code)) + "\n```")
    return "\n\n".join(part for part in parts if part) + "\n"
