"""PAT, CollNet and PXN in the model of NCCL: when they serve, and what their formulas give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unisono.cli.nccl import simulate_nccl

pytest.importorskip("pydantic")
pytest.importorskip("yaml")
pytest.importorskip("scipy")

from unisono.simulate import nccl

KIB, MIB = 1 << 10, 1 << 20


def machine(name: str = "dgx_h100", **stack: Any) -> nccl.MachineFile:
    found = nccl.find_machine(name)
    return found.model_copy(update={"stack": found.stack.model_copy(update=stack)})


def candidates(on: nccl.MachineFile, call: nccl.Call) -> set[str]:
    platform = nccl.platform_of(on, call.nodes, call.ranks // call.nodes)
    return {one.algorithm for one in nccl.candidates(call, platform)}


@pytest.mark.parametrize(
    ("version", "call", "serves"),
    [
        ("2.23.4", nccl.Call("all_gather", MIB, 32, 32), True),
        ("2.30.7", nccl.Call("reduce_scatter", MIB, 32, 32), True),
        ("2.22.3", nccl.Call("all_gather", MIB, 32, 32), False),
        ("2.30.7", nccl.Call("all_gather", MIB, 64, 32), False),
        ("2.30.7", nccl.Call("all_reduce", MIB, 32, 32), False),
    ],
)
def test_pat_serves_one_gpu_a_node_since_2_23(
    version: str, call: nccl.Call, *, serves: bool
) -> None:
    assert ("pat" in candidates(machine(nccl=version), call)) == serves


def test_pats_formula_is_that_of_nccl() -> None:
    call = nccl.Call("all_gather", 3_000_000, 32, 32)
    platform = nccl.platform_of(machine(), 32, 1)
    # 8 us, five hops of 14 / 3.5 and 2.8 for each rank; 0.75 of a channel of 48 GB/s.
    expected = 8 + 5 * 4 + 32 * 2.8 + 3_000_000 / (0.75 * 48_000)
    found = nccl.formula_us(call, nccl.Choice("pat", "simple"), platform)
    assert platform.trees.channels == 1
    assert platform.trees.between_gb_s == 48
    assert found == pytest.approx(expected)


def test_pat_is_chosen_for_small_gathers_on_many_nodes() -> None:
    small, large = (nccl.Call("all_gather", size, 32, 32) for size in (64 * KIB, 256 * MIB))
    assert nccl.predict(machine(), small).choice == nccl.Choice("pat", "simple")
    assert nccl.predict(machine(), large).choice == nccl.Choice("ring", "simple")


def test_collnet_serves_where_it_is_enabled() -> None:
    far, near = nccl.Call("all_reduce", MIB, 128, 16), nccl.Call("all_reduce", MIB, 8, 1)
    both = {"collnet_direct", "collnet_chain"}
    assert not candidates(machine(), far) & both
    assert candidates(machine(collnet=True), far) >= both
    assert not candidates(machine(collnet=True), near) & both
    gather = nccl.Call("all_gather", MIB, 128, 16)
    assert not candidates(machine(collnet=True), gather) & both


def test_collnets_formulas_are_those_of_nccl() -> None:
    call = nccl.Call("all_reduce", 0, 128, 16)
    platform = nccl.platform_of(machine(collnet=True), 16)
    # Two hops of 3.7 and 0.4 for each of the 7 others, twice; 14 hops of 2.8 along the chain.
    direct = nccl.formula_us(call, nccl.Choice("collnet_direct", "simple"), platform)
    assert direct == pytest.approx(2 * 3.7 + 14 * 0.4 + 31)
    chain = nccl.formula_us(call, nccl.Choice("collnet_chain", "simple"), platform)
    assert chain == pytest.approx(14 * 2.8 + 30)


def test_switches_that_reduce_halve_what_leaves_a_node() -> None:
    call = nccl.Call("all_reduce", 1 << 30, 128, 16)
    on = machine(collnet=True)
    collnet = nccl.terms_of(on, call, nccl.Choice("collnet_chain", "simple")).between
    ring = nccl.terms_of(on, call, nccl.Choice("ring", "simple")).between
    assert ring.coefficient / collnet.coefficient == pytest.approx(2 * 127 / 128)


def test_pxn_sends_more_over_nvlink() -> None:
    call = nccl.Call("all_to_all", 1 << 30, 16, 2)
    inside = [nccl.terms_of(machine(pxn=pxn), call).inside.coefficient for pxn in (True, False)]
    # 7 parts to GPUs of the node, and of 8 to the other node all but an eighth.
    assert inside[0] / inside[1] == pytest.approx((7 + 8 * 7 / 8) / 7)


def test_the_command_says_that_nobody_measured_an_algorithm(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "sharp.yaml"
    path.write_text(nccl.machine_to_yaml(machine(collnet=True)))
    simulate_nccl("all_reduce", str(path), "128", 16, ["64KiB"], None, None)
    shown = capsys.readouterr().out
    assert "No public table has run collnet_direct" in shown
    simulate_nccl("all_reduce", "dgx_h100", "16", 2, ["64KiB"], None, None)
    assert "No public table" not in capsys.readouterr().out
