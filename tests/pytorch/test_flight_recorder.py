"""PyTorch's Flight Recorder has the calls of groups of Unisono, and dumps them at a failure."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pytorch.ranks import PATIENCE, Outcome, run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
c10d = pytest.importorskip("torch._C._distributed_c10d")
if not hasattr(c10d, "HealthCheckHook"):
    pytest.skip("PyTorch before 2.15 records its own backends alone", allow_module_level=True)
pytestmark = pytest.mark.xdist_group("pytorch flight_recorder")

SIZE = 3
PREFIX = "trace_"
COMPLETED = [
    "default_pg unisono:all_reduce completed",
    "default_pg unisono:broadcast completed",
    "default_pg unisono:all_gather completed",
    "default_pg unisono:all_reduce completed",
    "default_pg unisono:all_reduce completed",
    "default_pg unisono:send {0}->{1} completed",
    "default_pg unisono:recv {0}<-{2} completed",
    "default_pg unisono:barrier completed",
    "default_pg unisono:all_reduce completed",
    "new unisono:all_reduce completed",
    "part unisono:all_reduce completed",
]


def run_in(folder: Path, mode: str, limit: float, **extra: str) -> Outcome:
    extra["TORCH_FR_DUMP_TEMP_FILE"] = str(folder / PREFIX)
    return run("flight_recorder.py", SIZE, mode, str(limit * PATIENCE), **extra)


def entries_of(folder: Path, rank: int) -> list[dict]:
    return pickle.loads((folder / f"{PREFIX}{rank}").read_bytes())["entries"]


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    folder = tmp_path_factory.mktemp("dumps")
    # The import that stack traces need takes longer than a dump may.
    slow = {
        "SLOW_IMPORT": str(3 * PATIENCE),
        "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC": str(int(2000 * PATIENCE)),
    }
    return run_in(folder, "fails", 8, **slow), folder


def test_calls_of_all_groups_are_recorded_as_completed(failed: tuple[Outcome, Path]) -> None:
    outcome, _ = failed
    found = sorted(map(json.loads, outcome.reports.get("states", [])))
    expected = sorted(
        [line.format(rank, (rank + 1) % SIZE, (rank - 1) % SIZE) for line in COMPLETED]
        for rank in range(SIZE)
    )
    assert found == expected, outcome.text()


def test_every_rank_dumps_at_a_timeout(failed: tuple[Outcome, Path]) -> None:
    outcome, folder = failed
    assert outcome.reports.get("raised before its dump") == ["True"] * (SIZE - 1), outcome.text()
    assert outcome.reports.get("dumped") == ["True"] * SIZE, outcome.text()
    assert outcome.reports.get("healthy") == ["False"] * SIZE, outcome.text()
    running = ["[[[7]]]"] * (SIZE - 1) + ["[]"]  # by the control plane
    assert outcome.reports.get("running") == running, outcome.text()
    for rank in range(SIZE):
        entries = entries_of(folder, rank)
        open_calls = [one["input_sizes"] for one in entries if one["state"] != "completed"]
        assert open_calls == ([[[7]]] if rank < SIZE - 1 else []), (rank, entries)


def test_a_dump_has_stack_traces_however_slowly_they_come(failed: tuple[Outcome, Path]) -> None:
    outcome, folder = failed
    for rank in range(SIZE):
        for entry in entries_of(folder, rank):
            names = {Path(frame["filename"]).name for frame in entry["frames"]}
            assert "flight_recorder.py" in names, (rank, entry, outcome.text())
    assert set(outcome.codes) == {0}, outcome.text()


def test_a_rank_that_keeps_the_lock_of_python_dumps_without_stack_traces(tmp_path: Path) -> None:
    outcome = run_in(tmp_path, "keeps_the_lock", 4)
    assert outcome.reports.get("dumped") == ["True"] * (SIZE - 1), outcome.text()
    assert outcome.reports.get("dumped meanwhile") == ["True"], outcome.text()
    last = SIZE - 1
    assert [entry.get("frames", []) for entry in entries_of(tmp_path, last)] == [[]], outcome.text()
    assert set(outcome.codes) == {0}, outcome.text()


def test_torchfrtrace_names_the_rank_that_is_missing(failed: tuple[Outcome, Path]) -> None:
    outcome, folder = failed
    told = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder),
         "--prefix", PREFIX],
        capture_output=True, text=True, check=False, timeout=120 * PATIENCE,
    )  # fmt: skip
    text = told.stdout + told.stderr
    assert told.returncode == 0, text + outcome.text()
    assert "collective: unisono:all_reduce" in text, text
    assert f"missing ranks: {{{SIZE - 1}}}" in text, text


def test_ranks_that_end_as_usual_dump_nothing(tmp_path: Path) -> None:
    outcome = run_in(tmp_path, "ends", 60)
    assert outcome.reports.get("dumped") == ["False"] * SIZE, outcome.text()
    assert set(outcome.codes) == {0}, outcome.text()
