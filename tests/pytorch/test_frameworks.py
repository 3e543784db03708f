"""A step of training in each framework over Unisono: those that are installed."""

import importlib.util

import pytest
from pytorch.ranks import run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
pytestmark = pytest.mark.slow


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
    assert outcome.reports.get("backend") == ["unisono"], outcome.text()
