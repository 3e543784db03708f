"""What the ranks are told when something is wrong: the value, the rank, and what would be right."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pytorch.ranks import PATIENCE, PROGRAMS, Outcome, run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
pytestmark = pytest.mark.xdist_group("pytorch failures")

REFUSED = {
    "sparse": r"ValueError: all_reduce on rank \d got a sparse tensor of shape \[3, 3\]; .*SUM",
    "complex max": r"ValueError: all_reduce on rank \d cannot combine ComplexFloat by MAX",
    "bitwise float": r"cannot combine Float by BAND; bitwise operations are for integers",
    "gather size": r"output of shape \[7\] and an input of shape \[4\]; on 2 ranks",
    "scatter size": r"input of shape \[7\] and an output of shape \[3\]; on 2 ranks",
    "list length": r"all_gather on rank \d got 3 outputs; it must be 2, one for each rank",
    "list shape": r"got output 1 of shape \[5\], which has 5 elements; it must have 4",
    "list type": r"got output 0 of type Int; it must be Float as the others",
    "split sizes": r"got 2 input split sizes with the sum 3 for a tensor of shape \[4\]",
    "tag": r"tag is -3 in a send on rank \d; it must be 0 to",
    "device": r"got a tensor on meta; only tensors on the CPU and on CUDA devices can be sent",
    "parts": r"split_group got the parts \[\[0\], \[0, 1\]\]; .* no rank in two of them",
    "root": r"broadcast on rank \d got the root 5; it must be 0 to 1",
}


@pytest.fixture(scope="module")
def refused() -> Outcome:
    return run("failures.py", 2, "bad_arguments")


@pytest.mark.parametrize("name", REFUSED)
def test_bad_argument_is_refused_by_name(refused: Outcome, name: str) -> None:
    texts = refused.reports.get(name, [])
    assert len(texts) == 2, refused.text()
    for text in texts:
        assert re.search(REFUSED[name], text), text


def test_refused_calls_leave_the_group_of_use(refused: Outcome) -> None:
    assert refused.reports["still of use"] == [str([2.0] * 4)] * 2, refused.text()


@pytest.mark.matrix
def test_mismatched_shapes_are_found_on_every_rank() -> None:
    outcome = run("failures.py", 2, "mismatched_shapes", LIMIT="10")
    texts = outcome.reports["mismatch"]
    assert len(texts) == 2, outcome.text()
    for text in texts:
        assert re.search(r"DistBackendError: all_reduce on rank .*ranks disagree", text), text
        for who, elements in enumerate((4, 8)):
            assert f"rank {who} calls all_reduce of {elements} float32, sum" in text


@pytest.mark.matrix
def test_mismatched_calls_are_named_when_asked_for() -> None:
    outcome = run("failures.py", 2, "mismatched_calls", UNISONO_CHECK_CALLS="1")
    assert len(outcome.reports["mismatch"]) == 2, outcome.text()
    for text in outcome.reports["mismatch"]:
        assert "rank 0 calls all_reduce of 4 float32" in text, text
        assert "rank 1 calls all_reduce of 1004 float32" in text, text


@pytest.mark.matrix
@pytest.mark.parametrize("nodes", [1, 3])
def test_dead_rank_is_named_at_once(nodes: int) -> None:
    outcome = run("failures.py", 3, "rank_dies", nodes=nodes)
    for name in ("died", "died before"):
        assert len(outcome.reports[name]) == 2, outcome.text()
        for text in outcome.reports[name]:
            assert re.search("DistBackendError: .*rank 2", text), text


@pytest.mark.matrix
def test_dead_rank_is_named_in_the_middle_of_a_backward_pass() -> None:
    outcome = run("failures.py", 3, "rank_dies_in_training")
    assert len(outcome.reports["died"]) == 2, outcome.text()
    for text in outcome.reports["died"]:
        assert re.search("DistBackendError: all_reduce on rank .*rank 2", text), text


@pytest.mark.matrix
@pytest.mark.parametrize("lost", [0, 2])
def test_the_others_go_on(lost: int) -> None:
    outcome = run("failures.py", 4, "others_go_on", nodes=2, LOST=str(lost))
    left = [rank for rank in range(4) if rank != lost]
    mean = f"{sum(left) / 3:g}"
    assert sorted(outcome.reports.get("rest", [])) == [
        f"{place} of 3: sum {sum(left)}, first {left[0]}, gradient {mean}" for place in range(3)
    ], outcome.text()
    for text in outcome.reports["not failed"]:
        assert "MisuseError: the group names no rank that has failed" in text
    for text in outcome.reports["itself"]:
        assert "is to be excluded but makes the call itself" in text
    for text in outcome.reports["died"]:
        assert re.search(f"DistBackendError: .*rank {lost}", text), text


@pytest.mark.matrix
def test_timeout_names_the_rank_that_did_not_come() -> None:
    outcome = run("failures.py", 3, "rank_does_not_come", LIMIT="3")
    assert len(outcome.reports["late"]) == 2, outcome.text()
    for text in outcome.reports["late"]:
        assert "Ranks that have not joined this call: 2" in text or "rank 2" in text, text


@pytest.mark.matrix
def test_deadlines_hold_in_callbacks() -> None:
    outcome = run("failures.py", 3, "callback_waits_for_a_rank_that_does_not_come", LIMIT="3")
    assert len(outcome.reports["late"]) == 2, outcome.text()
    for text in outcome.reports["late"]:
        assert "all_reduce on rank" in text, text
        assert "rank 2" in text or "not joined this call: 2" in text, text


@pytest.mark.matrix
def test_a_callback_may_destroy_the_group() -> None:
    outcome = run("failures.py", 2, "destroyed_in_a_callback")
    assert outcome.reports["destroyed"] == [""] * 2, outcome.text()
    assert outcome.reports["blocked"] == ["True"] * 2, outcome.text()
    assert set(outcome.codes) == {0}, outcome.text()


@pytest.mark.matrix
def test_monitored_barrier_names_all_missing_ranks_to_all_that_came() -> None:
    outcome = run("failures.py", 4, "monitored_barrier_without_some", nodes=2)
    assert len(outcome.reports["missing"]) == 2, outcome.text()
    for text in outcome.reports["missing"]:
        assert "these ranks have not reached the barrier: 1, 2" in text, text


@pytest.mark.matrix
def test_monitored_barrier_without_patience_does_not_wait() -> None:
    outcome = run("failures.py", 2, "monitored_barrier_without_patience")
    (text,) = outcome.reports["missing"]
    assert "these ranks have not reached the barrier: 1" in text, outcome.text()
    (text,) = outcome.reports["negative"]
    assert "ValueError: monitored_barrier on rank 0 got the timeout -3000 ms" in text, text


def python(text: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of one line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=240 * PATIENCE,
        check=False,
    )


def test_older_pytorch_is_refused_with_the_oldest_that_works() -> None:
    done = python("import torch; torch.__version__ = '2.10.1+cpu'; import unisono.torch")
    assert done.returncode == 1
    needed = "ImportError: unisono.torch needs PyTorch 2.11 or newer; 2.10.1+cpu is installed in "
    assert needed in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("unisono.torch.communicator()", "Default process group has not been initialized"),
        ("unisono.torch.monitored_barrier()", "Default process group has not been initialized"),
        ("torch.ops.unisono.all_reduce(x, 'sum', '0')", "process group registered under the name"),
    ],
)
def test_a_backend_asked_for_before_its_group_is_a_plain_error(asked: str, answer: str) -> None:
    done = python(f"import torch, unisono.torch; x = torch.ones(2); {asked}")
    assert done.returncode == 1
    assert answer in done.stderr, done.stderr


@pytest.mark.matrix
def test_destroying_a_group_ends_what_is_pending() -> None:
    outcome = run("failures.py", 2, "destroyed_while_pending")
    assert outcome.reports["destroyed"] == [""], outcome.text()
    (text,) = outcome.reports["pending"]
    assert re.search(r"DistBackendError: all_reduce on rank 0 of group .* was aborted", text), text


@pytest.mark.matrix
def test_abort_reaches_every_rank() -> None:
    outcome = run("failures.py", 2, "aborted")
    assert len(outcome.reports["aborted"]) == 2, outcome.text()
    assert all("abort" in text for text in outcome.reports["aborted"])


@pytest.mark.matrix
def test_wait_may_give_up_without_ending_the_operation() -> None:
    outcome = run("failures.py", 2, "timeout_of_one_wait")
    (text,) = outcome.reports["patience"]
    assert "not complete yet" in text, text
    assert outcome.reports["then"] == [str([1.0] * 4)], outcome.text()


@pytest.mark.matrix
def test_torchrun_restarts_and_the_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    results = []
    for name, restarts in (("broken", "1"), ("whole", "0")):
        folder = tmp_path / name
        folder.mkdir()
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2", "--max-restarts", restarts),
            *(str(PROGRAMS / "restarts.py"), str(folder), "6", name),
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        results.append((folder / "result").read_text())
    broken = tmp_path / "broken"
    assert (broken / "steps-0-1").read_text() == "3 to 5"
    assert results[0] == results[1]
