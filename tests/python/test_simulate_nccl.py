"""`unisono simulate` and `calibrate` with NCCL's model: every option is honoured or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unisono import cli

pytest.importorskip("pydantic")
pytest.importorskip("yaml")
pytest.importorskip("scipy")

from unisono.simulate import load_cluster, nccl, to_yaml

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ROOT / "studies" / "simulator" / "public_nccl" / "8xa100.json"
NCCL = ("--implementation", "nccl")
LOG = "# Collective test starting: all_reduce_perf\n" + "".join(
    f"#  Rank {r:2} Group  0 Pid 1 on node0 device {r}\n" for r in range(8)
) + "".join(
    f"{1 << bits} {1 << bits - 2} float sum -1 {30 + (1 << bits) / 2e5:.2f} 1 1 0\n"
    for bits in range(10, 30, 4)
)  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code of a command, and what it prints on both streams, in one line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["unisono", *words])
        patch.setenv("COLUMNS", "1000")
        with pytest.raises(SystemExit) as ended:
            cli.main()
    printed = capsys.readouterr()
    code = ended.value.code
    return code if isinstance(code, int) else 0, " ".join((printed.out + printed.err).split())


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    """What `unisono simulate all_reduce` on 16 GPUs of two nodes writes."""
    code, said = run(capsys, "simulate", "all_reduce", *NCCL, "-n", "16", *words, "--json", "-")
    assert code == 0, said
    document: dict[str, object] = json.loads(said)
    return document


@pytest.mark.parametrize(
    "words",
    [
        ("--channels", "3"), ("--model", "flows"), ("--timeline", "t.json"), ("--noise", "0.1"),
        ("--use",), ("--goal", "a.goal"), ("--loggops", "L=1us"),
        ("--skip", "ring"), ("--sources",),
    ],
)  # fmt: skip
def test_what_nccls_model_cannot_honour_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(capsys, "simulate", "all_reduce", *NCCL, *words)
    assert code == 2
    assert f"{words[0]} cannot go with --implementation nccl: " in said


def test_algorithms_and_protocols_are_forced(capsys: pytest.CaptureFixture[str]) -> None:
    def ways(*words: str) -> list[tuple[str, str]]:
        found = simulated(capsys, *words)["results"]
        assert isinstance(found, list)
        times = [one["time_us"] for one in found]
        assert times == sorted(times)
        return [(one["algorithm"], one["protocol"]) for one in found]

    assert ways() == [("tree", "ll128")]
    assert ways("--algorithm", "ring", "--protocol", "simple") == [("ring", "simple")]
    # What is left open NCCL chooses, as with NCCL_ALGO or NCCL_PROTO alone.
    assert ways("--algorithm", "ring") == [("ring", "ll128")]
    assert ways("--protocol", "ll") in ([("ring", "ll")], [("tree", "ll")])
    every = ways("--algorithm", "all", "--protocol", "all")
    assert len(every) == 7
    assert ("nvls_tree", "simple") in every


def test_what_nccl_cannot_run_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    base = ("simulate", "all_reduce", *NCCL, "-n", "16")
    code, said = run(capsys, *base, "--algorithm", "nvls")
    assert code == 2
    assert "does not run all_reduce of 16 ranks on 2 nodes of dgx_h100 with nvls; it can" in said
    code, said = run(capsys, *base, "--algorithm", "nvls,ring")
    assert code == 0
    assert "with nvls; it can take ring/ll, " in said
    assert "there is no algorithm 'rig'" in run(capsys, *base, "--algorithm", "rig")[1]
    assert "there is no protocol 'll64'" in run(capsys, *base, "--protocol", "ll64")[1]


def test_explain_splits_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(capsys, "--explain")
    parts, results = found["parts_us"], found["results"]
    assert isinstance(parts, dict)
    assert isinstance(results, list)
    assert sum(parts.values()) == pytest.approx(results[0]["time_us"])
    assert {"launch", "hops inside nodes", "hops between nodes"} <= set(parts)
    assert simulated(capsys)["parts_us"] == {}
    machine = nccl.find_machine("dgx_h100")
    exchange = nccl.predict(machine, nccl.Call("all_to_all", 1 << 20, 16, 2))
    parts = nccl.parts_us(machine, exchange)
    assert sum(parts.values()) == pytest.approx(exchange.time_us)
    assert parts["peers on other nodes"] > parts["peers inside nodes"] > 0


def test_measurements_of_nccl_are_held_against_nccls_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "out.log"
    log.write_text(LOG)
    base = ("simulate", "--cluster", "dgx_a100")
    for words in ((*NCCL, "--against", str(PUBLIC)), (*NCCL, "--against", str(log)),
                  ("--against", str(log))):  # fmt: skip
        code, said = run(capsys, *base, *words)
        assert code == 0, said
        assert "NCCL's model of dgx_a100: median error" in said
    # An option that the event simulator has alone asks for it.
    code, said = run(capsys, *base, *NCCL, "--against", str(PUBLIC), "--model", "loggops")
    assert code == 0
    assert "The event simulator's loggops on dgx_a100" in said
    code, said = run(capsys, *base, "--against", str(log), "--model", "flows")
    assert code == 2
    assert "is nccl-tests' output, which NCCL's model takes; leave out --model" in said


@pytest.mark.parametrize("sizes", ["1MiB", "64KiB,1MiB,64MiB"], ids=["one", "three"])
def test_a_page_has_intervals_as_a_band(
    sizes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    words = ("simulate", "all_reduce", *NCCL, "-n", "16", "--size", sizes, "--html", str(page))
    code, said = run(capsys, *words)
    assert code == 0, said
    html = page.read_text()
    if "," in sizes:
        # In two widths, each with one line and one band around it.
        assert html.count("<title>predicted: interval</title>") == 2
        assert html.count("<polyline") == 2
    else:
        assert "predicted, from" in html
        assert "predicted, to" in html


def test_a_page_of_errors_has_what_was_measured_as_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, page = tmp_path / "out.log", tmp_path / "page.html"
    log.write_text(LOG)
    code, said = run(
        capsys, "simulate", "--cluster", "dgx_a100", "--against", str(log), "--html", str(page)
    )
    assert code == 0, said
    html = page.read_text()
    rows = sum(line.strip()[:1].isdigit() for line in LOG.splitlines())
    assert rows > 1
    assert html.count("<title>measured: ") == 2 * rows
    assert "predicted: interval" in html


def test_names_and_files_of_the_other_simulator_are_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, machine, log = (tmp_path / name for name in ("c.yaml", "m.yaml", "out.log"))
    cluster.write_text(to_yaml(load_cluster("dgx_a100").file))
    machine.write_text(nccl.machine_to_yaml(nccl.find_machine("dgx_a100")))
    log.write_text(LOG)
    alone = ("simulate", "all_reduce", "-n", "8", "--cluster")
    for words, message in [
        ((*alone, "hgx_b200"), "'hgx_b200' is a machine of NCCL's model alone: add --impl"),
        ((*alone, str(machine)), "has format 2, which is a machine of NCCL's model: add --impl"),
        ((*alone, "hgx_h200_4", *NCCL), "'hgx_h200_4' is a cluster of the event simulator alone"),
        ((*alone, str(cluster), *NCCL), "has format 1, which is a cluster of the event simul"),
        (("simulate", "--cluster", "hgx_h200_4", "--against", str(log)), "is a cluster of the ev"),
        (("calibrate", str(log), "--cluster", str(cluster)), "has format 1, which is a cluster"),
        ((*alone, "dgx_h10"), "there is no cluster 'dgx_h10'"),
    ]:
        code, said = run(capsys, *words)
        assert code == 2, said
        assert message in said


def test_measurements_leave_nothing_to_choose(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("--algorithm", "ring"), ("--protocol", "ll"), ("--channels", "2"),
                  ("--explain",), ("--timeline", "t.json"), ("--size", "1MiB")):  # fmt: skip
        code, said = run(capsys, "simulate", *NCCL, "--against", str(PUBLIC), *words)
        assert code == 2
        assert f"{words[0]} cannot go with --against: " in said


def test_others_have_measurements_alone(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, "simulate", "all_reduce", "--implementation", "openmpi")
    assert code == 2
    assert "--implementation openmpi says whose measurements --against takes" in said


def bench_json(path: Path, implementation: str) -> Path:
    """A file that `unisono bench --json` could have written on four GPUs."""
    rows = [
        {
            "collective": "all_reduce", "bytes": 1 << bits, "type": "float32", "ranks": 4,
            "nodes": 1, "implementation": implementation, "algorithm": "ring",
            "protocol": "simple", "time_us": 20 + (1 << bits) / 2e5, "calls": 1,
            "algbw_gb_s": 1.0, "busbw_gb_s": 1.0, "wrong": 0,
        }
        for bits in range(12, 28, 2)
    ]  # fmt: skip
    path.write_text(json.dumps({"request": {"iterations": 1}, "rows": rows}))
    return path


def test_a_benchs_json_calibrates_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(bench_json(tmp_path / "bench.json", "unisono"))
    for cluster in ("hgx_h200_4", "dgx_h100"):
        code, said = run(capsys, "calibrate", file, "--cluster", cluster, "--rounds", "1",
                         "--number", "node.bandwidth", "--model", "loggops")  # fmt: skip
        assert code == 0, said
        assert "held back points" in said
    theirs = str(bench_json(tmp_path / "nccl.json", "nccl"))
    code, said = run(capsys, "calibrate", theirs, "--cluster", "dgx_h100", *NCCL)
    assert code == 0, said
    assert "8 points of dgx_h100" in said
    # A name that is a machine's alone needs no word more.
    code, said = run(capsys, "calibrate", theirs, "--cluster", "hgx_b200")
    assert code == 0, said
    code, said = run(capsys, "calibrate", theirs, "--cluster", "hgx_b200", "--skip", "tree")
    assert code == 2
    assert "leave out --skip, which the event simulator has alone" in said


def test_loggops_says_that_it_does_not_see_uplinks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ("simulate", "all_gather", "--cluster", "clos_three_layer", "--algorithm", "ring")
    unseen = "does not see the uplinks of rack, which clos_three_layer lists"
    for model in ("loggops", "alpha_beta"):
        assert f"{model} {unseen}" in run(capsys, *base, "-n", "32", "--model", model)[1]
        page = tmp_path / f"{model}.html"
        run(capsys, *base, "-n", "32", "--model", model, "--html", str(page))
        assert unseen in page.read_text()
    # Two nodes are one rack.
    for words in (("-n", "16"), ("-n", "32", "--model", "flows")):
        code, said = run(capsys, *base, *words)
        assert code == 0
        assert "does not see" not in said
    goal = tmp_path / "a.goal"
    run(capsys, *base, "-n", "32", "--goal", str(goal))
    for words in ((), ("--explain",)):
        workload = ("simulate", "--workload", str(goal), "--cluster", "clos_three_layer", *words)
        assert unseen in run(capsys, *workload)[1]
        assert unseen in json.loads(run(capsys, *workload, "--json", "-")[1])["unseen"]
