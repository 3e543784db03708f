"""studies/selection/{grid,fit,table}.py: judging, fitting, a table of the fastest."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from unisono import _unisono as native
from unisono import plans

STUDY = Path(__file__).parents[2] / "studies" / "selection"


@pytest.fixture
def grids(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDY))
    import fit
    import grid

    yield grid, fit
    for name in ("grid", "fit"):
        del sys.modules[name]


def write_grid(file, time_of, passes_of=lambda time: [time, time]):
    """A grid of all-reduces on 4 ranks whose times a function of the candidate tells."""
    rows = []
    for size in (8, 1 << 20):
        for one in plans.candidates("all_reduce", size, plans.Placement(4)):
            time = time_of(one)
            rows.append(
                {
                    "ranks": 4, "nodes": 1, "collective": "all_reduce", "bytes": size,
                    "algorithm": one.algorithm, "protocol": one.protocol, "time_us": time,
                    "passes_us": passes_of(time), "turns": [8, 8],
                }
            )  # fmt: skip
    file.write_text(json.dumps({"machine": {}, "cores": 4, "delay": "", "rows": rows}))


def test_choices_are_right_where_times_are_the_models(grids, tmp_path, capsys):
    write_grid(tmp_path / "grid.json", lambda one: one.time_us)
    grids[0].check(tmp_path / "grid.json")
    assert "2 of 2 choices are within 10 % of the best: 100.0%" in capsys.readouterr().out


def test_choices_are_wrong_where_times_are_the_other_way_round(grids, tmp_path, capsys):
    write_grid(tmp_path / "grid.json", lambda one: 1 / one.time_us)
    grids[0].check(tmp_path / "grid.json")
    out = capsys.readouterr().out
    assert "0 of 2 choices" in out
    assert "one measurement's best in another: 100.0%" in out


def test_what_two_measurements_differ_by_is_told(grids, tmp_path, capsys):
    # In the second pass all is the other way round.
    write_grid(tmp_path / "grid.json", lambda one: one.time_us, lambda time: [time, 1 / time])
    grids[0].check(tmp_path / "grid.json")
    assert "one measurement's best in another: 0.0%" in capsys.readouterr().out


def test_the_source_has_the_extensions_parameters(grids):
    text = grids[1].MODEL.read_text()
    parameters = grids[1].read_parameters(text)
    assert parameters == native.cost_parameters()
    changed = np.array(parameters) * 2
    assert grids[1].read_parameters(grids[1].write_parameters(text, changed)) == pytest.approx(
        changed, rel=5e-3
    )


def test_times_are_linear_in_the_parameters(grids):
    point = (8, 2, "all_gather", 1 << 16)
    parameters = np.array(native.cost_parameters())
    whole = grids[1].terms_of(point, 1.0, parameters)
    parts = [grids[1].terms_of(point, 1.0, unit) for unit in np.eye(len(parameters))]
    for plan, time in whole.items():
        summed = sum(p * part[plan] for p, part in zip(parameters, parts, strict=True))
        assert summed == pytest.approx(time)


def test_a_fit_finds_back_to_the_parameters_that_made_the_times(grids, tmp_path):
    write_grid(tmp_path / "grid.json", lambda one: one.time_us)
    points = grids[1].read_points([tmp_path / "grid.json"])
    true = np.array(native.cost_parameters())
    assert points.loss(true) == 0
    # With dear messages of Simple the small call goes by another protocol.
    wrong = true.copy()
    wrong[0] *= 2.5
    assert points.loss(wrong) > 0
    assert points.loss(grids[1].search(points, wrong)) == 0


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDY))
    import table

    yield table
    for name in ("grid", "table"):
        del sys.modules[name]


def test_a_table_of_what_was_fastest_is_right(tables, tmp_path):
    # The other way round than the model has it.
    grid, table = tmp_path / "grid.json", tmp_path / "table.json"
    write_grid(grid, lambda one: 1 / one.time_us)
    table.write_text(json.dumps(tables.table_of(grid)))
    outcome = subprocess.run(
        [sys.executable, STUDY / "grid.py", "check", grid],
        env={**os.environ, "UNISONO_SELECTION_FILE": str(table)},
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert "2 of 2 choices are within 10 % of the best: 100.0%" in outcome.stdout, outcome.stderr


RING, TREE, PAT = ("ring", "simple"), ("tree", "ll"), ("pat", "simple")


def test_a_tables_rows_meet_where_two_plans_are_as_fast(tables):
    times = {100: {TREE: 1.0, RING: 4.0}, 10_000: {TREE: 40.0, RING: 10.0}}
    assert tables.rows_of(times) == [(0, 1000, TREE), (1001, 10_000, RING)]


def test_a_plan_that_is_almost_as_fast_is_kept(tables):
    times = {8: {TREE: 1.0, RING: 2.0}, 64: {TREE: 1.02, RING: 1.0}, 512: {TREE: 9.0, RING: 1.0}}
    assert [plan for _, _, plan in tables.rows_of(times)] == [TREE, RING]
    assert tables.plans_of(times) == [TREE, TREE, RING]


def test_plans_that_do_not_serve_both_sizes_meet_half_way(tables):
    times = {100: {PAT: 1.0}, 10_000: {RING: 1.0}}
    assert tables.rows_of(times) == [(0, 1000, PAT), (1001, 10_000, RING)]
