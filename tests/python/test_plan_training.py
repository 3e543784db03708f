"""Planning a training step: what is found, what is refused, and how it is shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from unisono.cli import app as cli
from unisono.errors import MisuseError
from unisono.simulate import DEVICES, Layout, Model, find_model, nccl
from unisono.simulate import plan_training as planner
from unisono.simulate.plan_training import search
from unisono.simulate.training_options import Options

H100 = nccl.find_machine("dgx_h100")
SMALL = Model("small", layers=8, hidden=2048, heads=16, sequence=2048, vocabulary=32000)


def job(**changes: object) -> planner.Job:
    given = planner.Job(SMALL, 16, 64 * SMALL.sequence, DEVICES["h100"], H100)
    return replace(given, **changes)  # type: ignore[arg-type]


def test_plans_are_sorted_differ_and_lie_in_their_intervals() -> None:
    found = planner.plan_training(job())
    times = [plan.step.time_s for plan in found.plans]
    assert times == sorted(times)
    assert len({(replace(p.layout, virtual=1), p.how.micro_batch, p.how.recomputes)
                for p in found.plans}) == 10  # fmt: skip
    for plan in found.plans:
        assert plan.layout.ranks == 16
        assert plan.low.time_s < plan.step.time_s < plan.high.time_s
        assert plan.low.mfu > plan.step.mfu > plan.high.mfu
        assert plan.step.memory.total <= 80e9
        parts = sum(plan.step.seconds.values())
        assert parts == pytest.approx(plan.step.time_s, rel=1e-6)


def test_pruning_finds_what_a_search_without_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    pruned = planner.plan_training(job())
    assert pruned.pruned > 0
    monkeypatch.setattr(search, "_least_s", lambda *_: 0.0)
    whole = planner.plan_training(job())
    assert whole.pruned == 0
    assert [plan.layout for plan in whole.plans] == [plan.layout for plan in pruned.plans]


def test_what_is_left_out_before_its_communication_is_known_could_not_be_shorter() -> None:
    network = planner.Network(H100)
    layouts = (
        Layout(replicate=16), Layout(tensor=8, replicate=2), Layout(pipeline=4, replicate=4),
        Layout(context=2, shard=8), Layout(pipeline=2, virtual=2, tensor=8),
    )  # fmt: skip
    for layout in layouts:
        how = Options(recompute="none", optimizer="sharded")
        batches = 64 // (layout.shard * layout.replicate)
        asked = planner.Question(SMALL, layout, DEVICES["h100"], how, network, overlap=True)
        step = planner.estimate_step(
            SMALL, layout, DEVICES["h100"], how, network, 64 * SMALL.sequence, overlap=True
        )
        assert search._least_s(asked, batches) <= step.time_s * (1 + 1e-9)


def test_the_quick_form_of_the_schedule_is_the_schedule() -> None:
    network, how = planner.Network(H100), Options(recompute="none", optimizer="sharded")
    for layout in (Layout(pipeline=4, replicate=4), Layout(pipeline=4, virtual=2, replicate=4)):
        quick, whole = (
            planner.estimate_step(
                SMALL, layout, DEVICES["h100"], how, network, 64 * SMALL.sequence,
                is_quick=is_quick,
            ).time_s
            for is_quick in (True, False)
        )  # fmt: skip
        assert quick == pytest.approx(whole, rel=0.15)


def test_communication_is_exposed_by_what_needs_it() -> None:
    network, how = planner.Network(H100), Options(recompute="none")
    tokens = 64 * SMALL.sequence

    def seconds(layout: Layout, *, overlap: bool = False) -> dict[str, float]:
        return planner.estimate_step(
            SMALL, layout, DEVICES["h100"], how, network, tokens, overlap=overlap
        ).seconds

    assert "tensor" not in seconds(Layout(replicate=16))
    alone = seconds(Layout(tensor=8, replicate=2))
    assert alone["tensor"] > seconds(Layout(tensor=8, replicate=2), overlap=True)["tensor"] > 0
    # Groups of 16 leave the node, over NICs.
    assert (
        seconds(Layout(context=16))["context"] > seconds(Layout(context=8, replicate=2))["context"]
    )
    assert seconds(Layout(shard=16))["shard"] > 0
    assert seconds(Layout(pipeline=2, replicate=8))["bubble"] > 0


def test_a_group_has_as_many_nodes_as_its_ranks_need() -> None:
    network = planner.Network(H100)
    assert network.nodes(8, 1) == 1
    assert network.nodes(16, 1) == 2
    assert network.nodes(8, 8) == 8
    assert network.nodes(8, 4) == 4
    assert network.us("all_gather", 1 << 20, 1, 1) == 0
    low, high = (planner.Network(H100, end).us("all_gather", 1 << 26, 16, 1)
                 for end in ("low", "high"))  # fmt: skip
    assert low < network.us("all_gather", 1 << 26, 16, 1) < high


def test_what_is_fixed_is_not_searched() -> None:
    fixed = {"tensor": 2, "pipeline": 4, "micro_batch": 1}
    found = planner.plan_training(job(fixed=fixed))
    assert found.plans
    assert {(one.layout.tensor, one.layout.pipeline, one.how.micro_batch)
            for one in found.plans} == {(2, 4, 1)}  # fmt: skip
    whole = planner.plan_training(job())
    assert whole.plans[0].step.time_s <= found.plans[0].step.time_s
    # A number that the search leaves out may be asked for.
    assert 32 not in search._MICRO_BATCHES
    [plan, *_] = planner.plan_training(job(fixed={"micro_batch": 32, "pipeline": 1})).plans
    assert plan.how.micro_batch == 32
    with pytest.raises(MisuseError, match="no layout divides 16 GPUs .* with tensor 3; take"):
        planner.plan_training(job(fixed={"tensor": 3}))
    with pytest.raises(MisuseError, match="'data=2' fixes nothing; fix tensor, pipeline"):
        planner.plan_training(job(fixed={"data": 2}))


def test_what_fits_nowhere_says_what_is_over() -> None:
    with pytest.raises(MisuseError, match=r"no layout fits 16 GPUs; .*: llama-3-405b does not fit"):
        planner.plan_training(job(model=find_model("llama3-405b"), tokens=64 * 8192))


def test_a_batch_that_no_layout_divides_is_refused() -> None:
    with pytest.raises(MisuseError, match="no layout divides 17 GPUs and 5 sequences"):
        planner.plan_training(job(gpus=17, tokens=5 * SMALL.sequence))
    with pytest.raises(MisuseError, match="a step has 1000 tokens; it must be a multiple of"):
        planner.plan_training(job(tokens=1000))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """The exit code of the command, and what it prints on both streams."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["unisono", "plan-training", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    printed = capsys.readouterr()
    code = ended.value.code
    return code if isinstance(code, int) else 0, printed.out, printed.err


def test_the_command_shows_ten_layouts_at_80_columns() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unisono", "plan-training", "llama3-8b", "--gpus", "16"],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= 80
    assert "…" not in done.stdout
    assert "do not fit 80 GB" in done.stdout.replace("\n", " ")


def test_json_and_page_have_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, document = tmp_path / "plans.html", tmp_path / "plans.json"
    words = ("llama3-70b", "-n", "64", "--gpu", "h200", "--count", "3", "--html", str(page))
    code, _, said = run(capsys, *words, "--json", str(document))
    assert code == 0, said
    found = json.loads(document.read_text())
    assert (found["format"], found["version"]) == ("unisono-plan-training", 1)
    assert len(found["plans"]) == 3
    for plan in found["plans"]:
        for name in ("step_s", "mfu", "exposed_s", "memory_bytes"):
            assert plan[name]["low"] <= plan[name]["value"] <= plan[name]["high"]
        assert sum(plan["memory_parts_bytes"].values()) == pytest.approx(
            plan["memory_bytes"]["value"]
        )
    html = page.read_text()
    assert html.count("<table") == 1
    if found["plans"][0]["pipeline"] > 1:
        assert "stage 1" in html


def test_a_model_may_be_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(
        "format: 1\nname: mine\nlayers: 8\nhidden: 1024\nheads: 8\nvocabulary: 32000\n"
        "sequence: 2048\n"
    )
    code, out, said = run(capsys, str(path), "-n", "8", "--count", "1", "--json", "-")
    assert code == 0, said
    assert json.loads(out)["model"] == "mine"
    path.write_text("format: 1\nlayers: 0\n")
    code, _, said = run(capsys, str(path), "-n", "8")
    assert code == 2
    assert "layers" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("llama3-9b", "-n", "8"), "there is no model 'llama3-9b'; there are gpt-125m"),
        (("llama3-8b", "-n", "8", "--gpu", "b200"), "there is no device 'b200'"),
        (("llama3-8b", "-n", "8", "--cluster", "hgx_b200"), "name one that is with --gpu"),
        (("llama3-8b", "-n", "8", "--cluster", "frontier"), "is a cluster of the event simulator"),
        (("llama3-405b", "-n", "64"), "GB too few"),
        (("llama3-8b", "-n", "8", "--gradient-bytes", "3"), "gradient_bytes is 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_wrong_words_are_named(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = run(capsys, *words)
    assert code == 2
    assert message in " ".join(said.split())
