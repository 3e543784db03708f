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
_READS = {
    ".py": re.compile(
        r"""\.read_(?:text|bytes)\(|\bgzip\.open\(|\.open\((?:"rb?")?\)|\bO_RDONLY\b"""
        r"""|(?<![\w.])open\([^,()]*(?:\([^()]*\)[^,()]*)*(?:\)|, "rb?")"""
    ),
    ".cc": re.compile(r"\bifstream\b|\bO_RDONLY\b"),
}
# What opens files to read by itself, and why nobody else can have prepared them.
READERS = {
    "python/unisono/_torch_backend.py": "the package's own files",
    "python/unisono/apart.py": "/proc",
    "python/unisono/bench/device.py": "the folder of its job",
    "python/unisono/bench/device_driver.py": "the folder of its job",
    "python/unisono/bench/group.py": "a temporary folder of its own",
    "python/unisono/bench/machine.py": "/proc and /sys",
    "python/unisono/bench/peers.py": "/proc and /sys",
    "python/unisono/bench/symm_mem.py": "the folder of its job",
    "python/unisono/bench/worker.py": "the folder of its job",
    "python/unisono/demo.py": "a temporary folder of its own",
    "python/unisono/draw/page.py": "the package's own files",
    "python/unisono/endings.py": "the folder of its job",
    "python/unisono/guardian.py": "/proc",
    "python/unisono/hardware.py": "/sys",
    "python/unisono/job_folder.py": "folders, which are locked",
    "python/unisono/live/sockets.py": "/proc",
    "python/unisono/memory.py": "/proc and /sys",
    "python/unisono/netbed/bed.py": "/proc",
    "python/unisono/processes.py": "/proc",
    "src/sys/caches.cc": "/sys",
    "src/sys/host.cc": "/proc",
    "src/sys/local_client.cc": "/proc",
    "src/sys/process.cc": "/proc",
    "src/sys/shared_memory.cc": "/dev/shm itself",
    "src/topo/host/sysfs.cc": "/sys",
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
    "python/unisono/endings.py": "the folder of its job",
    "python/unisono/torch/_build.py": "the user's cache",
    "src/sys/shared_memory.cc": "names in /dev/shm, which are random",
    "src/sys/user_secret.cc": "the user's private folder, where one of several processes wins",
}


def raw_writes(root: Path) -> list[Violation]:
    """Files of the product that are opened to write, but for `write_whole` and `WRITERS`."""
    return _found(root, _WRITES, WRITERS)


def raw_reads(root: Path) -> list[Violation]:
    """Files of the product that are read, but for `read_bounded` and `READERS`."""
    return _found(root, _READS, READERS)


def unused_excuses(root: Path) -> list[str]:
    """Rows of `WRITERS` and `READERS` that no longer open anything."""
    writers = {one.path for one in _found(root, _WRITES, {})}
    readers = {one.path for one in _found(root, _READS, {})}
    return sorted((set(WRITERS) - writers) | (set(READERS) - readers))


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
