"""The demo and its example, as a newcomer runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from unisono import demo, plans
from unisono.bench.cases import Request
from unisono.launcher import launch

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3])
def test_training_on_digits_keeps_its_bound(ranks: int, tmp_path: Path) -> None:
    result = tmp_path / "digits.json"
    script = str(ROOT / "examples" / "digits_numpy.py")
    assert launch([script, "--epochs", "2", "--json", str(result)], ranks).ok
    found = json.loads(result.read_text())
    assert found["ranks"] == ranks
    assert found["same_on_all_ranks"]
    assert 0 < found["bound"] < 1e-8
    assert max(found["difference"].values()) <= found["bound"]
    assert all(curve["accuracy"][-1] > 0.8 for curve in found["curves"].values())


@pytest.mark.parametrize("quick", [True, False])
def test_the_demo_s_cases_are_every_algorithm_over_every_protocol(quick: bool) -> None:
    cases = demo.list_demo_cases(Request(ranks=demo.RANKS, nodes=demo.NODES), quick)
    placement = plans.Placement(demo.RANKS, demo.NODES)
    found = {(case.collective, case.algorithm, case.protocol) for case in cases}
    wanted = {
        (entry.collective, entry.name, protocol)
        for entry in plans.algorithms()
        for protocol in ("simple", "ll", "ll128")
        if not entry.why_not(placement, protocol=protocol)
    }
    assert found == wanted
    assert any(case.count % 2 == 1 and case.count > 1 for case in cases)


def test_an_algorithm_that_did_not_run_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.check_complete([]) == 1
    assert "ring_all_reduce" in capsys.readouterr().err


@pytest.mark.slow
def test_the_quick_demo_writes_its_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unisono.demo", "--quick", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert all(row["wrong"] == 0 for row in rows)
    html = (tmp_path / "report.html").read_text()
    # A plot of each collective that moves data, three plans, two curves of the training.
    assert html.count("<svg") >= 9 + 3 + 2
