"""Finds the checks of C++ sources, and writes text in which each can be taken out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

# What a check answers with. Passing an error on is no check: the check is where it was made.
_ANSWER = re.compile(
    r"\b(?:\w+_error|misuse|bug|malformed|violated|wrong\w*|expected|refuse\w*|\w+_mismatch|lose|fail)"
    r"\(|\bok_ = false\b"
)
_PASSED_ON = re.compile(r"\btake_error\(")
# What a wait for data answers with as long as there are none.
_NOT_YET = re.compile(
    r"^(?:co_)?return(?: (?:false|nullptr|\{\}|std::nullopt|std::optional<.*?>\(\)))?$"
)
_COMPARISON = re.compile(r"\bequal_in_constant_time\(")
_CHECKED_CALL = re.compile(r"\bUNISONO_TRY\((?=check\w*\()")
_BRANCH = re.compile(r"\bif \(")
# What cannot be wrapped: a wait in the middle, or a declaration that the branch uses.
_WAITS = re.compile(r"\bco_await\b")
_DECLARES = re.compile(r"\s*(?:const )?(?:auto|[\w:<>]+) ?[*&]* ?\w+ ?= ")


@dataclass(frozen=True)
class Place:
    """One check.

    Attributes:
        number: From 0.
        path: Of the source, from the root of the project.
        line: Of the check, from 1.
        text: What is taken out, in one line.
        key: The check's name, which stays when lines move.
    """

    number: int
    path: str
    line: int
    text: str
    key: str


def closing(text: str, opening: int) -> int:
    """Where the bracket at `opening` closes; strings and characters are skipped."""
    depth = 0
    at = opening
    while at < len(text):
        if text[at] in "\"'" and not (text[at] == "'" and text[at - 1].isdigit()):
            quote = text[at]
            at += 1
            while text[at] != quote:
                at += 2 if text[at] == "\\" else 1
        elif text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    raise ValueError(f"a bracket is never closed: {text[opening : opening + 60]!r}")


def without_comments(text: str) -> str:
    """The text with its line comments blanked, so that everything else stays in its place."""
    return re.sub(r"(?m)(?<![:\"])//.*$", lambda found: " " * len(found.group()), text)


def _split(text: str, begin: int, end: int, separator: str) -> list[tuple[int, int]]:
    """The parts of text[begin:end] between separators that no bracket encloses."""
    parts = []
    at = begin
    while at < end:
        if text[at] in "([{":
            at = closing(text, at)
        elif text.startswith(separator, at):
            parts.append((begin, at))
            at += len(separator) - 1
            begin = at + 1
        at += 1
    return [*parts, (begin, end)]


def _answers(behind: str, finds_waits: bool) -> bool:
    """Whether what follows a condition refuses something or, for a wait, does not go on yet."""
    behind = behind.lstrip()
    # Of a block its first two statements: what comes later is not only a refusal.
    statements = behind[1:].split(";")[:2] if behind.startswith("{") else behind.split(";")[:1]
    first = " ".join(";".join(statements).split())
    if _PASSED_ON.search(first):
        return False
    return bool(_ANSWER.search(first)) or (finds_waits and bool(_NOT_YET.match(first)))


def _spans(text: str, finds_waits: bool) -> Iterator[tuple[int, int, str]]:
    """What to take out: from where, until where, and what stands in its place."""
    for found in _BRANCH.finditer(text):
        end = closing(text, found.end() - 1)
        # Behind an initialiser, if there is one.
        begin, _ = _split(text, found.end(), end, ";")[-1]
        condition = text[begin:end]
        if _DECLARES.match(condition) or _WAITS.search(condition):
            continue
        if not _answers(text[end + 1 : end + 2000], finds_waits):
            continue
        for part_begin, part_end in _split(text, begin, end, "||"):
            yield part_begin, part_end, "false"
    for found in _COMPARISON.finditer(text):
        if not text[: found.start()].rstrip().endswith("bool"):
            yield found.start(), closing(text, found.end() - 1) + 1, "true"
    for found in _CHECKED_CALL.finditer(text):
        yield found.end(), closing(text, found.end() - 1), "::unisono::Status()"


def rewrite(
    path: str, text: str, first: int, finds_waits: bool, without: Collection[str] = ()
) -> tuple[str, list[Place]]:
    """The text with a switch at each check, numbered from `first`; lines stay where they are.

    Checks whose keys `without` names stay as they are.
    """
    plain = without_comments(text)
    spans = sorted(set(_spans(plain, finds_waits)))
    # Of nested ones the inner: a condition that compares proofs is that comparison.
    kept = [
        (begin, end, instead)
        for begin, end, instead in spans
        if not any(
            (begin, end) != (low, high) and begin <= low and high <= end for low, high, _ in spans
        )
    ]
    places: list[Place] = []
    seen: Counter[str] = Counter()
    out, at = [], 0
    for begin, end, instead in kept:
        taken = plain[begin:end]
        line = plain.count("\n", 0, end - len(taken.lstrip())) + 1
        shown = " ".join(taken.split())
        seen[shown] += 1
        key = f"{path}: {shown}" + (f" ({seen[shown]})" if seen[shown] > 1 else "")
        if key in without:
            continue
        place = Place(first + len(places), path, line, shown, key)
        places.append(place)
        # A condition may be what becomes a boolean only where one is wanted.
        kept_as = f"({text[begin:end]})" if instead.startswith("::") else f"bool({text[begin:end]})"
        switch = f"(unisono_mutant({place.number}) ? {instead} : {kept_as})"
        out += [text[at:begin], switch]
        at = end
    out.append(text[at:])
    return "".join(out), places


def sources(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files that the patterns name, each once."""
    return sorted({path for pattern in patterns for path in root.glob(pattern)})
