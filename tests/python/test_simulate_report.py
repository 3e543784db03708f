"""The simulator's pages: bars for one size, the critical path, and what was simulated for what."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from unisono import cli

pytest.importorskip("pydantic")
pytest.importorskip("yaml")
pytest.importorskip("jinja2")

from unisono.draw.look import look_of
from unisono.report.sweeps import report_of_sweep
from unisono.simulate import Job, load_cluster, simulate

EXAMPLES = Path(__file__).parents[2] / "examples" / "workloads"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["unisono", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    said = capsys.readouterr()
    assert not ended.value.code, said.err
    return said.out


def page_of(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> str:
    page = folder / "page.html"
    run(capsys, "simulate", *words, "--html", str(page))
    return page.read_text(encoding="utf-8")


def test_one_size_is_bars(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["all_reduce", "--ranks", "8", "--algorithm", "ring,tree"]
    one = page_of(capsys, tmp_path, *words, "--size", "1MiB")
    assert "<polyline" not in one
    assert one.count('class="bar"') == 2 * 2  # in two widths
    two = page_of(capsys, tmp_path, *words, "--size", "1MiB,2MiB")
    assert two.count("<polyline") == 2 * 2
    assert 'class="bar"' not in two
    # The ring is as blue in the one as in the other.
    for page in (one, two):
        assert look_of("ring").colour in page
        assert look_of("tree").colour in page


def test_very_many_lines_are_each_algorithm_s_best(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = page_of(
        capsys, tmp_path, "all_gather", "--ranks", "16", "--size", "1KiB,1MiB", "--protocol", "all"
    )
    assert "with the best protocol" in page
    assert page.count("<polyline") == 2 * 14


def test_the_critical_path_and_why_cells_are_empty_are_on_the_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = page_of(capsys, tmp_path, "all_reduce", "--ranks", "8", "--algorithm", "ring")
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert any(heading.startswith("Critical path of ") for heading in headings)
    assert "Messages of the critical path" in headings
    assert "latency" in page
    assert "all ranks are on one node, where no NIC is used" in page
    assert "time (µs)" in page
    assert "bus bandwidth (GB/s)" in page


def test_json_has_the_path_only_where_it_was_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["simulate", "all_reduce", "--ranks", "8", "--algorithm", "ring", "--html",
             str(tmp_path / "page.html"), "--json", "-"]  # fmt: skip
    assert json.loads(run(capsys, *words))["results"][0]["hops"] == []
    assert json.loads(run(capsys, *words, "--explain"))["results"][0]["hops"]


def test_what_could_not_be_simulated_has_a_row_that_says_why() -> None:
    cluster = load_cluster("dgx_h100")
    result = simulate(cluster, "all_reduce", "ring", size_bytes=1024, ranks=8)
    refused = [(Job("odd", "ll", 8, 1024), "odd needs an odd number of ranks")]
    page = report_of_sweep(cluster, "loggops", "all_reduce", [result], refused)
    assert page.count('class="none" title="odd needs an odd number of ranks"') == 5
    assert "odd: odd needs an odd number of ranks." in page


def test_a_path_of_too_many_messages_says_so() -> None:
    cluster = load_cluster("dgx_h100")
    one = simulate(cluster, "all_reduce", "ring", size_bytes=1024, ranks=8, explain=True)
    page = report_of_sweep(cluster, "loggops", "all_reduce", [replace(one, hops=[])])
    assert "Messages of the critical path" not in page
    assert f"{one.path_messages} messages are on it" in page


def test_a_workload_s_page_has_its_critical_path(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = page_of(
        capsys, tmp_path, "--workload", str(EXAMPLES / "step.yaml"), "--cluster", "dgx_a100"
    )
    assert "<h2>Critical path</h2>" in page
    assert page.count('class="bar"') > 4
    assert "of 16 ranks were simulated" in page


def test_what_a_library_chose_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [
        {"mode": "graph", "collective": "all_reduce", "bytes": size, "type": "bfloat16",
         "ranks": 4, "peer_us": 20.0, "unisono_us": 19.0}
        for size in (1024, 64 << 20)
    ]  # fmt: skip
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"request": {"peer": "nccl"}, "rows": rows}))
    words = ["--cluster", "hgx_h200_4_nccl", "--against", str(file), "--implementation", "nccl"]
    output = run(capsys, "simulate", *words)
    assert "chosen" not in output
    assert re.search(r"\b(ring|tree)\*", output)
    assert re.search(r"\b(simple|ll|ll128)\*", output)
    assert "* The library chose" in output
    page = page_of(capsys, tmp_path, *words)
    assert "chosen" not in page
    assert "* The library chose" in page
    document = json.loads(run(capsys, "simulate", *words, "--json", "-"))
    simulated = document["points"][0]["simulated"]
    assert simulated["algorithm"] in ("ring", "tree")
    assert simulated["channels"] > 0
    assert simulated["time_us"] == document["points"][0]["simulated_us"]


def test_the_page_says_what_nccl_chooses_and_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["all_reduce", "--implementation", "nccl", "--cluster", "dgx_h100", "--ranks", "64",
             "--size", "64KiB,8MiB"]  # fmt: skip
    page = page_of(capsys, tmp_path, *words)
    assert "NCCL&#39;s all_reduce on dgx_h100" in page or "NCCL's all_reduce on dgx_h100" in page
    said = run(capsys, "simulate", *words)
    for estimates in re.findall(r"tree/\S+ \d+, [^\n]*\d", said):
        assert estimates in page
    assert "Nothing was fitted to dgx_h100" in page
    assert "all_reduce on 64 ranks" in page
