"""Where the product opens files: in one place that bounds what it reads and writes all or nothing.

Whatever opens a path by itself follows planted links, waits for FIFOs, and cuts a good file where
the disk is full.
"""

from __future__ import annotations

import re
from pathlib import Path

from tidy.cxx import without_comments
from tidy.tree import Violation, project_files

_PLACES = ("python/unisono/files.py", "src/base/file.cc")
_WRITES = {
    ".py": re.compile(
        r"""\.write_(?:text|bytes)\(|(?<!fd)open\([^()]*(?:\([^()]*\)[^()]*)*["'][rwxab]*[wxa+][b+]*["']"""
        r"""|\bO_(?:WRONLY|RDWR|CREAT)\b|\bmkstemp\(|\bNamedTemporaryFile\("""
    ),
    ".cc": re.compile(r"\bofstream\b|\bfopen\(|\bO_(?:WRONLY|CREAT)\b|\bmkos?temp\(|\bfdopen\("),
}
# What opens files to write by itself, and why nobody else can have prepared their paths.
WRITERS = {
    "python/unisono/_torch_backend.py": "a temporary folder of its own",
    "python/unisono/bench/device.py": "the folder of its job",
    "python/unisono/bench/device_driver.py": "the folder of its job",
    "python/unisono/bench/driver.py": "the folder of its job",
    "python/unisono/bench/group.py": "a temporary folder of its own",
    "python/unisono/bench/symm_mem.py": "the folder of its job",
    "python/unisono/bench/worker.py": "the folder of its job",
    "python/unisono/torch/_build.py": "the user's cache",
    "src/sys/shared_memory.cc": "names in /dev/shm, which are random",
    "src/sys/user_secret.cc": "the user's private folder, where one of several processes wins",
}


def raw_writes(root: Path) -> list[Violation]:
    """Files of the product that are opened to write, but for `write_whole` and `WRITERS`."""
    return _found(root, _WRITES, WRITERS)


def unused_excuses(root: Path) -> list[str]:
    """Rows of `WRITERS` that no longer open anything."""
    seen = {one.path for one in _found(root, _WRITES, {})}
    return sorted(set(WRITERS) - seen)


def _found(root: Path, patterns: dict[str, re.Pattern[str]], excused: dict[str, str]
           ) -> list[Violation]:  # fmt: skip
    found = []
    for path in project_files(root):
        name = path.relative_to(root).as_posix()
        pattern = patterns.get(path.suffix.replace(".h", ".cc"))
        is_product = name.startswith(("python/unisono/", "src/", "bindings/"))
        if pattern is None or not is_product or name in _PLACES or name in excused:
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".py":
            text = without_comments(text)
        found += [
            Violation(name, text.count("\n", 0, match.start()) + 1,
                      f"{match[0]}: files are opened by {' and '.join(_PLACES)}")
            for match in pattern.finditer(text)
        ]  # fmt: skip
    return found
