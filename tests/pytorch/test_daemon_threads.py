"""Daemon threads that are in calls when the main thread ends: the process ends as that has said."""

from pathlib import Path

import pytest
from pytorch.ranks import Outcome, run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
pytestmark = [pytest.mark.matrix, pytest.mark.xdist_group("pytorch daemon threads")]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder: Path = tmp_path_factory.mktemp("daemon_threads")
    return run("daemon_threads.py", 1, str(folder), UNISONO_LOG="off")


@pytest.mark.parametrize(
    "way", ["all_reduce", "destroyed", "barrier", "async", "batch", "unanswered"]
)
def test_the_process_ends_with_its_own_status(outcome: Outcome, way: str) -> None:
    assert outcome.reports.get(way) == ["5 5 5 5"], outcome.text()
