"""Default groups that are made and destroyed in turn on one port."""

import pytest
from pytorch.ranks import Outcome, checks_of, run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
pytestmark = pytest.mark.xdist_group("pytorch turns")

SIZES = [
    pytest.param(2, id="2 ranks"),
    pytest.param(4, id="4 ranks", marks=pytest.mark.matrix),
]


@pytest.fixture(scope="module", params=SIZES)
def outcome(request: pytest.FixtureRequest) -> Outcome:
    return run("turns.py", request.param)


@pytest.mark.parametrize("name", checks_of("turns.py"))
def test_turns(outcome: Outcome, name: str) -> None:
    texts = outcome.reports.get(name, [])
    assert len(texts) == len(outcome.codes), f"not all ranks came so far:\n{outcome.text()}"
    assert not any(texts), "\n".join(texts)


def test_all_ranks_leave_in_peace(outcome: Outcome) -> None:
    assert set(outcome.codes) == {0}, outcome.text()
