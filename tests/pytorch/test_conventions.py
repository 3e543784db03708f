"""What programs written for Gloo and NCCL rely on."""

import pytest
from pytorch.ranks import Outcome, checks_of, run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
pytestmark = pytest.mark.xdist_group("pytorch conventions")

SIZES = [
    pytest.param(2, id="2 ranks"),
    pytest.param(4, id="4 ranks", marks=pytest.mark.matrix),
]


@pytest.fixture(scope="module", params=SIZES)
def outcome(request: pytest.FixtureRequest) -> Outcome:
    return run("conventions.py", request.param)


@pytest.mark.parametrize("name", checks_of("conventions.py"))
def test_conventions(outcome: Outcome, name: str) -> None:
    texts = outcome.reports.get(name, [])
    assert len(texts) == len(outcome.codes), f"not all ranks came so far:\n{outcome.text()}"
    assert not any(texts), "\n".join(texts)


def test_all_ranks_leave_in_peace(outcome: Outcome) -> None:
    assert set(outcome.codes) == {0}, outcome.text()
