"""Which C++ test programs can notice what has changed since a commit.

A program sees the layers that its sources include, and those that these include in turn; the
public API is the communicator's. A change in a header of a layer that everything uses, in the
public API, in what all tests share or in the build concerns them all.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from stage import ROOT

# Headers of these reach nearly every translation unit.
SHARED_LAYERS = ("base", "sys", "transport")
# What every program is built from.
SHARED_FOLDERS = ("cmake/", "include/", "tests/support/", "tests/emulated_gpu/", "CMakeLists.txt")

_INCLUDE = re.compile(r'^#include "([\w/]+)/([\w.]+)"', re.MULTILINE)
_PUBLIC = re.compile(r"^#include <unisono/", re.MULTILINE)


def sources_of(folder: Path) -> list[Path]:
    """The C++ files below a folder."""
    return [path for path in folder.rglob("*") if path.suffix in {".cc", ".h", ".cuh", ".cu"}]


def included(path: Path, root: Path) -> set[str]:
    """What a file includes: layers as src/<layer>, files of tests with what implements them."""
    text = path.read_text(errors="replace")
    found = set()
    for folder, name in _INCLUDE.findall(text):
        if (root / "src" / folder / name).exists():
            found.add(f"src/{folder.partition('/')[0]}")
            continue
        header = root / "tests" / folder / name
        files = (header, header.with_suffix(".cc"))
        found |= {str(file.relative_to(root)) for file in files if file.exists()}
    if _PUBLIC.search(text) and path.is_relative_to(root / "tests"):
        found.add("src/comm")
    return found


def edges_of(root: Path) -> dict[str, set[str]]:
    """What each layer, each file of tests and each folder of tests includes."""
    edges: dict[str, set[str]] = {}
    for layer in (root / "src").iterdir():
        if layer.is_dir():
            files = sources_of(layer)
            edges[f"src/{layer.name}"] = set().union(*(included(path, root) for path in files))
    layers = set(edges)
    for folder in (root / "tests").iterdir():
        files = sources_of(folder) if folder.is_dir() else []
        edges[f"tests/{folder.name}"] = {str(path.relative_to(root)) for path in files}
        for path in files:
            edges[str(path.relative_to(root))] = included(path, root)
    # These load libraries that hold every layer.
    for name in ("tests/nccl", "tests/nccl_plugins"):
        edges[name] = edges.get(name, set()) | layers
    return edges


def closure(start: Iterable[str], edges: Mapping[str, set[str]]) -> set[str]:
    """All that can be reached from some nodes, themselves included."""
    reached: set[str] = set()
    waiting = list(start)
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached.add(node)
            waiting += edges.get(node, set())
    return reached


def concerns_all(file: str) -> bool:
    """Whether every program can notice a change in this file."""
    shared_header = file.endswith(".h") and file.startswith(
        tuple(f"src/{layer}/" for layer in SHARED_LAYERS)
    )
    return shared_header or file.startswith(SHARED_FOLDERS)


def programs(changed: Iterable[str], root: Path) -> list[str] | None:
    """The folders of tests whose programs can notice the changed files; None for all of them."""
    changed = list(changed)
    if any(map(concerns_all, changed)):
        return None
    edges = edges_of(root)
    touched = {"/".join(file.split("/")[:2]) for file in changed}
    if any(file.startswith("bindings/") for file in changed):
        touched |= {"tests/nccl", "tests/nccl_plugins"}
    tested = [folder for folder in (root / "tests").iterdir() if list(folder.glob("*_test.cc"))]
    return sorted(
        folder.name for folder in tested if closure([f"tests/{folder.name}"], edges) & touched
    )


def changed_since(commit: str) -> list[str]:
    """The files that differ from a commit, those that are not committed included."""
    listed = subprocess.run(
        ["git", "diff", "--name-only", commit, "--"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        raise SystemExit(f"--since {commit}: {listed.stderr.strip()}")
    return listed.stdout.splitlines()


def chosen_since(commit: str | None) -> tuple[str, ...]:
    """How ctest is told of the programs that can notice a change; nothing where all shall run."""
    found = None if commit is None else programs(changed_since(commit), ROOT)
    if found is None:
        return ()
    return ("-R", f"^({'|'.join(found) or 'none'})$")
