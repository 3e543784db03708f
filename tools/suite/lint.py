"""Format, lint and types of the tree: clang-format, clang-tidy, ruff, mypy, the tidy tests."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tidy_cache
from cpp import configure
from stage import BIN, ROOT, Log, Outcome, Suite

Check = tuple[str, Callable[[Log], Outcome]]


def tracked(*patterns: str) -> list[str]:
    """The repository's files that match, new ones included."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode == 0:
        names = [name for name in listing.stdout.split("\0") if name]
    else:
        names = [
            str(path.relative_to(ROOT))
            for folder in ("include", "src", "bindings", "tests", "examples")
            for pattern in patterns
            for path in (ROOT / folder).rglob(pattern)
        ]
    return sorted({name for name in names if (ROOT / name).is_file()})


def clang_format(log: Log, fix: bool) -> Outcome:
    """Layout of the C++ files."""
    outcome = Outcome()
    files = tracked("*.h", "*.cc")
    mode = ["-i"] if fix else ["--dry-run", "--Werror"]
    outcome.check("clang-format", log.run([BIN / "clang-format", *mode, *files]))
    return outcome


def ruff(log: Log, fix: bool) -> Outcome:
    """Lint and layout of the Python files."""
    outcome = Outcome()
    outcome.check("ruff check", log.run([BIN / "ruff", "check", *(["--fix"] if fix else []), "."]))
    mode = [] if fix else ["--check"]
    outcome.check("ruff format", log.run([BIN / "ruff", "format", *mode, "."]))
    return outcome


def mypy(log: Log) -> Outcome:
    """Types of the package, strictly."""
    outcome = Outcome()
    if (ROOT / "python" / "unisono").is_dir():
        outcome.check("mypy --strict", log.run([BIN / "mypy"]))
    return outcome


def clang_tidy(log: Log, fix: bool) -> Outcome:
    """The checks of .clang-tidy on every translation unit of the layers that has changed."""
    outcome = Outcome()
    build = ROOT / "build" / "test"
    if not outcome.check("clang-tidy: configure", configure(log, build, [])):
        return outcome
    clean = tidy_cache.of_build(build, ROOT, BIN / "ninja", BIN / "clang-tidy")
    keys: dict[str, str | None] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if Path(entry["file"]).is_relative_to(ROOT / "src"):
            keys[entry["file"]] = clean.key(entry["command"], entry["output"])
    # The build's -Werror is for its own compiler's warnings, not for clang's.
    command = [BIN / "clang-tidy", "--quiet", "-p", build, "--extra-arg=-Wno-error"]
    if fix:
        command.append("--fix")
    changed = [unit for unit, key in sorted(keys.items()) if not clean.is_clean(key)]
    outcome.passed += len(keys) - len(changed)

    def check(unit: str) -> tuple[str, bool, Log]:
        own = Log(f"clang-tidy/{Path(unit).relative_to(ROOT)}", log.background)
        return unit, own.run([*command, unit]), own

    # Fixing several units at a time would write one header twice.
    with ThreadPoolExecutor(1 if fix else os.cpu_count() or 1) as pool:
        for unit, ok, own in pool.map(check, changed):
            log.cpu_seconds += own.cpu_seconds
            if outcome.check(f"clang-tidy {Path(unit).relative_to(ROOT)}", ok):
                clean.add(keys[unit])
            else:
                log.append(own)
    return outcome


def tidy(log: Log) -> Outcome:
    """The project's own rules: layers, lengths, words, settings, dependencies."""
    outcome = Outcome()
    outcome.check("tests/tidy", log.run([BIN / "python", "-m", "pytest", "-q", "tests/tidy"]))
    return outcome


def quick_checks(fix: bool = False) -> list[Check]:
    """The checks that take seconds."""
    return [
        ("clang-format", lambda log: clang_format(log, fix)),
        ("ruff", lambda log: ruff(log, fix)),
        ("mypy", mypy),
    ]


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="tools/lint", description=__doc__)
    parser.add_argument("--fix", action="store_true", help="repair what can be repaired")
    parser.add_argument("--quick", action="store_true", help="leave out clang-tidy")
    arguments = parser.parse_args()
    checks = quick_checks(arguments.fix)
    if not arguments.quick:
        checks.append(("clang-tidy", lambda log: clang_tidy(log, arguments.fix)))
    checks.append(("tidy", tidy))
    suite = Suite()
    for name, check in checks:
        suite.run(name, check)
    return suite.close()


if __name__ == "__main__":
    sys.exit(main())
