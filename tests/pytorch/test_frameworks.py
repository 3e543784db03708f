"""A step of training in each framework over Unisono: those that are installed."""

import importlib.util

import pytest
from pytorch.ranks import run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.matrix


def skip_without(framework: str) -> None:
    """Most machines have none of them."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")


@pytest.mark.parametrize("framework", ["accelerate", "transformers", "lightning", "deepspeed"])
def test_training_over_unisono(framework: str) -> None:
    skip_without(framework)
    outcome = run("frameworks.py", 2, framework)
    for name, text in (("backend", "unisono"), ("ran", "all_reduce"), ("trained", "True")):
        assert outcome.reports.get(name) == [text] * 2, outcome.text()
    assert set(outcome.codes) == {0}, outcome.text()


def test_ray_train_over_unisono() -> None:
    skip_without("ray")
    outcome = run("ray_train.py", 1)
    assert outcome.reports.get("backend") == ["unisono unisono"], outcome.text()


def test_torchft_over_unisono() -> None:
    skip_without("torchft")
    if not hasattr(torch.distributed.ProcessGroup, "reconfigure"):
        pytest.skip("PyTorch before 2.14 cannot reconfigure groups")
    outcome = run("torchft_quorums.py", 3)
    for name, text in (("backend", "unisono"), ("ran", "all_reduce"), ("trained", "True")):
        assert outcome.reports.get(name) == [text] * 2, outcome.text()
    # Three trained two steps, and two the others after the third had died.
    assert outcome.reports["members"] == ["3 3 2 2 2 2"] * 2, outcome.text()
    assert set(outcome.codes) == {0}, outcome.text()
