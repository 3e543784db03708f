"""Synthesis: link files, plans that are found, the exact solver's known optima, the command."""

import json
import sys
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner
from unisono import lang, plans
from unisono.cli.app import app
from unisono.errors import MachineError, MisuseError

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from unisono.synthesize import builtin_links, load_links, pareto, parse_links, solve, synthesize

MESH = """
format: 1
name: small
description: a grid with a switch beside it
sources: {us: made up}
ranks: 6
switches: 1
links:
  - {grid: [2, 3], latency: "1 us [us]", bandwidth: "10 GB/s [us]"}
  - {between: [[0, 5], s0], latency: "2 us [us]", bandwidth: "20 GB/s [us]", lanes: 2}
  - {from: 0, to: [4, 5], latency: "1 us [us]", bandwidth: "5 GB/s [us]"}
"""

RING = """
format: 1
name: ring
description: four in a ring
sources: {us: made up}
ranks: 4
links:
  - {ring: [0, 1, 2, 3], latency: "1 us [us]", bandwidth: "10 GB/s [us]"}
"""


def invoke(*arguments):
    result = CliRunner().invoke(app, ["plan", "synthesize", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def check_on_host(plan, count=7):
    """Runs a plan and compares with NumPy."""
    rng = np.random.default_rng(5)
    inputs = [rng.integers(-99, 99, plan.input_blocks(rank) * count) for rank in range(plan.ranks)]
    total = np.sum(inputs, axis=0)
    outputs = lang.run(plan, inputs)
    for rank, output in enumerate(outputs):
        wanted = {
            "all_gather": lambda rank=rank: np.concatenate(inputs),
            "reduce_scatter": lambda rank=rank: total[rank * count : (rank + 1) * count],
            "all_reduce": lambda rank=rank: total,
        }[plan.collective]()
        np.testing.assert_array_equal(output, wanted)


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_plan_for_a_file_of_links_is_proved_and_runs(collective, in_place):
    found = synthesize(parse_links(MESH), collective, chunks=3, size_bytes=1 << 20)
    assert 0 < found.bound_us <= found.time_us
    plan = found.compile(in_place=in_place, instances=2).plan
    assert plan.verify().ok
    assert plans.Plan.from_json(plan.to_json()) == plan
    check_on_host(plan)


def test_links_that_come_with_the_package_are_served():
    assert set(builtin_links()) >= {"dgx_1", "mesh_8x8", "mesh_32x32", "torus_8x8"}
    found = synthesize(load_links("mesh_8x8"), "all_gather", chunks=1, tries=2)
    assert len(found.schedule.transfers) == 64 * 63
    # The corners have two links in: half a block's time for each of 63.
    assert found.time_us < 1.1 * found.bound_us
    assert found.compile().plan.verify().ok


def test_a_cluster_s_ports_nics_and_uplinks_are_links():
    links = load_links("dgx_h100", ranks=16)
    assert (links.ranks, links.switches) == (16, 2 + 16 + 1)
    found = synthesize(links, "all_gather", tries=1)
    between = [one for one in found.schedule.transfers if one[1] // 8 != one[2] // 8]
    assert len(between) == 16  # every block crosses once
    check_on_host(found.compile().plan)
    assert load_links("hgx_h200_4").ranks == 4


@pytest.mark.slow
def test_exact_synthesis_finds_the_known_optima_of_a_dgx_1():
    """SCCL's table: an all-gather of 2 steps, and one of 3 steps that uses all bandwidth."""
    pytest.importorskip("ortools")
    links = load_links("dgx_1")
    assert solve(links, "all_gather", steps=1, rounds=3, chunks=1) is None
    for steps, rounds, chunks in ((2, 2, 1), (3, 7, 6)):
        found = solve(links, "all_gather", steps=steps, rounds=rounds, chunks=chunks, workers=2)
        assert found is not None
        starts = {one[4] for one in found.schedule.transfers}
        assert len(starts) == steps
        check_on_host(found.compile().plan)


def test_the_pareto_set_of_a_ring_goes_from_the_least_steps_to_the_least_bytes():
    pytest.importorskip("ortools")
    ring = parse_links(RING)
    points = list(pareto(ring, "all_gather", most_chunks=2, workers=1))
    assert [(one.steps, one.cost) for one in points] == [(2, Fraction(3, 2))]
    assert points[0].found is not None
    for collective in ("reduce_scatter", "all_reduce"):
        (point,) = pareto(ring, collective, most_chunks=2, workers=1)
        assert point.found is not None
        check_on_host(point.found.compile().plan)


def test_without_the_solver_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(MachineError, match=r"pip install 'unisono\[synthesize\]'"):
        solve(load_links("dgx_1"), "all_gather", steps=2, rounds=2, chunks=1)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("grid: [2, 3]", "grid: [0, 3]", "greater than or equal to 1"),
        ("from: 0,", "from: 6,", "there is no rank 6; ranks are 0 to 5"),
        ("s0]", "s1]", "there is no switch s1; there are 1"),
        ("s0]", "x]", "links.1"),
        ("grid: [2, 3]", "tree: [2, 3]", "one of: between, from and to, ring, grid"),
        ("10 GB/s [us]", "10 GB/s", "with a source"),
        ("10 GB/s [us]", "10 GB/s [you]", "[you] is not among: us"),
        ("10 GB/s [us]", "0 GB/s [us]", "bandwidth of 0 GB/s"),
        ("lanes: 2", "lanes: 0", "has 0 lanes"),
        ("grid: [2, 3]", "grid: [2, 4]", "a grid of 2 x 4 is 8 ranks; there are 6"),
        ("grid: [2, 3]", "grid: [65536, 65536, 65536]", "281,474,976,710,656 ranks"),
        ("[[0, 5], s0]", f"[{[0] * 2000}, {[1] * 2000}]", "more than 2,097,152 links"),
        ("ranks: 6", "ranks: 7", "no path leads from rank 0 to rank 6"),
        ("format: 1", "format: 2", "format"),
    ],
)
def test_a_wrong_file_is_refused_with_the_value(old, new, complaint):
    assert old in MESH
    with pytest.raises(MisuseError) as failure:
        parse_links(MESH.replace(old, new))
    assert complaint in str(failure.value)


def test_wrong_numbers_are_refused():
    links = parse_links(MESH)
    with pytest.raises(MisuseError, match="whole multiples"):
        solve(parse_links(MESH.replace('"5 GB/s', '"7 GB/s')), "all_gather", steps=3, rounds=9,
              chunks=1)  # fmt: skip
    with pytest.raises(MisuseError, match="are not synthesized"):
        solve(links, "broadcast", steps=3, rounds=3, chunks=1)
    with pytest.raises(MisuseError, match="they must be 1 or more"):
        solve(links, "all_gather", steps=0, rounds=3, chunks=1)
    with pytest.raises(MisuseError, match="use the greedy one"):
        solve(load_links("mesh_32x32"), "all_gather", steps=62, rounds=600, chunks=1)
    with pytest.raises(MisuseError, match="links 'dgx_2'; did you mean dgx_1"):
        load_links("dgx_2")
    with pytest.raises(MisuseError, match="it says, 8"):
        load_links("dgx_1", ranks=4)


def test_the_command_writes_a_plan(tmp_path):
    file = tmp_path / "found.json"
    made = invoke("--cluster", "torus_8x8", "--collective", "reduce_scatter", "-o", file)
    assert made.exit_code == 0, made.output
    assert "none can be shorter than" in made.output
    assert plans.Plan.from_json(file.read_text(encoding="utf-8")).collective == "reduce_scatter"
    assert "dgx_1" in invoke("--list").output
    with pytest.raises(MisuseError, match="--cluster names"):
        invoke()
    with pytest.raises(MisuseError, match="no collective that is synthesized 'all_gathr'"):
        invoke("--cluster", "dgx_1", "--collective", "all_gathr")


@pytest.mark.slow
def test_the_command_shows_the_pareto_set():
    pytest.importorskip("ortools")
    shown = invoke("--cluster", "dgx_1", "--exact", "--chunks", 1, "--steps", 2, "--json", "-")
    (point,) = json.loads(shown.output)["points"]
    assert (point["steps"], point["rounds"], point["chunks"]) == (2, 2, 1)
