"""Models in training steps: their parameters and operations, from a file's dimensions."""

from __future__ import annotations

from pathlib import Path

import pytest
from unisono.errors import MisuseError

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from unisono.simulate import (
    MODELS,
    Device,
    Layout,
    Model,
    load_cluster,
    load_workload,
    parse_workload,
    simulate_workload,
    training_step,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "workloads" / "llama3_70b.yaml"
SMALL = """
format: 1
name: small
training:
  model: {layers: 4, hidden: 512, heads: 8, kv_heads: 2, ffn: 1408, mlp: swiglu,
          vocabulary: 1000, sequence: 256, positions: rotary, biases: false, tied: false}
  layout: {tensor: 2, replicate: 2}
  device: {speed: 100 TFLOP/s, peak: 200 TFLOP/s}
  global_batch_tokens: 1024
  recompute: false
"""


# The parameters that Meta's configurations come to.
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-3-405b", 405_853_388_800),
    ],
)
def test_llama_has_its_parameters(name: str, parameters: int) -> None:
    model = MODELS[name]
    final_norm = model.hidden
    assert model.parameters + final_norm == parameters


def test_gpt_keeps_its_shape() -> None:
    model = MODELS["gpt-7b"]
    h = model.hidden
    layer = 12 * h * h + 13 * h
    assert model.parameters == model.layers * layer + (model.vocabulary + model.sequence) * h
    # 6 operations for each weight of a matrix, and the scores of attention.
    matrices = model.layers * 12 * h * h + model.vocabulary * h
    assert model.operations == 6 * matrices + 12 * model.layers * model.sequence * h


def test_a_file_may_give_dimensions() -> None:
    step = parse_workload(SMALL)
    model = Model(
        "model", 4, 512, 8, sequence=256, vocabulary=1000, kv_heads=2, ffn=1408, mlp="swiglu",
        biases=False, positions="rotary", tied=False,
    )  # fmt: skip
    device = Device(tflops=100, peak_tflops=200)
    same = training_step(
        model, Layout(tensor=2, replicate=2), device, global_batch_tokens=1024, recompute=False
    )
    assert step.lists == same.lists
    assert step.operations == model.operations * 1024


def test_mfu_is_a_part_of_the_peak() -> None:
    step = parse_workload(SMALL)
    result = simulate_workload(load_cluster("dgx_h100"), step)
    seconds = result.time_us / 1e6
    assert result.mfu == pytest.approx(step.operations / seconds / (4 * 200e12))
    assert 0 < result.mfu < 0.5
    assert result.tokens_per_s == pytest.approx(1024 / seconds)
    # Without a peak nothing is claimed.
    unknown = parse_workload(SMALL.replace(", peak: 200 TFLOP/s", ""))
    assert simulate_workload(load_cluster("dgx_h100"), unknown).mfu == 0


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("heads: 8", "heads: 7", "heads is 7; it must divide hidden, 512"),
        ("kv_heads: 2", "kv_heads: 3", "kv_heads is 3; it must divide heads, 8"),
        ("tensor: 2", "tensor: 4", "2 heads of keys and values"),
        ("mlp: swiglu", "mlp: relu", "'gelu' or 'swiglu'"),
        ("layers: 4, ", "", "layers: Field required"),
        ("ffn: 1408", "width: 1408", "width: Extra inputs are not permitted"),
        ("global_batch_tokens: 1024", "global_batch_tokens: 1000", "a multiple of 512"),
    ],
)
def test_dimensions_that_do_not_fit_are_refused(old: str, new: str, complaint: str) -> None:
    assert old in SMALL
    with pytest.raises(MisuseError) as caught:
        parse_workload(SMALL.replace(old, new))
    assert complaint in str(caught.value)
    assert "valid string" not in str(caught.value)


def test_the_example_is_llama() -> None:
    step = load_workload(EXAMPLE)
    model = MODELS["llama-3-70b"]
    assert step.ranks == 512
    assert step.operations == model.operations * step.tokens
