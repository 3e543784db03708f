"""Tensors on CUDA devices: every operation, streams and graphs, failures, and NCCL's losses."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from pytorch.ranks import Outcome, checks_of, run, ways_of_training

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.xdist_group("pytorch gpus"),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs"),
]

REFUSED = {
    "sparse": r"ValueError: all_reduce on rank \d got a sparse tensor on cuda",
    "list device": r"got output 1 on cpu; it must be on cuda:\d as the others",
    "output device": r"got an output on cpu; it must be on cuda:\d as the others",
    "coalesced devices": r"got tensors on cuda:\d and on cpu; all must be on one device",
    "other device": r"got a tensor on cuda:\d, but the group has cuda:\d on this rank",
    "tag": r"ValueError: send on rank .* tag is 5 in a message on a stream on rank \d",
    "any source": r"ValueError: recv on rank .* receives from any source on a stream",
    "batch": r"got a tensor on cpu in a batch of tensors on cuda:\d; all must be on one device",
}
# The cases of device_failures.py, and what their environment has besides.
FAILURES = {
    "bad_arguments": {},
    "still_of_use": {},
    "rank_dies": {},
    "device_fails": {},
    "rank_does_not_come": {"LIMIT": "8"},
    "aborted": {},
    "destroyed_while_pending": {},
    "blocking_wait": {"TORCH_NCCL_BLOCKING_WAIT": "1"},
    "timeout_of_one_wait": {},
    "not_destroyed": {},
}
SECONDS = 100  # more than twice what the longest program takes


def on_gpus(program: str, *arguments: str, **extra: str) -> Outcome:
    return run(program, 2, *arguments, seconds=SECONDS, DEVICE="cuda", **extra)


def assert_good(outcome: Outcome, name: str) -> None:
    texts = outcome.reports.get(name, [])
    assert len(texts) == len(outcome.codes), f"not all ranks came so far:\n{outcome.text()}"
    assert not any(texts), "\n".join(texts)


@pytest.fixture(scope="module", params=["bound", "lazy"])
def streams(request: pytest.FixtureRequest) -> Outcome:
    return on_gpus("streams.py", request.param)


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("checkpoint")
    return on_gpus("operations.py", CHECKPOINT_FOLDER=str(folder))


@pytest.fixture(scope="module")
def training(request: pytest.FixtureRequest) -> Outcome:
    tests = [item for item in request.session.items if item.parent is request.node]
    ways = [test.callspec.params["way"] for test in tests if "way" in test.fixturenames]
    return on_gpus("training.py", *ways)


@pytest.fixture(scope="module")
def failures() -> dict[str, Outcome]:
    """What came of each case. They run at the same time, since most of it is importing PyTorch."""
    with ThreadPoolExecutor(len(FAILURES)) as pool:
        running = {
            case: pool.submit(on_gpus, "device_failures.py", case, **extra)
            for case, extra in FAILURES.items()
        }
        return {case: outcome.result() for case, outcome in running.items()}


@pytest.fixture(scope="module")
def batches() -> Outcome:
    return on_gpus("batches.py")


@pytest.mark.parametrize("name", checks_of("batches.py"))
def test_batches(batches: Outcome, name: str) -> None:
    assert_good(batches, name)


@pytest.mark.parametrize("name", checks_of("operations.py"))
def test_operation(operations: Outcome, name: str) -> None:
    assert_good(operations, name)


@pytest.mark.parametrize("name", checks_of("streams.py"))
def test_streams(streams: Outcome, name: str) -> None:
    assert_good(streams, name)


def test_all_ranks_leave_in_peace(operations: Outcome, streams: Outcome) -> None:
    for outcome in (operations, streams):
        assert set(outcome.codes) == {0}, outcome.text()


@pytest.mark.parametrize("way", ways_of_training())
def test_same_losses_as_over_nccl(training: Outcome, way: str) -> None:
    assert_good(training, way)


@pytest.mark.parametrize("name", REFUSED)
def test_bad_argument_is_refused_by_name(failures: dict[str, Outcome], name: str) -> None:
    refused = failures["bad_arguments"]
    texts = refused.reports.get(name, [])
    assert len(texts) == 2, refused.text()
    for text in texts:
        assert re.search(REFUSED[name], text), text


def test_refused_calls_leave_the_group_of_use(failures: dict[str, Outcome]) -> None:
    outcome = failures["still_of_use"]
    assert outcome.reports["still of use"] == [str([4.0] * 4)] * 2, outcome.text()


def test_dead_rank_is_named(failures: dict[str, Outcome]) -> None:
    outcome = failures["rank_dies"]
    for name in ("died", "died before"):
        (text,) = outcome.reports[name]
        assert re.search("DistBackendError: .*rank 1", text), text


def test_rank_whose_device_failed_is_named(failures: dict[str, Outcome]) -> None:
    outcome = failures["device_fails"]
    (own,) = outcome.reports["own"]
    assert re.search("(?i)cuda", own), own
    (text,) = outcome.reports["failed"]
    assert re.search("DistBackendError: .*rank 1", text), text


def test_timeout_names_the_rank_that_did_not_come(failures: dict[str, Outcome]) -> None:
    outcome = failures["rank_does_not_come"]
    (text,) = outcome.reports["late"]
    assert re.search("DistBackendError: .*rank 1", text), text


def test_abort_ends_kernels_on_every_rank(failures: dict[str, Outcome]) -> None:
    outcome = failures["aborted"]
    assert len(outcome.reports["aborted"]) == 2, outcome.text()
    assert all("abort" in text for text in outcome.reports["aborted"]), outcome.reports


def test_destroying_a_group_ends_what_is_pending(failures: dict[str, Outcome]) -> None:
    outcome = failures["destroyed_while_pending"]
    assert outcome.reports["destroyed"] == [""], outcome.text()
    (text,) = outcome.reports["pending"]
    assert re.search("DistBackendError: all_reduce on rank 0 of group .* was aborted", text), text


def test_waits_block_the_host_when_asked_to(failures: dict[str, Outcome]) -> None:
    outcome = failures["blocking_wait"]
    assert outcome.reports["complete"] == ["True"] * 2, outcome.text()


def test_wait_may_give_up_without_ending_the_operation(failures: dict[str, Outcome]) -> None:
    outcome = failures["timeout_of_one_wait"]
    (text,) = outcome.reports["patience"]
    assert "not complete yet" in text, text
    assert outcome.reports["then"] == [str([4.0] * 4)] * 2, outcome.text()


def test_program_may_end_without_destroying_its_group(failures: dict[str, Outcome]) -> None:
    outcome = failures["not_destroyed"]
    assert outcome.reports["left"] == [str([2.0] * 4)] * 2, outcome.text()
    assert outcome.codes == [0, 0], outcome.text()
    assert "unisono error" not in outcome.text()
