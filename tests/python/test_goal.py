"""GOAL schedules: of plans, and under every model of the network and in every report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unisono import _unisono as native
from unisono import cli, plans
from unisono.errors import MisuseError

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from unisono.simulate import (
    LogGops,
    goal_of_collective,
    goal_of_plan,
    load_cluster,
    read_goal,
    run_goal,
    simulate_goal,
    simulate_plan,
    workload_of_goal,
    write_goal,
)

COSTS = LogGops(latency_ns=2500, overhead_ns=300, gap_ns=20, gap_ns_per_byte=0.05)


def ring(ranks: int = 8, channels: int = 1) -> native.Plan:
    entry = plans.find_algorithm("ring_all_reduce")
    return entry.plan(native.Placement(ranks), channels=channels)


@pytest.mark.parametrize("name", ["ring_all_reduce", "direct_all_gather", "tree_all_reduce"])
@pytest.mark.parametrize("suffix", [".goal", ".bin"])
def test_a_plan_as_goal_comes_back_and_takes_the_same_time(
    tmp_path: Path, name: str, suffix: str
) -> None:
    cluster = load_cluster("dgx_h100")
    plan = plans.find_algorithm(name).plan(native.Placement(8), channels=2)
    schedule = goal_of_plan(cluster, plan, size_bytes=1 << 20)
    path = tmp_path / f"plan{suffix}"
    write_goal(schedule, path)
    again = read_goal(path)
    assert again.to_binary() == schedule.to_binary()
    assert run_goal(again, COSTS).ranks_us == run_goal(schedule, COSTS).ranks_us
    algorithm, _, collective = name.partition("_")
    same = goal_of_collective(
        cluster, collective, algorithm, size_bytes=1 << 20, ranks=8, channels=2
    )
    assert same.to_binary() == schedule.to_binary()


def test_goal_takes_as_long_as_the_plan_under_every_model() -> None:
    cluster = load_cluster("dgx_h100")
    plan = ring()
    schedule = goal_of_plan(cluster, plan, size_bytes=1 << 20)
    launch_us = cluster.file.protocols.simple.launch.value / 1000
    for model in ("loggops", "flows", "alpha_beta"):
        expected = simulate_plan(cluster, plan, size_bytes=1 << 20, model=model).time_us
        found = simulate_goal(cluster, schedule, "ring", model=model, explain=True)
        # A step that receives and sends is two tasks here: it pays both ends' bytes.
        assert expected - launch_us <= found.time_us * 1.001 <= 2 * expected
        assert sum(found.shares.values()) == pytest.approx(found.time_us)


def test_flows_of_goal_share_links() -> None:
    cluster = load_cluster("clos_three_layer")
    ranks = 2 * cluster.machine.ranks_per_node
    half = ranks // 2
    text = f"num_ranks {ranks}\n"
    for rank in range(ranks):
        way, peer = ("send", rank + half) if rank < half else ("recv", rank - half)
        word = "to" if way == "send" else "from"
        text += f"rank {rank} {{\nl1: {way} 1000000b {word} {peer} tag 1\n}}\n"
    schedule = native.GoalSchedule.read(text.encode())
    result = simulate_goal(cluster, schedule, "pairs", model="flows")
    alone_us = 1e6 / cluster.machine.nic_gb_s / 1000
    assert result.time_us > alone_us
    assert result.messages >= half


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("l1: recv 8b from -1 tag 1\n", r"rank 1, operation 0 receives from any rank"),
        ("l1: recv 8b from 0 tag -1\n", r"rank 1, operation 0 receives from any rank"),
        ("l1: recv 8b from 0 tag 1\nl2: calc 5\nl2 irequires l1\n", r"waits for the start"),
    ],
)
def test_what_workloads_cannot_say_is_refused(text: str, message: str) -> None:
    whole = f"num_ranks 2\nrank 0 {{\nsend 8b to 1 tag 1\n}}\nrank 1 {{\n{text}}}\n"
    with pytest.raises(MisuseError, match=message):
        workload_of_goal(native.GoalSchedule.read(whole.encode()), "x")


def test_what_goal_leaves_unordered_overlaps() -> None:
    text = "num_ranks 1\nrank 0 {\na: calc 1000\nb: calc 2000\nc: calc 500\nc requires a\n}\n"
    workload = workload_of_goal(native.GoalSchedule.read(text.encode()), "x")
    streams = [task.stream for task in workload.lists[0].tasks]
    assert streams[0] == streams[2] != streams[1]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code of a command, and what it prints on both streams, in one line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["unisono", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    printed = capsys.readouterr()
    code = ended.value.code
    return code if isinstance(code, int) else 0, " ".join((printed.out + printed.err).split())


def test_the_commands_write_and_show_goal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, goal = tmp_path / "ring.json", tmp_path / "ring.goal"
    plan.write_text(ring().to_json())
    assert run(capsys, "plan", "cost", str(plan), "--size", "64KiB", "--goal", str(goal))[0] == 0
    assert goal.read_text().startswith("num_ranks 8\n")
    page, timeline = tmp_path / "page.html", tmp_path / "run.json"
    code, shown = run(
        capsys, "simulate", "--workload", str(goal), "--model", "flows", "--explain",
        "--timeline", str(timeline), "--html", str(page),
    )  # fmt: skip
    assert code == 0
    assert "critical path" in shown
    assert "Critical path" in page.read_text()
    assert len(json.loads(timeline.read_text())["traceEvents"]) > 8


def test_what_the_commands_cannot_do_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, goal = tmp_path / "ring.json", tmp_path / "ring.goal"
    plan.write_text(ring().to_json())
    two = run(capsys, "plan", "cost", str(plan), "--size", "1KiB,2KiB", "--goal", str(goal))
    assert two[0] == 2
    assert "there are 2 sizes" in two[1]
    goal.write_text("num_ranks 1\nrank 0 {\ncalc 5\n}\n")
    words = ["simulate", "--workload", str(goal), "--loggops", "L=1us", "--explain"]
    code, said = run(capsys, *words)
    assert code == 2
    assert "--loggops runs a GOAL file as LogGOPSim does" in said


@pytest.mark.parametrize("source", ["named", "any"])
@pytest.mark.parametrize("order", ["as sent", "backwards"])
def test_messages_without_an_order_take_a_few_events_each(order, source):
    # All sends of a rank may begin at once, and wait for its cpu: each is tried about twice, not
    # once for each before it. Both times are those that trying all again and again gives.
    ranks = 24
    steps = range(1, ranks) if order == "as sent" else range(ranks - 1, 0, -1)
    lines = [f"num_ranks {ranks}"]
    for rank in range(ranks):
        lines.append(f"rank {rank} {{")
        lines += [f"s{d}: send 1024b to {(rank + d) % ranks} tag {d}" for d in range(1, ranks)]
        for d in steps:
            other = (rank - d) % ranks if source == "named" else -1
            lines.append(f"r{d}: recv 1024b from {other} tag {d}")
        lines.append("}")
    machine = native.Machine.log_gops(
        ranks, latency_ns=3700, overhead_ns=200, gap_ns=5, gap_ns_per_byte=0.04,
        overhead_ns_per_byte=0,
    )  # fmt: skip
    result = native.run_goal(machine, native.GoalSchedule.read("\n".join(lines).encode()))
    messages = ranks * (ranks - 1)
    assert result.messages == messages
    assert result.events <= 6 * messages
    assert (result.time_us, sum(result.ranks_us)) == pytest.approx((10.14116, 243.38784))


def test_more_ranks_than_any_node_has_run_under_log_gops() -> None:
    ranks = 3000
    lines = [f"num_ranks {ranks}"]
    for rank in range(ranks):
        lines.append(f"rank {rank} {{")
        lines.append(f"s: send 8b to {(rank + 1) % ranks} tag 1")
        lines.append(f"r: recv 8b from {(rank - 1) % ranks} tag 1")
        lines.append("}")
    schedule = native.GoalSchedule.read("\n".join(lines).encode())
    # o at either end, and L.
    result = run_goal(schedule, LogGops(latency_ns=1000, overhead_ns=200))
    assert result.messages == ranks
    assert set(result.ranks_us) == {1.4}
