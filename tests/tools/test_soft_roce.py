"""The part of the suite that runs verbs on soft-RoCE: what is missing is a skip with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import soft_roce
import stage
from stage import Log, MissingError


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    """A log, where a guest's command is what a test writes to tmp_path/run."""
    monkeypatch.setattr(stage, "BUILD", tmp_path)
    monkeypatch.setattr(soft_roce, "BUILD", tmp_path)
    monkeypatch.setattr(soft_roce, "RUN", tmp_path / "run")
    monkeypatch.setattr(soft_roce, "CONFORMANCE", tmp_path / "run")
    return Log("soft-roce")


def test_what_is_missing_is_a_skip_with_its_reason(log: Log, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("import sys\nprint('no perl')\nsys.exit(77)\n")
    with pytest.raises(MissingError, match="^no perl$"):
        soft_roce.run_tests(log)


def test_without_the_conformance_tests_the_part_says_how_to_build_them(
    log: Log, tmp_path: Path
) -> None:
    with pytest.raises(MissingError, match=r"`tools/test c\+\+` builds"):
        soft_roce.run_tests(log)


def test_a_guest_that_does_not_end_its_command_fails(log: Log, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("import sys\nsys.exit(1)\n")
    outcome = soft_roce.run_tests(log)
    assert outcome.has_crashed
    assert outcome.passed == 1
    assert outcome.failures == [
        "soft-RoCE: conformance_test ran to its end",
        "soft-RoCE: a card that refuses the queue is an error",
        "soft-RoCE: a job of two nodes",
    ]
