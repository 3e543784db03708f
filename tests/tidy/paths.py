"""The rule on paths in comments, docstrings and messages: they exist.

A word is a path if it begins with a folder of the root, or with a layer of src and has a file's
ending. `{a,b}` stands for both, `*` for anything; the end of a name may be missing:
`docs/decisions/0021`. A path of another project begins with that project's name:
`nccl/src/enqueue.cc`. Code may name what is not there yet, and so may the strings of tests: the
rule reads only strings of several words, and none of tests. Documents have rules of their own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from tidy.results import expanded
from tidy.tree import CXX_SUFFIXES, Violation, lines_of, project_files, text_files

_SUFFIXES = CXX_SUFFIXES | {"", ".cmake", ".in", ".py", ".pyi", ".sh", ".toml", ".yaml", ".yml"}
_CXX_PART = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)|\b\d[\w'.]*|(?P<text>\"(?:\\.|[^\"\\\n])*\")"
    r"|R\"(?P<mark>[^\s()\\\"]*)\(.*?\)(?P=mark)\"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_PYTHON_PART = re.compile(
    r"(?P<comment>\#[^\n]*)|\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_PATH = re.compile(r"(?<![\w./<>{}$*:~-])[\w-]+(?:/[\w.*{},-]+)+")
_ENDING = re.compile(r"\.(?:h|cc|cu|cuh|py|md|toml|yaml|cmake)$")

Passage = tuple[int, str]  # the line that it begins in, and its text


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _of_cxx(text: str, is_test: bool) -> Iterator[Passage]:
    for match in _CXX_PART.finditer(text):
        if match["comment"] or (match["text"] and " " in match[0] and not is_test):
            yield _line(text, match.start()), match[0]


def _of_python(text: str, is_test: bool) -> Iterator[Passage]:
    for match in _PYTHON_PART.finditer(text):
        if match["comment"]:
            yield _line(text, match.start()), match[0]
    docstrings = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            docstrings.add(id(body[0].value))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and (id(node) in docstrings or (" " in node.value and not is_test))
        ):
            yield node.lineno, node.value


def _passages(path: Path, is_test: bool) -> Iterator[Passage]:
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix in CXX_SUFFIXES:
        yield from _of_cxx(text, is_test)
    elif path.suffix in {".py", ".pyi"} or "python" in text.partition("\n")[0]:
        yield from _of_python(text, is_test)
    else:
        yield from enumerate(lines_of(path), start=1)


class _Tree:
    """The files and folders of the repository."""

    def __init__(self, root: Path) -> None:
        self.files = [str(path.relative_to(root)) for path in project_files(root)]
        self.names = set(self.files)
        for file in self.files:
            parts = file.split("/")
            self.names |= {"/".join(parts[:count]) for count in range(1, len(parts))}
        self.tops = {file.partition("/")[0] for file in self.files if "/" in file}
        self.layers = {file.split("/")[1] for file in self.files if file.startswith("src/")}
        self.known: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        """Whether a path is there, or stands for some that are."""
        if name not in self.known:
            if "*" in name:
                self.known[name] = any(fnmatchcase(each, name) for each in self.names)
            else:
                self.known[name] = name in self.names or any(
                    each.startswith((f"{name}-", f"{name}.")) for each in self.files
                )
        return self.known[name]

    def lacks(self, name: str) -> bool:
        """Whether a word is a path of this repository that is not there."""
        top = name.partition("/")[0]
        if top in self.tops:
            return not self.has(name)
        return top in self.layers and bool(_ENDING.search(name)) and not self.has(f"src/{name}")


def missing_paths(root: Path) -> list[Violation]:
    """Paths that are named and not there."""
    tree = _Tree(root)
    found = []
    for path in text_files(root):
        file = str(path.relative_to(root))
        if path.suffix not in _SUFFIXES:
            continue
        for line, passage in _passages(path, file.startswith("tests/")):
            for match in _PATH.finditer(passage):
                for name in expanded(match[0].rstrip(".,-/")):
                    if tree.lacks(name):
                        number = line + passage.count("\n", 0, match.start())
                        found.append(Violation(file, number, f"names {name}, which is not there"))
    return found
