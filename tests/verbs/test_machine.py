"""How a guest ends, by programs that stand for the kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import kernel
import machine

FIND_JOB = 'for word in "$@"; do case $word in job=*) job=${word#job=} ;; esac; done\n'


def run_guest(folder: Path, script: str, results: Path | None = None) -> machine.Ended:
    """Runs a shell script in the place of the kernel."""
    linux = folder / "linux"
    linux.write_text("#!/bin/sh\n" + FIND_JOB + script)
    linux.chmod(0o755)
    return machine.run(
        linux,
        ["echo", "two words"],
        seconds=60,
        network=machine.Network(nodes=3, rails=2),
        environment={"A": "x y"},
        results=results,
    )


def test_the_command_its_status_and_its_results_come_back(tmp_path: Path) -> None:
    results = tmp_path / "results"
    ended = run_guest(
        tmp_path,
        """
        (. $job/settings; echo "$A $nodes $rails"; sh $job/command) > $job/output
        echo 7 > $job/results/report
        echo 3 > $job/status
        """,
        results,
    )
    assert ended == machine.Ended(3, "x y 3 2\ntwo words\n")
    assert (results / "report").read_text() == "7\n"


def test_a_kernel_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(machine.NotStartedError, match="this machine: no ptrace$"):
        run_guest(tmp_path, "echo booting; echo no ptrace; exit 1")
    with pytest.raises(machine.NotStartedError, match="its console is empty$"):
        run_guest(tmp_path, "exit 1")


def test_a_guest_that_ends_before_its_command_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(machine.FailedError, match=r"(?s)without a status.*begun.*oops"):
        run_guest(tmp_path, "echo begun > $job/output; echo oops; exit 1")


def test_a_kernel_is_kept_by_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernel.cached() is None
    monkeypatch.setattr(kernel, "_source_version", lambda: "1.2")
    kept = kernel.cache_folder() / f"1.2-{kernel._digest()}" / "linux"
    kept.parent.mkdir(parents=True)
    kept.write_text("")
    assert kernel.cached() == kernel.build() == kept
    monkeypatch.setattr(kernel, "VALUES", ("CONFIG_OTHER=y",))
    assert kernel.cached() is None


def test_what_building_needs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kernel.shutil, "which", lambda name: None if name == "bc" else name)
    with pytest.raises(kernel.MissingError, match="^building the user-mode kernel needs bc$"):
        kernel.build()
