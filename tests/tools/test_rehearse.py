"""tools/rehearse runs what is committed, and writes what came of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.org")


def git(checkout: Path, *arguments: str) -> str:
    """Runs git in a checkout; what it printed."""
    command = ["git", *IDENTITY, *arguments]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository whose continuous integration prints what it sees."""
    folder = tmp_path / "checkout"
    (folder / ".ci").mkdir(parents=True)
    (folder / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "rehearse", folder / "tools")
    (folder / ".gitignore").write_text("/build/\n")
    (folder / "answer").write_text("0")
    script = 'cd "$(dirname "$0")/.."\nls\necho "CI=$CI"\necho "==== 3 passed ===="\n'
    (folder / ".ci" / "run").write_text(script + "exit $(cat answer)\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder


def rehearse(checkout: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the checkout's tools/rehearse."""
    command = ["tools/rehearse", *arguments]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True)


def test_what_is_committed_runs_and_its_result_is_kept(checkout: Path, tmp_path: Path) -> None:
    (checkout / "stray").write_text("not committed")
    done = rehearse(checkout, tmp_path / "clone")
    assert done.returncode == 0, done.stderr
    assert "the working tree differs" in done.stderr
    assert "?? stray" in done.stderr
    result = checkout / "build" / "rehearsed" / git(checkout, "rev-parse", "HEAD")
    lines = result.read_text().splitlines()
    assert lines[0] == "passed"
    assert lines[2] == "==== 3 passed ===="
    output = result.with_name(result.name + ".log").read_text()
    assert "stray" not in output
    assert "CI=true" in output


def test_a_failure_is_the_exit_status(checkout: Path, tmp_path: Path) -> None:
    (checkout / "answer").write_text("4")
    git(checkout, "commit", "--quiet", "--all", "--message", "second")
    done = rehearse(checkout, tmp_path / "clone")
    assert done.returncode == 4
    assert "the working tree differs" not in done.stderr
    result = checkout / "build" / "rehearsed" / git(checkout, "rev-parse", "HEAD")
    assert result.read_text().startswith("failed with exit status 4\n")


def test_an_old_clone_is_not_run_over(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "clone" / "unisono").mkdir(parents=True)
    done = rehearse(checkout, tmp_path / "clone")
    assert done.returncode == 2
    assert "name another folder or remove it" in done.stderr
