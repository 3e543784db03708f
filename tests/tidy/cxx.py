"""Finds the functions that a C++ or CUDA file declares.

The scanner knows namespaces, classes and bodies, and no types. It reads all branches of `#if` as
one text, and nothing within a body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_APART = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<number>\b\d[\w'.]*)"
    r'|(?P<text>R"(?P<mark>[^\s()\\"]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')',
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_ATTRIBUTE = re.compile(r"\[\[[\w:,()\"\s]*\]\]")
_TOKEN = re.compile(r"\w+|::|->|[^\s\w]")
_WORD = re.compile(r"[A-Za-z_]\w*")

# What may stand before a bracket in a declaration without being the function's name.
_NOT_A_NAME = {
    "__align__",
    "alignas",
    "decltype",
    "explicit",
    "noexcept",
    "requires",
    "__attribute__",
}
_NO_FUNCTION = {"using", "typedef", "static_assert", "concept", "enum", "operator"}
_NO_TYPE = {"return", "co_return", "co_await", "co_yield", "throw", "new", "delete", "else", "case"}


@dataclass(frozen=True)
class Function:
    """One declaration or definition; `start` and `end` span all of it."""

    name: str
    at: int  # where the name is
    start: int
    end: int
    words: frozenset[str]  # those of its head: virtual, override, __global__ …
    is_c: bool  # declared extern "C"
    is_member: bool  # declared within a class
    is_qualified: bool  # Class::name, or namespace::name


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def without_comments(text: str) -> str:
    """The same text with blanks for comments, and for strings that are more than a name."""

    def keep(match: re.Match[str]) -> str:
        is_kept = match["number"] or re.fullmatch(r'"\w+"', match[0])
        return match[0] if is_kept else _blank(match)

    return _APART.sub(keep, text)


def _without_template(head: list[re.Match[str]]) -> list[re.Match[str]]:
    """The head without `template <…>` before it."""
    kept: list[re.Match[str]] = []
    position = 0
    while position < len(head):
        word = head[position][0]
        if word == "template" and position + 1 < len(head) and head[position + 1][0] == "<":
            depth, position = 0, position + 1
            while position < len(head):
                depth += {"<": 1, ">": -1}.get(head[position][0], 0)
                position += 1
                if depth == 0:
                    break
            continue
        kept.append(head[position])
        position += 1
    return kept


def _name(head: list[re.Match[str]]) -> re.Match[str] | None:
    """The name that a declaration gives a function; none if it declares something else."""
    angles, position = 0, 0
    while position < len(head):
        word = head[position][0]
        if word in _NO_FUNCTION:
            return None
        if word == "=" and not angles:
            return None
        if word == "<":
            angles += 1
        elif word == ">":
            angles = max(0, angles - 1)
        elif word == "(" and not angles:
            before = position - 1
            if before >= 0 and head[before][0] in _NOT_A_NAME:
                depth = 0
                while position < len(head):
                    depth += {"(": 1, ")": -1}.get(head[position][0], 0)
                    position += 1
                    if depth == 0:
                        break
                continue
            return _named_at(head, before)
        position += 1
    return None


def _named_at(head: list[re.Match[str]], last: int) -> re.Match[str] | None:
    """The name that ends at `last`, if a type is before it."""
    if last >= 0 and head[last][0] == ">":  # a specialisation
        depth = 0
        while last >= 0:
            depth += {">": 1, "<": -1}.get(head[last][0], 0)
            last -= 1
            if depth == 0:
                break
    if last < 1 or not _WORD.fullmatch(head[last][0]):
        return None
    before = last - 1
    while before >= 1 and head[before][0] == "::" and _WORD.match(head[before - 1][0]):
        before -= 2
    if before < 0 or head[before][0] in _NO_TYPE or head[before][0] == "~":
        return None
    is_type = _WORD.fullmatch(head[before][0]) or head[before][0] in {">", "*", "&", ")"}
    only_specifiers = all(
        one[0] in {"explicit", "constexpr", "inline", "static", "consteval", "virtual"}
        for one in head[: before + 1]
    )
    return head[last] if is_type and not only_specifiers else None


def functions(text: str) -> list[Function]:
    """The functions that a text without comments declares outside bodies.

    Raises:
        ValueError: Its brackets do not match, so that the scanner has lost its place.
    """
    code = _ATTRIBUTE.sub(_blank, _DIRECTIVE.sub(_blank, text))
    scanner = _Scanner(list(_TOKEN.finditer(code)))
    if scanner.scopes or scanner.round:
        raise ValueError("brackets do not match")
    return scanner.found


class _Scanner:
    """Walks through the tokens, scope by scope."""

    def __init__(self, tokens: list[re.Match[str]]) -> None:
        self.tokens = tokens
        self.found: list[Function] = []
        self.scopes: list[str] = []  # what each is: namespace, class, or C
        self.head: list[re.Match[str]] = []
        self.round = 0  # open brackets of the head
        position = 0
        while position < len(tokens):
            position = self._step(position)

    def _step(self, position: int) -> int:
        """Takes one token, or a whole body; the position after it."""
        token = self.tokens[position]
        word = token[0]
        if word in "([":
            self.round += 1
        elif word in ")]":
            self.round -= 1
        elif self.round > 0:
            pass
        elif word == ";":
            self._declare(token.end())
            return position + 1
        elif word == "}":
            if self.scopes:
                self.scopes.pop()
            self.head = []
            return position + 1
        elif word == "{":
            return self._open(position)
        elif word == ":" and [one[0] for one in self.head] in (
            ["public"],
            ["private"],
            ["protected"],
        ):
            self.head = []
            return position + 1
        self.head.append(token)
        return position + 1

    def _open(self, position: int) -> int:
        """Enters a namespace or class; reads over the braces of anything else."""
        head = _without_template(self.head)
        words = [one[0] for one in head]
        if words[:1] == ["namespace"] or words[:2] == ["inline", "namespace"]:
            return self._enter("namespace", position)
        if words[:1] == ["extern"] and "(" not in words:
            return self._enter("C", position)
        if {"class", "struct", "union"} & set(words) and "(" not in words and "=" not in words:
            return self._enter("class", position)
        end = self._after_braces(position)
        following = self.tokens[end][0] if end < len(self.tokens) else ""
        if "(" in words and "=" not in words[: words.index("(")]:
            # Braces may initialise a member; the body is the last.
            while following in {",", "{", "."}:
                while self.tokens[end][0] != "{":
                    end += 1
                end = self._after_braces(end)
                following = self.tokens[end][0] if end < len(self.tokens) else ""
            self._declare(self.tokens[end - 1].end())
        return end

    def _after_braces(self, position: int) -> int:
        depth = 0
        while position < len(self.tokens):
            depth += {"{": 1, "}": -1}.get(self.tokens[position][0], 0)
            position += 1
            if depth == 0:
                break
        return position

    def _enter(self, scope: str, position: int) -> int:
        self.scopes.append(scope)
        self.head = []
        return position + 1

    def _declare(self, end: int) -> None:
        head = _without_template(self.head)
        name = _name(head) if head else None
        if name:
            words = [one[0] for one in head]
            is_c = "C" in self.scopes or words[:2] == ["extern", '"']
            is_member = self.scopes[-1:] == ["class"]
            before = head[head.index(name) - 1][0]
            self.found.append(
                Function(
                    name[0],
                    name.start(),
                    self.head[0].start(),
                    end,
                    frozenset(words),
                    is_c,
                    is_member,
                    before == "::",
                )
            )
        self.head = []
