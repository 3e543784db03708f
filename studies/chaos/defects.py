#!/usr/bin/env python3
"""Plants defects, one at a time, and counts the seeds of chaos until one is seen.

    studies/chaos/defects.py [--only WORD] [--output FILE]

The sources are copied to build/defects, where each defect of studies/chaos/defects is one edit; the
program that plays seeds is built anew and plays them until a seed goes wrong, crashes or does not
end. Without an edit the same seeds must all pass. The exit code is 1 if a defect is not seen within
the seeds that its file states for it, or 100. What a run before has copied and built is used again.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "defects"
TREE = BUILD / "tree"
PROGRAM = BUILD / "build" / "chaos_bench"
_A_RUN_SECONDS = 600


@dataclass(frozen=True)
class Defect:
    """One edit: what it breaks, and where."""

    what: str
    path: str
    before: str
    after: str
    within: int = 100
    ranks: int = 4


DEFECTS = [
    Defect(**one)
    for file in sorted((ROOT / "studies/chaos/defects").glob("*.toml"))
    for one in tomllib.loads(file.read_text())["defect"]
]


def build() -> None:
    subprocess.run(
        ["cmake", "--build", BUILD / "build", "--target", "chaos_bench", "--parallel"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def seeds_until_seen(most: int, ranks: int) -> tuple[int | None, str]:
    """Plays seeds until one goes wrong: its number, and how it did."""
    with tempfile.TemporaryFile("w+") as progress:
        try:
            ended = subprocess.run(
                [PROGRAM, "1", str(most), str(ranks)],
                stdout=subprocess.PIPE, stderr=progress, text=True, timeout=_A_RUN_SECONDS,
            )  # fmt: skip
            found = re.search(r"^seed (\d+): (.*)$", ended.stdout, re.MULTILINE)
            if found:
                return int(found[1]), found[2][:90]
            if ended.returncode == 0:
                return None, ""
            how = f"ended with {ended.returncode}"
        except subprocess.TimeoutExpired:
            how = "does not end"
        progress.seek(0)
        return int(re.findall(r"seed (\d+)", progress.read())[-1]), how


def copy_if_changed(source: str, target: str) -> None:
    """Leaves the time of a file that is the same, so that it is not compiled again."""
    if not Path(target).exists() or not filecmp.cmp(source, target, shallow=False):
        shutil.copyfile(source, target)
        shutil.copymode(source, target)


def prepare() -> None:
    ignored = shutil.ignore_patterns("build", ".venv", ".git", "site", "node_modules")
    shutil.copytree(ROOT, TREE, ignore=ignored, copy_function=copy_if_changed, dirs_exist_ok=True)
    for copied in (TREE / "src").rglob("*"):
        if copied.is_file() and not (ROOT / copied.relative_to(TREE)).exists():
            copied.unlink()
    ninja = shutil.which("ninja") or "ninja"
    subprocess.run(
        ["cmake", "-S", TREE, "-B", BUILD / "build", "-G", "Ninja",
         f"-DCMAKE_MAKE_PROGRAM={ninja}", "-DUNISONO_CUDA=OFF", "-DUNISONO_BUILD_TESTS=OFF"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="defects whose words contain this")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    prepare()
    build()
    for ranks in sorted({defect.ranks for defect in DEFECTS}):
        most = max(defect.within for defect in DEFECTS if defect.ranks == ranks)
        seen_without, how = seeds_until_seen(most, ranks)
        if seen_without is not None:
            print(f"without a defect seed {seen_without} of {ranks} ranks goes wrong: {how}")
            return 1
    lines = ["seen at seed, of those stated: what was planted, and how it was seen"]
    missed = 0
    for defect in DEFECTS:
        if options.only not in defect.what:
            continue
        file = TREE / defect.path
        text = file.read_text()
        if text.count(defect.before) != 1:
            raise SystemExit(f"{defect.path}: '{defect.what}' is to edit what is there "
                             f"{text.count(defect.before)} times")  # fmt: skip
        file.write_text(text.replace(defect.before, defect.after))
        try:
            build()
            seed, how = seeds_until_seen(defect.within, defect.ranks)
        finally:
            file.write_text(text)
        missed += seed is None
        lines.append(f"{seed or 'never':>5} of {defect.within:>4}  {defect.what}: {how}")
        print(lines[-1], flush=True)
    lines.append(f"{len(lines) - 1 - missed} of {len(lines) - 1} seen")
    print(lines[-1])
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
