"""The project's own text files, as the rules see them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CXX_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
TEXT_SUFFIXES = CXX_SUFFIXES | {
    "",
    ".cmake",
    ".in",
    ".j2",
    ".json",
    ".md",
    ".py",
    ".pyi",
    ".sh",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
}


@dataclass(frozen=True)
class Violation:
    """One broken rule: where, and what would be right."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def project_files(root: Path = ROOT) -> list[Path]:
    """All files that git tracks or would track; every file where there is no repository."""
    if (root / ".git").exists():
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        paths = [root / name for name in listing.split("\0") if name]
    else:
        paths = list(root.rglob("*"))
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def text_files(root: Path = ROOT) -> list[Path]:
    """The files whose lines the rules read; fuzzing corpora and pictures are not among them."""
    return [
        path
        for path in project_files(root)
        if path.suffix in TEXT_SUFFIXES and "corpus" not in path.parts and path.name != "LICENSE"
    ]


def lines_of(path: Path) -> list[str]:
    """The file's lines; a byte that is not UTF-8 is kept visible."""
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def report(violations: list[Violation]) -> str:
    """One line per violation, for an assertion's message."""
    return "\n" + "\n".join(str(violation) for violation in violations)
