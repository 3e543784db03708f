"""The rules on words: what users read says the field's terms, in sentences.

The rules read documents, comments of public headers, docstrings and strings of Python, and string
literals of C++. Comments elsewhere and names are for reviewers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tidy.results import is_result
from tidy.tree import CXX_SUFFIXES, Violation, lines_of, text_files

# What the project no longer says -> what it says instead.
RETIRED: dict[str, str] = {
    r"beside": "name the relation: next to, compared with, in addition to, at the same time as",
    r"stands? still|stood still|standing still": "deadlocks, or waits",
    r"proved right|proofs? of (?:a |the )?(?:plan|program)s?": "verified; verification",
    r"(?:its|the|their|a) stor(?:y|ies)": "counterexample",
    r"(?:kernels?|plans?|kernels? of (?:its|their) own) by hand": "specialised kernel",
    r"(?:stored?|goes|go|pushed|put) straight": "zero-copy, or directly",
    r"appointments?": "rendezvous",
    r"farewells?": "close handshake",
    r"crowd(?:ed|ing|s)?": "oversubscribed; oversubscription",
    r"left jobs?": "orphaned job",
    r"(?:is|are|was|were|be|been) heard": "say who receives what, or what is reported",
    r"leaves? room for": "limits its SMs; overlaps with",
    r"truth values?": "boolean",
    r"multiprocessors?": "SM",
    r"executors of others|files of others": "third-party runtime; MSCCL and MSCCL++ formats",
    r"beside other libraries": "compared with other libraries",
    r"in NCCL's place": "drop-in NCCL replacement",
    r"that nobody wrote": "synthesised",
    r"matrix products?": "GEMM",
    r"(?:first|second) cache": "L1; L2",
    r"(?:that|this|the same|next) (?:morning|evening|night)|evening again": "an ISO date, or none",
}

# A sentence that begins so has no subject.
FRAGMENTS = r"Likewise\b"

# Files that may say a word, each with the reason.
ALLOWED: dict[str, str] = {}

_RETIRED = [
    (re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), better)
    for pattern, better in RETIRED.items()
]
_FRAGMENT = re.compile(rf"(?:^|[.:!?]\s+){FRAGMENTS}")
_CODE = re.compile(r"`[^`]*`")
_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_COMMENT = re.compile(r"//[/!]?\s?(.*)")

Passage = tuple[int, str]  # the line that it begins in, and its text


def _paragraphs(lines: list[Passage]) -> Iterator[Passage]:
    """Lines that follow each other as one passage, for words that a line break divides."""
    start, text, last = 0, "", -1
    for number, line in lines:
        if text and (number != last + 1 or not line.strip()):
            yield start, text
            text = ""
        if line.strip():
            start = start if text else number
            text = f"{text} {line.strip()}" if text else line.strip()
        last = number
    if text:
        yield start, text


def _of_document(path: Path) -> Iterator[Passage]:
    """Paragraphs outside blocks of code."""
    prose, is_code = [], False
    for number, line in enumerate(lines_of(path), start=1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        prose.append((number, "" if is_code or line.lstrip().startswith("```") else line))
    yield from _paragraphs(prose)


def _of_python(path: Path) -> Iterator[Passage]:
    """Strings, docstrings among them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, " ".join(node.value.split())


def _of_cxx(path: Path, is_public: bool) -> Iterator[Passage]:
    """String literals; of a public header the comments, too."""
    literals, comments = [], []
    for number, line in enumerate(lines_of(path), start=1):
        if comment := _COMMENT.match(line.strip()):
            comments.append((number, comment[1]))
            continue
        if not line.lstrip().startswith("#"):
            literals.append((number, " ".join(_LITERAL.findall(line))))
    yield from _paragraphs(literals)
    if is_public:
        yield from _paragraphs(comments)


def _passages(root: Path, path: Path) -> Iterator[Passage]:
    top = path.relative_to(root).parts[0]
    if top == "tests":  # no user reads them, and inputs may say anything
        return
    if path.suffix == ".md" and not is_result(root, path):
        yield from _of_document(path)
    elif path.suffix in {".py", ".pyi"}:
        yield from _of_python(path)
    elif path.suffix in CXX_SUFFIXES and top in {"src", "include", "bindings"}:
        yield from _of_cxx(path, top == "include")


def _complaints(root: Path, path: Path) -> Iterator[Violation]:
    name = str(path.relative_to(root))
    for number, passage in _passages(root, path):
        text = _CODE.sub("``", passage)
        for pattern, better in _RETIRED:
            for match in pattern.finditer(text):
                yield Violation(name, number, f"'{match[0]}': say instead: {better}")
        if match := _FRAGMENT.search(text):
            yield Violation(name, number, f"'{match[0].strip()}': begin with a subject")


def retired_words(root: Path) -> list[Violation]:
    """Words that readers from the field would have to decode, and fragments."""
    return [
        violation
        for path in text_files(root)
        if str(path.relative_to(root)) not in ALLOWED
        for violation in _complaints(root, path)
    ]


def needless_permissions(root: Path) -> list[Violation]:
    """Files that may say a retired word and say none."""
    return [
        Violation(name, 1, "says no retired word; take it off the list of files that may")
        for name in ALLOWED
        if not (root / name).exists() or not any(_complaints(root, root / name))
    ]
