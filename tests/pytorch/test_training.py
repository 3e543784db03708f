"""One model, trained in each of PyTorch's ways, has over Unisono the losses that it has over Gloo.

On two ranks bit for bit: a sum of two numbers has one value. On more within the bound that
programs/training.py states.
"""

import pytest
from pytorch.ranks import Outcome, run, ways_of_training

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")

SHAPES = [
    pytest.param((2, 1), id="2 ranks"),
    pytest.param((2, 2), id="2 ranks on 2 nodes"),
    pytest.param((4, 1), id="4 ranks"),
    pytest.param((4, 2), id="4 ranks on 2 nodes"),
    pytest.param((6, 1), id="6 ranks"),
    pytest.param((6, 2), id="6 ranks on 2 nodes"),
]
pytestmark = [pytest.mark.matrix, pytest.mark.xdist_group("pytorch training")]


@pytest.fixture(scope="module", params=SHAPES)
def outcome(request: pytest.FixtureRequest) -> Outcome:
    size, nodes = request.param
    return run("training.py", size, nodes=nodes)


@pytest.mark.parametrize("way", ways_of_training())
def test_same_losses_as_over_gloo(outcome: Outcome, way: str) -> None:
    texts = outcome.reports.get(way, [])
    assert len(texts) == len(outcome.codes), outcome.text()
    assert not any(texts), "\n".join(texts)
