"""The rule on files that nothing uses: each kind of file has a way in which others use it.

- Headers are included, or named by a tool, or in a folder that CMake gives to the compiler.
- Python modules and scripts are imported, named with their ending, or the value of a string.
- Scripts of tools without an ending and the programs of bench are named.
- CMake's files are included, or named with their ending.

A .cc of a layer, a binding or a test is compiled by a pattern; what it defines is looked at by
unused.py. Tests, `__init__.py` and `sitecustomize.py` are found by their names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tidy import python_names
from tidy.tree import Violation, project_files, text_files

_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")
_SYSTEM_FOLDERS = re.compile(r"SYSTEM[^)]*\)")
_FOUND_BY_NAME = re.compile(r"test_\w+\.py|(?:conftest|sitecustomize|__\w+__)\.py")


class _Mentions:
    """Who includes, names and imports what."""

    def __init__(self, root: Path) -> None:
        self.included: dict[str, set[tuple[str, str]]] = defaultdict(set)  # by last name
        self.named: dict[str, set[str]] = defaultdict(set)
        self.imported: dict[str, set[str]] = defaultdict(set)
        self.system_folders = ""
        for path in text_files(root):
            name = str(path.relative_to(root))
            if path.suffix == ".json":
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            for include in _INCLUDE.findall(text):
                self.included[include.rpartition("/")[2]].add((name, include))
            for word in set(_NAME.findall(text)):
                self.named[word].add(name)
            if path.suffix == ".py" or (text[:80].startswith("#!") and "python" in text[:80]):
                names = python_names.names_of(text)
                for module in names.modules:
                    self.imported[module].add(name)
                for use in names.uses:
                    if use.kind == "Text":
                        self.imported[use.name].add(name)
            elif path.name == "CMakeLists.txt" or path.suffix == ".cmake":
                self.system_folders += "".join(_SYSTEM_FOLDERS.findall(text))

    def includes(self, file: str) -> bool:
        """Whether another file includes a header."""
        return any(
            user != file and f"/{file}".endswith(f"/{include}")
            for user, include in self.included[file.rpartition("/")[2]]
        )


def unused_files(root: Path) -> list[Violation]:
    """Files that no other includes, imports or names."""
    mentions = _Mentions(root)
    found = []
    for path in project_files(root):
        file = str(path.relative_to(root))
        top = file.partition("/")[0]
        if "corpus" in path.parts or _FOUND_BY_NAME.fullmatch(path.name):
            continue
        if path.suffix in {".h", ".cuh"}:
            is_used = (
                mentions.includes(file)
                or f"{path.parent.relative_to(root)}" in mentions.system_folders
                or any(user.startswith("tools/") for user in mentions.named[path.name])
                or top == "include"
            )
        elif path.suffix == ".py" and top in {"bench", "python", "studies", "tests", "tools"}:
            users = mentions.imported[path.stem] | mentions.named[path.name]
            is_used = bool(users - {file})
        elif path.suffix == ".cmake":
            is_used = bool((mentions.named[path.stem] | mentions.named[path.name]) - {file})
        elif path.suffix == "" and top == "tools":
            is_used = bool(mentions.named[path.name] - {file})
        elif path.match("bench/*/*_bench.cc"):
            is_used = bool(mentions.named[path.stem] - {file})
        else:
            continue
        if not is_used:
            found.append(Violation(file, 1, "nothing includes, imports or names it; remove it"))
    return found
