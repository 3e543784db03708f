"""The rules on results: one current file for each table, named after it, and shown somewhere.

A file is shown where its name stands; names of one word need the folder before them. A table's .txt
and .json need one mention between them. `{a,b}` in a name stands for both, `*` mentions none.
"""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

from tidy.tree import Violation, lines_of, project_files, text_files

FOLDERS = ("bench/results", "studies/results")
MOST_FILES = 60
_DATED = re.compile(
    r"(?:19|20)\d\d-?[01]\d|(?:^|_)(?:again|afternoon|before|evening|last|later|morning|night|noon)"
    r"(?:_|$)"
)
_IN_FOLDER = re.compile(r"\b(?:bench|studies)/results/[\w*{},.-]*[\w*}]")
_BARE = re.compile(r"(?<![\w/<*}-])([a-z][\w{},-]*\.(?:txt|json|md))\b")


def is_result(root: Path, path: Path) -> bool:
    """Whether a file is a table of measurements, which programs write."""
    return str(path.parent.relative_to(root)) in FOLDERS


def _results(root: Path) -> list[Path]:
    return [path.relative_to(root) for path in project_files(root) if is_result(root, path)]


def expanded(name: str) -> list[str]:
    """What a name with alternatives in braces stands for."""
    found = re.search(r"\{([^{}]*)\}", name)
    if not found:
        return [name]
    parts = found[1].split(",")
    return [one for part in parts for one in expanded(name.replace(found[0], part, 1))]


def _mentions(root: Path) -> list[tuple[str, int, str]]:
    """File, line and name, with the folder where it stands before the name."""
    found = []
    for path in text_files(root):
        file = str(path.relative_to(root))
        for number, line in enumerate(lines_of(path), start=1):
            found += [
                (file, number, name)
                for pattern in (_IN_FOLDER, _BARE)
                for match in pattern.findall(line)
                for name in expanded(match)
            ]
    return found


def _stem(name: str) -> str:
    return re.sub(r"\.(?:txt|json|md)$", "", name)


def too_many_results(root: Path) -> list[Violation]:
    """More files than a reader can look through."""
    count = len(_results(root))
    message = f"{count} files (limit {MOST_FILES}): put the parts of a table into one file"
    return [Violation(" and ".join(FOLDERS), 1, message)] if count > MOST_FILES else []


def dated_results(root: Path) -> list[Violation]:
    """Names that say when it was measured; the file itself and the page that shows it do."""
    return [
        Violation(str(path), 1, "is named after a time, not after its table")
        for path in _results(root)
        if _DATED.search(path.stem)
    ]


def unshown_results(root: Path) -> list[Violation]:
    """Results that nothing outside of their folders mentions."""
    shown = {
        _stem(name)
        for file, _, name in _mentions(root)
        if not file.startswith(FOLDERS) and ("/" in name or "_" in name)
    }
    return [
        Violation(str(path), 1, "is shown nowhere: name it there or remove it")
        for path in _results(root)
        if not {path.stem, str(path.with_suffix(""))} & shown
    ]


def missing_results(root: Path) -> list[Violation]:
    """Mentions of results that are not there.

    Without the folder, a name is taken for a result's if it begins with the first two words of
    one, and no other file of the tree has it.
    """
    results = _results(root)
    names = {name for path in results for name in (path.name, str(path), str(path.with_suffix("")))}
    kinds = {"_".join(path.stem.split("_")[:2]) for path in results if "_" in path.stem}
    others = {path.name for path in project_files(root)}
    return [
        Violation(file, number, f"names {name}, which is not in {' or '.join(FOLDERS)}")
        for file, number, name in _mentions(root)
        if not any(fnmatch(one, name) for one in names)
        and ("/" in name or ("_".join(re.split(r"[_.]", name)[:2]) in kinds and name not in others))
    ]
