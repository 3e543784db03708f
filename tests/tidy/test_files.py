"""The product opens files where links, FIFOs and full disks are thought of, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidy import files
from tidy.tree import ROOT, report


def test_this_tree_writes_files_whole_and_reads_them_up_to_a_bound() -> None:
    found = files.raw_writes(ROOT) + files.raw_reads(ROOT)
    assert not found, report(found)
    assert files.unused_excuses(ROOT) == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("python/unisono/a.py", "path.write_text(text)"),
        ("python/unisono/a.py", 'with path.open("w") as file:'),
        ("python/unisono/a.py", 'with open(str(path), mode="ab") as file:'),
        ("python/unisono/a.py", "os.open(path, os.O_WRONLY)"),
        ("src/base/a.cc", "std::ofstream file(path);"),
        ("src/base/a.h", 'FILE* file = std::fopen(path, "w");'),
        ("bindings/a.cc", "open(path, O_CREAT | O_RDWR, 0600);"),
    ],
)
def test_each_way_to_write_is_found(tmp_path: Path, name: str, line: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(f"first\n{line}\n")
    assert [one.line for one in files.raw_writes(tmp_path)] == [2]
    (tmp_path / "tests").mkdir()
    path.rename(tmp_path / "tests" / path.name)
    assert files.raw_writes(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("python/unisono/a.py", "text = path.read_text()"),
        ("python/unisono/a.py", "with gzip.open(path) as file:"),
        ("python/unisono/a.py", 'with path.open("rb") as file:'),
        ("python/unisono/a.py", "with open(str(path)) as file:"),
        ("python/unisono/a.py", "os.open(path, os.O_RDONLY)"),
        ("src/base/a.cc", "std::ifstream file(path);"),
        ("bindings/a.cc", "open(path, O_RDONLY);"),
    ],
)
def test_each_way_to_read_is_found(tmp_path: Path, name: str, line: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(f"first\n{line}\n")
    assert [one.line for one in files.raw_reads(tmp_path)] == [2]
