"""Workloads on NCCL's model: times, dependencies, classes of ranks, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from unisono.cli import app as cli
from unisono.errors import MisuseError
from unisono.simulate import (
    Call,
    Device,
    Layout,
    Model,
    Task,
    TaskList,
    Workload,
    load_cluster,
    nccl,
    parse_workload,
    simulate_workload,
    simulate_workload_nccl,
    training_step,
)
from unisono.simulate import workload_nccl as under_test

H100 = nccl.find_machine("dgx_h100")
SMALL = Model("small", layers=4, hidden=512, heads=8, sequence=256, vocabulary=1024)
DUMPS = Path(__file__).with_name("flight_recorder_nccl")
FILE = """
format: 1
name: words
ranks: 16
implementation: nccl
communicators: {all: {size: 16}}
programs:
  - steps:
      - compute: {time: 1 ms, name: work}
      - all_reduce: {size: 64 MiB, over: all, after: [work]}
"""


def of_calls(calls: list[Call], ranks: int = 16, compute_us: float = 0.0) -> Workload:
    tasks = TaskList(range(ranks))
    last: list[int] = []
    for call in calls:
        if compute_us:
            last = [tasks.compute("work", 1e3 * compute_us, after=last)]
        last = [tasks.collective("call", call, "all", after=last)]
    return Workload("calls", ranks, {"all": [list(range(ranks))]}, [tasks])


def test_calls_take_what_the_model_predicts_after_what_they_wait_for() -> None:
    sizes = (1 << 20, 64 << 20)
    workload = of_calls([Call("all_reduce", size) for size in sizes], compute_us=100)
    predicted = [nccl.predict(H100, nccl.Call("all_reduce", size, 16, 2)) for size in sizes]
    result = simulate_workload_nccl(H100, workload)
    assert result.time_us == pytest.approx(200 + sum(one.time_us for one in predicted))
    assert result.low_us == pytest.approx(200 + sum(one.low_us for one in predicted))
    assert result.high_us == pytest.approx(200 + sum(one.high_us for one in predicted))
    assert result.compute_us == pytest.approx(200)
    assert result.exposed_us == pytest.approx(result.time_us - 200)
    assert [one[3] for one in result.algorithms] == [
        f"{one.choice.algorithm}/{one.choice.protocol}" for one in predicted
    ]


def test_streams_overlap_and_iterations_follow_each_other() -> None:
    workload = of_calls([Call("all_gather", 64 << 20)])
    workload.lists[0].compute("beside", 50e3)
    one = simulate_workload_nccl(H100, workload)
    assert one.exposed_us == pytest.approx(one.time_us - 50)
    workload.iterations = 3
    three = simulate_workload_nccl(H100, workload)
    assert three.time_us == pytest.approx(3 * one.time_us)
    assert three.last_iteration_us == pytest.approx(one.time_us)
    assert len(three.tasks) == 3 * len(one.tasks)


def test_a_collective_waits_for_the_last_of_its_group() -> None:
    workload = of_calls([Call("all_reduce", 1 << 20)], ranks=8)
    alone = simulate_workload_nccl(H100, workload).time_us
    late, rest = TaskList([3]), TaskList([0, 1, 2, 4, 5, 6, 7])
    task = late.compute("late", 500e3)
    late.collective("call", Call("all_reduce", 1 << 20), "all", after=[task])
    rest.collective("call", Call("all_reduce", 1 << 20), "all")
    result = simulate_workload_nccl(
        H100, Workload("late", 8, {"all": [list(range(8))]}, [late, rest])
    )
    assert result.time_us == pytest.approx(500 + alone)
    assert result.simulated_ranks == 2


def called(name: str, collective: str) -> Task:
    return Task("collective", name, call=Call(collective, 8), communicator="all")


LAYOUTS = [
    Layout(tensor=4, pipeline=2, replicate=2),
    Layout(pipeline=4, virtual=1, shard=4),
    Layout(pipeline=2, virtual=2, context=2, replicate=4),
    Layout(tensor=2, shard=4, replicate=2),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_ranks_in_the_same_state_stand_for_all(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = SMALL.sequence * layout.shard * layout.replicate * 4
    workload = training_step(SMALL, layout, Device(tflops=1), global_batch_tokens=tokens)
    few = simulate_workload_nccl(H100, workload)
    monkeypatch.setattr(
        under_test._Graph, "_classes", lambda graph: {rank: rank for rank in graph.list_of}
    )
    every = simulate_workload_nccl(H100, workload)
    assert few.simulated_ranks < every.simulated_ranks == layout.ranks
    assert few.time_us == pytest.approx(every.time_us)
    assert few.compute_us == pytest.approx(every.compute_us)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_where_kernels_are_slow_both_simulators_agree(layout: Layout) -> None:
    tokens = SMALL.sequence * layout.shard * layout.replicate * 4
    slow = Device(tflops=0.002)
    workload = training_step(SMALL, layout, slow, global_batch_tokens=tokens, recompute=False)
    events = simulate_workload(load_cluster("dgx_h100"), workload)
    model = simulate_workload_nccl(H100, workload)
    assert model.compute_us == pytest.approx(events.compute_us)
    assert model.time_us == pytest.approx(events.time_us, rel=0.02)


def test_traces_run_on_it() -> None:
    from unisono.simulate import load_workload

    result = simulate_workload_nccl(nccl.find_machine("dgx_h200"), load_workload(DUMPS))
    assert result.ranks == 4
    assert result.low_us < result.time_us < result.high_us


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (
            Workload("w", 2, {"all": [[0, 1]]}, [
                TaskList([0], [called("a", "all_reduce")]),
                TaskList([1], [called("b", "all_gather")]),
            ]),
            r"call 0 over 'all' is \('all_\w+', 8\) on rank \d \([ab]\) and \('all_\w+', 8\) on",
        ),
        (
            Workload("w", 2, {"all": [[0, 1]]}, [
                TaskList([0], [called("a", "all_reduce")]),
            ]),
            "rank 1 is in a group of 'all', and has no all_reduce",
        ),
        (
            Workload("w", 2, {}, [TaskList([0], [Task("send", "s", peer=1, size_bytes=8)]),
                                  TaskList([1], [Task("compute", "c", duration_ns=1)])]),
            "rank 0 waits in send 's' for others that do not come",
        ),
        (
            Workload("w", 2, {}, [
                TaskList([0], [Task("send", "s", peer=1), Task("recv", "r", peer=1)]),
                TaskList([1], [Task("send", "s", peer=0), Task("recv", "r", peer=0)]),
            ]),
            "rank 0 waits in send 's' for others that do not come, as tasks wait for each other",
        ),
        (
            Workload("w", 1, {"all": [[0]]}, [
                TaskList([0], [called("a", "scatter")]),
            ]),
            "NCCL's model has no scatter; it has all_reduce",
        ),
        (Workload("w", 1, {}, [TaskList([1], [Task("compute", "c")])]), "rank 1 has tasks; there"),
        (
            Workload("w", 2, {"all": [[1]]}, [
                TaskList([0], [called("a", "all_reduce")]),
            ]),
            "rank 0 has a task \\(a\\) over 'all', and is in none of its groups",
        ),
    ],
    ids=["calls", "missing", "unreceived", "cycle", "unknown", "outside", "group"],
)  # fmt: skip
def test_what_cannot_run_is_named(workload: Workload, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        simulate_workload_nccl(H100, workload)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["unisono", "simulate", *words])
        patch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as ended:
            cli.main()
    printed = capsys.readouterr()
    code = ended.value.code
    return code if isinstance(code, int) else 0, printed.out + printed.err


def test_a_word_in_the_file_and_an_option_mean_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step.yaml"
    path.write_text(FILE)
    assert parse_workload(FILE).implementation == "nccl"
    code, said = run(capsys, "--workload", str(path), "--json", "-")
    assert code == 0, said
    document = json.loads(said)
    assert document["model"] == "nccl"
    path.write_text(FILE.replace("implementation: nccl\n", ""))
    code, other = run(capsys, "--workload", str(path), "--implementation", "nccl", "--json", "-")
    assert code == 0, other
    assert json.loads(other) == document
    path.write_text(FILE)
    code, shown = run(capsys, "--workload", str(path))
    assert code == 0
    assert "by NCCL's intervals" in shown


@pytest.mark.parametrize(
    "words", [("--explain",), ("--noise", "0.1"), ("--model", "flows"),
              ("--timeline", "t.json")], ids=lambda words: words[0],
)  # fmt: skip
@pytest.mark.parametrize("by_option", [True, False])
def test_what_it_cannot_honour_is_refused(
    words: tuple[str, ...], by_option: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "step.yaml"
    path.write_text(FILE.replace("implementation: nccl\n", "") if by_option else FILE)
    option = ("--implementation", "nccl") if by_option else ()
    code, said = run(capsys, "--workload", str(path), *option, *words)
    assert code == 2, said
    assert f"{words[0]} cannot go with" in " ".join(said.split())


def test_the_page_has_a_time_line_and_costs_by_communicator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, page = tmp_path / "step.yaml", tmp_path / "page.html"
    path.write_text(
        "format: 1\nname: step\nimplementation: nccl\ntraining:\n  model: gpt-125m\n"
        "  layout: {tensor: 4, replicate: 2}\n  device: h100\n  global_batch_tokens: 8192\n"
    )
    code, said = run(capsys, "--workload", str(path), "--html", str(page))
    assert code == 0, said
    html = page.read_text()
    headings = re.findall(r"<h2>(.*?)</h2>", html)
    # MFU comes first, then where the time goes.
    assert headings[:3] == ["Training", "Where rank 0&#39;s time goes", "Cost by communicator"]
    assert html.index("MFU (%)") < html.index("tokens a second")
    assert "time (s)" in html
    assert "Streams of rank 0" in html
    for stream in ("tensor", "replicate", "compute"):
        assert f">{stream}</text>" in html


def test_traces_of_nccl_run_on_its_model_unless_events_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def model_of(*words: str) -> str:
        code, said = run(capsys, "--workload", *words, "--json", "-")
        assert code == 0, said
        model: str = json.loads(said)["model"]
        return model

    gloo = str(DUMPS.with_name("flight_recorder_gloo"))
    assert model_of(str(DUMPS), "--cluster", "dgx_h200") == "nccl"
    assert model_of(str(DUMPS), "--cluster", "dgx_h200", "--model", "loggops") == "loggops"
    assert model_of(str(DUMPS), "--cluster", "dgx_h200", "--noise", "0.1") == "loggops"
    # NCCL's model does not know this cluster, nor Gloo.
    assert model_of(str(DUMPS), "--cluster", "hgx_h200_4") == "loggops"
    assert model_of(gloo, "--cluster", "dgx_h100") == "loggops"


def test_a_machine_that_only_nccls_model_knows_takes_a_file_with_the_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step.yaml"
    path.write_text(FILE)
    code, said = run(capsys, "--workload", str(path), "--cluster", "hgx_b200")
    assert code == 0, said
