"""PyTorch's own NCCL backend with Unisono as a drop-in NCCL replacement."""

import json
from pathlib import Path

import pytest
from pytorch.ranks import Outcome, checks_of, run
from unisono.launcher import nccl_library

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.xdist_group("pytorch nccl_preloaded"),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs"),
]

RANKS = min(torch.cuda.device_count(), 4)
# Relative, of ten steps; sums of two terms are the same in any order.
LOSS_BOUND = 0.0 if RANKS == 2 else 1e-5


def preloaded(*arguments: str, **extra: str) -> Outcome:
    variables = {"DEVICE": "cuda", "LD_PRELOAD": str(nccl_library()), **extra}
    return run("nccl.py", RANKS, *arguments, **variables)


@pytest.fixture(scope="module", params=["0", "1"], ids=["blocking", "non-blocking"])
def outcome(request: pytest.FixtureRequest) -> Outcome:
    return preloaded(TORCH_NCCL_USE_COMM_NONBLOCKING=request.param)


@pytest.mark.parametrize("name", checks_of("nccl.py"))
def test_operation(outcome: Outcome, name: str) -> None:
    texts = outcome.reports.get(name, [])
    assert len(texts) == RANKS, f"not all ranks came so far:\n{outcome.text()}"
    assert not any(texts), "\n".join(texts)


def test_all_ranks_leave_in_order(outcome: Outcome) -> None:
    assert set(outcome.codes) == {0}, outcome.text()
    assert sorted(outcome.reports["left"]) == [str(rank) for rank in range(RANKS)]


def test_it_was_this_library(outcome: Outcome) -> None:
    for text in outcome.reports["library"]:
        # The version is that of the header that PyTorch was compiled with.
        _version, file = json.loads(text)
        assert Path(file).samefile(nccl_library())


def test_losses_are_those_of_nccl() -> None:
    ours = preloaded("losses")
    theirs = run("nccl.py", RANKS, "losses", DEVICE="cuda")
    for way in ("ddp", "fsdp"):
        assert len(theirs.reports.get(way, [])) == RANKS, theirs.text()
        assert len(ours.reports.get(way, [])) == RANKS, ours.text()
        expected = sorted(json.loads(text) for text in theirs.reports[way])
        got = sorted(json.loads(text) for text in ours.reports[way])
        for mine, reference in zip(got, expected, strict=True):
            assert reference[-2] < reference[0]
            assert mine == pytest.approx(reference, rel=LOSS_BOUND, abs=0), way
