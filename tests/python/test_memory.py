"""What communicators report of their memory, held against what the process really holds."""

import json
import resource
import textwrap

import pytest
from unisono.launcher import launch

MIB = 1 << 20

RANK = """
    import json, sys, numpy as np, unisono
    from pathlib import Path

    def private():
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))

    # Pages of shared segments, each divided by who maps it.
    def shared():
        total, ours = 0, False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            words = line.split()
            if not words[0].endswith(":"):
                ours = "/unisono-" in line and "/unisono-board" not in line
            elif ours and words[0] == "Pss:":
                total += 1024 * int(words[1])
        return total

    def use(comm):
        for count in (2, 1000):
            x = np.ones(count * comm.size, np.float32)
            comm.all_reduce(x), comm.all_gather(x), comm.reduce_scatter(x), comm.all_to_all(x)
            comm.broadcast(x), comm.barrier()

    world = unisono.init()
    use(world)
    world.barrier()
    before = private(), shared()
    made = [world.split(0, world.rank) for _ in range(8)]
    for comm in made:
        use(comm)
    world.barrier()
    reports = [comm.memory() for comm in made]
    connections = sum(one["bytes"] for report in reports for one in report["connections"])
    Path(sys.argv[1] + str(world.rank)).write_text(json.dumps({
        "private": private() - before[0],
        "shared": shared() - before[1],
        "connections": connections,
        "other": sum(report["total_bytes"] for report in reports) - connections,
    }))
    world.barrier()
"""


def measured_on(nodes, tmp_path):
    """The sums over 4 ranks."""
    script = tmp_path / "rank.py"
    script.write_text(textwrap.dedent(RANK))
    outcome = launch([str(script), str(tmp_path / "rank")], 4, nodes=nodes, timeout=180)
    assert outcome.exit_code == 0
    ranks = [json.loads((tmp_path / f"rank{rank}").read_text()) for rank in range(4)]
    return {name: sum(rank[name] for rank in ranks) for name in ranks[0]}


@pytest.mark.slow
def test_between_nodes_all_is_private_and_reported(tmp_path):
    measured = measured_on(4, tmp_path)
    reported = measured["connections"] + measured["other"]
    assert measured["connections"] > MIB
    assert reported == pytest.approx(measured["private"], rel=0.35, abs=2 * MIB)


@pytest.mark.slow
def test_the_report_is_what_the_processes_grew_by(tmp_path):
    measured = measured_on(1, tmp_path)
    # Each end reports what it receives; PSS halves each page that both ends have touched.
    assert measured["connections"] == pytest.approx(measured["shared"], rel=0.1)
    assert measured["connections"] > 4 * MIB
    # The heap gives and takes in pieces of its own.
    assert measured["other"] < 1.5 * measured["private"] + 2 * MIB
    assert measured["private"] < 1.5 * measured["other"] + 2 * MIB


@pytest.mark.slow
def test_the_bench_measures_and_keeps_the_limit(tmp_path):
    rows = tmp_path / "rows.json"
    outcome = launch(
        ["bench/cpu/memory.py", "--communicators", "3", "--json", str(rows)], 3, timeout=180
    )
    assert outcome.exit_code == 0
    stages = json.loads(rows.read_text())["rows"]
    assert [row["communicators"] for row in stages] == [1, 1, 3, 3]
    assert 0 < stages[0]["reported_bytes"] < stages[-1]["reported_bytes"] < 64 * MIB
    assert stages[-1]["connections"] == 6


GROUPS = """
    import sys, numpy as np, unisono
    from pathlib import Path

    def resident():
        return Path("/proc/self/statm").read_text().split()[1]

    world = unisono.init()
    seen = []
    for turn in range(300):
        group = world.split(0)
        group.all_reduce(np.ones(1000, np.float32))
        group.destroy()
        if turn in (30, 299):
            seen.append(resident())
    Path(sys.argv[1] + str(world.rank)).write_text(" ".join(seen))
"""


def test_groups_that_come_and_go_leave_no_memory_taken(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(textwrap.dedent(GROUPS))
    outcome = launch([str(script), str(tmp_path / "pages")], 2, timeout=180)
    assert outcome.exit_code == 0
    for rank in range(2):
        early, late = map(int, (tmp_path / f"pages{rank}").read_text().split())
        assert (late - early) * resource.getpagesize() < 10 * MIB
