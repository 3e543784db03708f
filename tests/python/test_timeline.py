"""Time-lines: what Perfetto's reader of trace-event JSON asks for."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

import itertools

from unisono.simulate import (
    Call,
    Device,
    Layout,
    TaskList,
    Workload,
    load_cluster,
    simulate,
    simulate_workload,
    training_step,
)

CLUSTER = load_cluster("dgx_h100")


def check(path: Path) -> tuple[dict[int, str], dict[tuple[int, int], str]]:
    """Names of processes and threads, of a file that is as it must be."""
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    processes: dict[int, str] = {}
    threads: dict[tuple[int, int], str] = {}
    bars: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    arrows: dict[int, list[str]] = defaultdict(list)
    for event in events:
        where = event["pid"], event["tid"]
        if event["name"] == "process_name":
            assert event["pid"] not in processes
            processes[event["pid"]] = event["args"]["name"]
        elif event["name"] == "thread_name":
            assert where not in threads
            threads[where] = event["args"]["name"]
        elif event["ph"] == "X":
            bars[where].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] in "sf":
            arrows[event["id"]].append(event["ph"])
    assert all(ends == ["s", "f"] for ends in arrows.values())
    assert len(set(threads.values())) <= len(threads)
    assert len({tid for _, tid in threads}) == len(threads)
    assert set(bars) <= set(threads)
    assert {pid for pid, _ in threads} == set(processes)
    for slices in bars.values():
        slices.sort()
        for before, after in itertools.pairwise(slices):
            # Picoseconds are written in microseconds.
            assert after[0] >= before[1] - 2e-6
    return processes, threads


def test_ranks_and_thread_blocks_have_names(tmp_path: Path) -> None:
    path = tmp_path / "ring.json"
    simulate(
        CLUSTER, "all_reduce", "ring", size_bytes=1 << 20, ranks=16, channels=2, calls=2,
        timeline=str(path),
    )  # fmt: skip
    processes, threads = check(path)
    assert processes[1] == "rank 0, node 0"
    assert processes[16] == "rank 15, node 1"
    assert {name for (pid, _), name in threads.items() if pid == 1} == {
        "thread block 0", "thread block 1",
    }  # fmt: skip


@pytest.mark.slow
def test_streams_have_names_and_their_bars_do_not_overlap(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    layout = Layout(tensor=2, pipeline=2, replicate=2)
    step = training_step("gpt-125m", layout, Device(tflops=400), global_batch_tokens=16384)
    simulate_workload(CLUSTER, step, timeline=str(path))
    processes, threads = check(path)
    assert len(processes) == 8
    names = set(threads.values())
    assert {"compute", "tensor", "replicate", "send_forward"} <= names
    assert "tensor, thread block 0" in names


def test_more_thread_blocks_than_lines_of_a_stream_do_not_overlap(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    call = Call("all_to_all", 1 << 20, "direct", channels=12)
    tasks = TaskList(range(8))
    for stream in ("first", "second"):
        tasks.collective("exchange", call, "world", stream=stream)
    world = {name: [list(range(8))] for name in ("world",)}
    simulate_workload(CLUSTER, Workload("two", 8, world, [tasks]), timeline=str(path))
    _, threads = check(path)
    blocks = {name for name in threads.values() if name.startswith("first, thread block")}
    assert len(blocks) > 64
    assert not any(name.endswith(")") for name in blocks)


def test_names_may_have_any_letters(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    tasks = TaskList([0])
    tasks.compute('a "quoted"\\ name\n', 1000, stream='s"1')
    simulate_workload(CLUSTER, Workload("odd", 1, lists=[tasks]), timeline=str(path))
    _, threads = check(path)
    assert list(threads.values()) == ['s"1']
    events = json.loads(path.read_text())["traceEvents"]
    assert 'a "quoted"\\ name\n' in {event["name"] for event in events}
