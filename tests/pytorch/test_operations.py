"""Every operation that PyTorch's process group has, on several ranks, against plain PyTorch."""

import pytest
from pytorch.ranks import Outcome, checks_of, run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
pytestmark = pytest.mark.xdist_group("pytorch operations")

SHAPES = [
    pytest.param((2, 1), id="2 ranks"),
    pytest.param((4, 2), id="4 ranks on 2 nodes", marks=pytest.mark.matrix),
    pytest.param((6, 2), id="6 ranks on 2 nodes", marks=pytest.mark.matrix),
]


@pytest.fixture(scope="module", params=SHAPES)
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    size, nodes = request.param
    folder = tmp_path_factory.mktemp("checkpoint")
    return run("operations.py", size, nodes=nodes, CHECKPOINT_FOLDER=str(folder))


@pytest.mark.parametrize("name", checks_of("operations.py"))
def test_operation(outcome: Outcome, name: str) -> None:
    texts = outcome.reports.get(name, [])
    assert len(texts) == len(outcome.codes), f"not all ranks came so far:\n{outcome.text()}"
    assert not any(texts), "\n".join(texts)


def test_all_ranks_leave_in_peace(outcome: Outcome) -> None:
    assert set(outcome.codes) == {0}, outcome.text()


@pytest.mark.matrix
def test_pytorch_checks_calls_itself_in_detail() -> None:
    outcome = run("detail.py", 2, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert set(outcome.codes) == {0}, outcome.text()
    assert outcome.reports["it works"] == ["", ""]
    for text in outcome.reports["it finds a mismatch"]:
        assert "mismatch" in text.lower(), text
