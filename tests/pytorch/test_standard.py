"""Names, numbers, profiles and descriptors of groups, as PyTorch and its libraries use them."""

import pytest
from pytorch.ranks import Outcome, checks_of, run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.xdist_group("pytorch standard")

SHAPES = [
    pytest.param(2, id="2 ranks"),
    pytest.param(4, id="4 ranks", marks=pytest.mark.matrix),
]


@pytest.fixture(scope="module", params=SHAPES)
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("checkpoint")
    return run("standard.py", request.param, CHECKPOINT_FOLDER=str(folder))


@pytest.mark.parametrize("name", checks_of("standard.py"))
def test_standard(outcome: Outcome, name: str) -> None:
    texts = outcome.reports.get(name, [])
    assert len(texts) == len(outcome.codes), f"not all ranks came so far:\n{outcome.text()}"
    assert not any(texts), "\n".join(texts)


def test_pytorch_finds_the_backend_without_an_import() -> None:
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 14):
        pytest.skip("PyTorch before 2.14 has no entry points for backends")
    outcome = run("without_import.py", 2)
    assert outcome.reports.get("found") == ["unisono"] * 2, outcome.text()
    assert set(outcome.codes) == {0}, outcome.text()


def test_all_ranks_leave_in_peace(outcome: Outcome) -> None:
    assert set(outcome.codes) == {0}, outcome.text()
