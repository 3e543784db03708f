"""Remembers which translation units clang-tidy has found clean, so that it reads only changed ones.

A unit's key is made of all that the analysis reads: the tool's version, .clang-tidy, the compiler's
command, and the contents of the unit and of every header that ninja knows it to include. Clean keys
are empty files in the user's cache folder; those that nothing has asked for in a month are removed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from functools import cache
from pathlib import Path

MOST_AGE_SECONDS = 30 * 24 * 3600


def default_folder() -> Path:
    """Where this user's clean keys are."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "unisono" / "clang-tidy"


def parse_dependencies(listing: str, build: Path) -> dict[str, list[Path]]:
    """The files that each object depends on, from what `ninja -t deps` prints."""
    found: dict[str, list[Path]] = {}
    files: list[Path] = []
    for line in listing.splitlines():
        if line.startswith(" "):
            files.append(Path(os.path.normpath(build / line.strip())))
        elif ": #deps" in line:
            target, _, state = line.partition(": #deps")
            files = []
            if "(VALID)" in state:
                found[target] = files
    return found


@cache
def digest_of(path: Path) -> bytes:
    """The digest of a file's contents; none of a file that does not exist."""
    return hashlib.sha256(path.read_bytes()).digest() if path.exists() else b""


class TidyCache:
    """The clean keys of one folder, for the objects of one build."""

    def __init__(self, folder: Path, root: Path, tool: str, dependencies: dict[str, list[Path]]):
        self.folder = folder
        self.root = root
        self.dependencies = dependencies
        self.tool = tool.encode() + digest_of(root / ".clang-tidy")
        folder.mkdir(parents=True, exist_ok=True)
        self.forget_old()

    def forget_old(self) -> None:
        """Removes what nothing has asked for in a month."""
        oldest = time.time() - MOST_AGE_SECONDS
        for path in self.folder.iterdir():
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)

    def key(self, command: str, target: str) -> str | None:
        """The key of a unit; None where nothing is known of what it includes."""
        files = self.dependencies.get(target)
        if not files:
            return None
        total = hashlib.sha256(self.tool)
        # Another checkout of the same sources has the same keys.
        total.update(command.replace(str(self.root), "").encode())
        for path in sorted(files):
            total.update(str(path).replace(str(self.root), "").encode() + digest_of(path))
        return total.hexdigest()

    def is_clean(self, key: str | None) -> bool:
        """Whether a unit with this key was found clean."""
        if key is None or not (self.folder / key).exists():
            return False
        os.utime(self.folder / key)
        return True

    def add(self, key: str | None) -> None:
        """Notes that a unit was found clean."""
        if key is not None:
            (self.folder / key).touch()


def of_build(build: Path, root: Path, ninja: Path, clang_tidy: Path) -> TidyCache:
    """The user's cache, for the objects of a build folder."""
    said = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for command in ([clang_tidy, "--version"], [ninja, "-C", build, "-t", "deps"])
    ]
    return TidyCache(default_folder(), root, said[0], parse_dependencies(said[1], build))
