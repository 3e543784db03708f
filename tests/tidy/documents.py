"""The rules on documentation: no wide lines, and a beginning that says what a page is for."""

from __future__ import annotations

import re
from pathlib import Path

from tidy.results import is_result
from tidy.tree import Violation, lines_of, text_files

MAX_COLUMNS = 120
ROOMS = ("tutorials", "how-to", "reference", "explanation")

_LEAD = re.compile(r"This (?:page|tutorial) [^.]*\.(?:\s|$)")
_READER = re.compile(r"\bfor\b")


def _pages(root: Path) -> list[Path]:
    """Everything in Markdown but tables of measurements, which programs write."""
    return [path for path in text_files(root) if path.suffix == ".md" and not is_result(root, path)]


def wide_lines(root: Path) -> list[Violation]:
    """Lines that do not fit; a row of a table cannot be broken."""
    return [
        Violation(str(path.relative_to(root)), number, f"{len(line)} columns (limit {MAX_COLUMNS})")
        for path in _pages(root)
        for number, line in enumerate(lines_of(path), start=1)
        if len(line) > MAX_COLUMNS and not line.startswith("|")
    ]


def _first_sentences(text: str) -> str:
    """The first two sentences of the paragraph below the title; a full stop in code is none."""
    paragraph = re.match(r"# [^\n]+\n+((?:[^\n]+\n?)+)", text)
    if not paragraph:
        return ""
    words = re.sub(r"`[^`]*`|\]\([^)]*\)", "]", paragraph[1]).replace("\n", " ")
    return " ".join(re.split(r"(?<=\.)\s", words)[:2])


def unled_pages(root: Path) -> list[Violation]:
    """Pages whose first two sentences do not say what the page is for, and for whom."""
    found = []
    for path in _pages(root):
        parts = path.relative_to(root).parts
        if parts[0] != "docs" or len(parts) < 2 or parts[1] not in ROOMS:
            continue
        lead = _first_sentences(path.read_text(encoding="utf-8"))
        if not _LEAD.match(lead) or not _READER.search(lead):
            message = (
                'begin with "This page ...": what it is for, and in the next sentence for whom'
            )
            found.append(Violation(str(path.relative_to(root)), 3, message))
    return found
