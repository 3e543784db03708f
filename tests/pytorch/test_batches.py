"""Batches of calls and messages, beside other threads and after exceptions."""

import pytest
from pytorch.ranks import Outcome, checks_of, run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
pytestmark = pytest.mark.xdist_group("pytorch batches")

SHAPES = [
    pytest.param((2, 1), id="2 ranks"),
    pytest.param((4, 2), id="4 ranks on 2 nodes", marks=pytest.mark.matrix),
]


@pytest.fixture(scope="module", params=SHAPES)
def outcome(request: pytest.FixtureRequest) -> Outcome:
    size, nodes = request.param
    return run("batches.py", size, nodes=nodes)


@pytest.mark.parametrize("name", checks_of("batches.py"))
def test_batches(outcome: Outcome, name: str) -> None:
    texts = outcome.reports.get(name, [])
    assert len(texts) == len(outcome.codes), f"not all ranks came so far:\n{outcome.text()}"
    assert not any(texts), "\n".join(texts)


def test_all_ranks_leave_in_peace(outcome: Outcome) -> None:
    assert set(outcome.codes) == {0}, outcome.text()
