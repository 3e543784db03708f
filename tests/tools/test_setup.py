"""tools/setup on machines that lack something: it says what, and what that costs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASICS = [
    "bash", "cat", "dirname", "env", "find", "flock", "head", "id", "mkdir", "sed", "sha256sum",
    "sort", "xargs",
]  # fmt: skip

# Stands in for a Python that is new enough and complete; what it is asked to run, it does not.
FAKE_PYTHON = (
    '#!/bin/sh\necho 3.11\nif [ "$1" = -m ]; then echo "made an environment"; exit 3; fi\n'
)
FAKE_OLD_PYTHON = "#!/bin/sh\nexit 1\n"
WORKING = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A checkout's tools and a folder bin/ that is all of PATH: no apt, no compiler, no Python."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    (tmp_path / "bin").mkdir()
    for name in BASICS:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path


def install(machine: Path, name: str, script: str) -> None:
    """Puts a program on the machine."""
    path = machine / "bin" / name
    path.write_text(script)
    path.chmod(0o755)


def setup(machine: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs tools/setup there."""
    return subprocess.run(
        ["bash", machine / "tools" / "setup", *arguments],
        env={"PATH": str(machine / "bin"), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        timeout=180,
    )


def test_a_bare_machine_is_told_everything_to_install(machine: Path) -> None:
    done = setup(machine, "test")
    assert done.returncode == 1
    for package in ("g++", "python3", "python3-venv", "libgtest-dev", "clang", "ccache"):
        assert f"  {package}: " in done.stderr
    assert "install them and run this again: apt-get install g++ python3" in done.stderr


def test_the_demo_asks_for_nothing_that_only_tests_need(machine: Path) -> None:
    done = setup(machine, "demo")
    assert done.returncode == 1
    assert "g++: " in done.stderr
    assert "gtest" not in done.stderr
    assert "clang" not in done.stderr


def test_a_python_that_is_too_old_does_not_do(machine: Path) -> None:
    install(machine, "c++", WORKING)
    install(machine, "python3", FAKE_OLD_PYTHON)
    done = setup(machine, "demo")
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr
    assert "g++" not in done.stderr


def test_what_is_optional_is_named_and_stops_nothing(machine: Path) -> None:
    install(machine, "c++", '#!/bin/sh\ncase "$*" in *syntax-only*) exit 1;; esac\n')
    install(machine, "python3", FAKE_PYTHON)
    done = setup(machine, "test")
    assert "libgtest-dev: without it the C++ tests are skipped" in done.stderr
    assert "making .venv" in done.stderr


def test_an_unknown_purpose_is_refused(machine: Path) -> None:
    done = setup(machine, "nonsense")
    assert done.returncode == 2
    assert "usage" in done.stderr
