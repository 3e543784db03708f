"""Memory of a training step: closed forms of the papers, and what a refusal says."""

import re
from dataclasses import replace

import pytest
from unisono.errors import MisuseError
from unisono.simulate import DEVICES, Device, Layout, Model, find_model, training_step
from unisono.simulate.training_memory import activation_bytes, check_memory, memory_of
from unisono.simulate.training_options import Options

GPT = Model("gpt", layers=8, hidden=1024, heads=16, sequence=2048, vocabulary=4096)


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_activations_are_those_of_korthikanti_et_al(tensor: int) -> None:
    """Equations 1, 2 and 4 to 6: sbh (34 + 5 a s / h) / t, without scores 34, and 2 for inputs."""
    tokens, h = 4 * GPT.sequence, GPT.hidden
    scores = 5 * GPT.heads * GPT.sequence / h
    all_kept = activation_bytes(GPT, tokens, tensor, "none", fused_attention=False)
    assert all_kept == pytest.approx(tokens * h * (34 + scores) / tensor)
    for recompute in ("none", "selective"):
        kept = activation_bytes(GPT, tokens, tensor, recompute)
        assert kept == pytest.approx(34 * tokens * h / tensor)
    assert activation_bytes(GPT, tokens, tensor, "full") == pytest.approx(2 * tokens * h / tensor)


def test_fewer_keys_and_swiglu_change_what_is_kept() -> None:
    llama = find_model("llama3-8b")
    h, f, keys = llama.hidden, llama.ffn, llama.key_width
    kept = activation_bytes(llama, 1, 1, "none")
    assert kept == 4 * h + (2 * h + 2 * h + 4 * keys + 2 * h) + (2 * h + 6 * f)


def test_states_are_those_of_zero() -> None:
    """ZeRO, figure 1: 16 bytes a parameter, 4 + 12 / 64 with stage 1, 16 / 64 with stage 3."""
    state = ("parameters", "gradients", "optimizer")

    def bytes_of(layout: Layout, optimizer: str) -> float:
        how = Options(optimizer=optimizer, gradient_bytes=2)  # type: ignore[arg-type]
        memory = memory_of(GPT, layout, how, 1)
        held: float = sum(getattr(memory, name) for name in state)
        return held / GPT.parameters

    assert bytes_of(Layout(replicate=64), "replicated") == pytest.approx(16)
    assert bytes_of(Layout(replicate=64), "sharded") == pytest.approx(4 + 12 / 64)
    assert bytes_of(Layout(shard=64), "replicated") == pytest.approx(16 / 64)
    assert bytes_of(Layout(shard=32, context=2), "replicated") == pytest.approx(16 / 64)
    assert bytes_of(Layout(tensor=8, replicate=8), "replicated") == pytest.approx(16 / 8)


def test_the_first_stage_keeps_as_many_layers_as_the_model_has() -> None:
    """Korthikanti et al., section 4.2.3: L layers, and 1 + (p - 1) / (p m) of that interleaved."""
    a_layer = activation_bytes(GPT, GPT.sequence, 1, "none")
    plain = memory_of(GPT, Layout(pipeline=4), Options(recompute="none"), 8)
    # The last stage has the logits, too, and one micro-batch only.
    assert plain.stage == 0
    assert plain.activations == pytest.approx(GPT.layers * a_layer)
    chunks = memory_of(GPT, Layout(pipeline=4, virtual=2), Options(recompute="none"), 8)
    assert chunks.activations == pytest.approx(GPT.layers * a_layer * (1 + 3 / (4 * 2)))


def test_experts_are_held_by_those_that_share_them() -> None:
    model = find_model("mixtral-8x7b")
    how = Options(recompute="none")
    alone = memory_of(model, Layout(replicate=8), how, 4)
    shared = memory_of(model, Layout(replicate=8, expert=8), how, 4)
    experts = model.layers * model.expert_parameters * 2
    assert alone.parameters - shared.parameters == pytest.approx(experts * 7 / 8)


def test_a_refusal_says_what_is_over_and_its_advice_fits() -> None:
    model, layout = find_model("llama3-8b"), Layout(replicate=8)
    how = Options(recompute="none")
    with pytest.raises(MisuseError) as refused:
        check_memory(model, layout, how, 16, DEVICES["h100"])
    text = str(refused.value)
    memory = memory_of(model, layout, how, 16)
    assert f"needs {memory.total / 1e9:.1f} GB and has 80.0" in text
    assert f"{memory.total / 1e9 - 80:.1f} GB too few" in text
    assert f"optimizer {memory.optimizer / 1e9:.1f}" in text
    named = re.search(r"shard 8 in place of replicate \(([\d.]+) GB\)", text)
    assert named is not None
    followed = check_memory(model, Layout(shard=8), how, 16, DEVICES["h100"])
    assert followed.total / 1e9 == pytest.approx(float(named[1]), abs=0.06)


def test_without_a_single_change_that_helps_the_largest_savings_are_named() -> None:
    model, how = find_model("llama3-405b"), Options(recompute="none")
    with pytest.raises(MisuseError, match="the most is saved by pipeline 2"):
        check_memory(model, Layout(tensor=8, replicate=2), how, 8, DEVICES["h100"])
    with pytest.raises(MisuseError, match="it takes more GPUs, or more memory on each"):
        check_memory(model, Layout(), replace(how, recompute="full"), 8, DEVICES["h100"])


def test_a_training_step_is_refused_only_where_the_memory_is_known() -> None:
    tokens = 8 * 8192
    layout = Layout(replicate=8)
    with pytest.raises(MisuseError, match="llama-3-8b does not fit"):
        training_step(
            "llama-3-8b", layout, DEVICES["h100"], global_batch_tokens=tokens, recompute=False
        )
    unknown = replace(DEVICES["h100"], memory_gb=0)
    for device in (unknown, Device(tflops=660)):
        training_step("llama-3-8b", layout, device, global_batch_tokens=tokens, recompute=False)
