"""`unisono chaos`: seeds in workers of its own, and what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from python.chaos_players import exit_at_once, play_but_crash_at_5, play_wrong
from typer.testing import CliRunner
from unisono.cli.app import app
from unisono.cli.chaos_workers import MOST_STORIES, Found, Kind, play_all


def test_seeds_are_played_and_added_up(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = CliRunner().invoke(app, ["chaos", "--seeds", "1..6", "--jobs", "1", "--json", str(out)])
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    assert (found["seeds"], found["wrong"], found["repeated"]) == (6, {}, 0)
    assert found["calls"] > 100
    assert any(place.startswith("init/control.") for place in found["places"])
    assert any(place.endswith("/transport.put") for place in found["places"])
    assert found["shapes"] == {"4 on 2": 2, "8 on 2": 2, "8 on 3": 2}


def test_a_crash_names_its_seed_and_keeps_all_other_results() -> None:
    told: list[int] = []
    found = play_all(
        iter(range(1, 11)),
        play_but_crash_at_5,
        2,
        math.inf,
        lambda so_far: told.append(so_far.seeds),
    )
    assert (found.seeds, found.calls) == (10, 1 + 2 + 3 + 4 + 6 + 7 + 8 + 9 + 10)
    assert found.wrong == {5: ["the process that played it ended with SIGSEGV"]}
    assert told == list(range(1, 11))


def test_each_seed_may_crash() -> None:
    found = play_all(iter((1, 2)), exit_at_once, 1, math.inf, lambda so_far: None)
    assert found.wrong == {
        seed: ["the process that played it ended with exit code 3"] for seed in (1, 2)
    }


def test_only_the_first_stories_are_made_shorter() -> None:
    found = play_all(iter(range(MOST_STORIES + 2)), play_wrong, 1, math.inf, lambda so_far: None)
    assert list(found.stories.values()) == ["True"] * MOST_STORIES + ["False"] * 2


def test_no_seed_begins_after_the_end() -> None:
    assert play_all(iter(range(10)), play_wrong, 2, -math.inf, lambda so_far: None) == Found()


@pytest.mark.parametrize(
    ("ranks", "nodes", "shapes"),
    [
        (None, None, {(4, 2), (8, 2), (8, 3)}),
        (None, 3, {(4, 3), (8, 3)}),
        (5, None, {(5, 2)}),
        (1, None, {(1, 1)}),
        (8, 4, {(8, 4)}),
    ],
)
def test_shapes_come_by_turns_unless_they_are_given(
    ranks: int | None, nodes: int | None, shapes: set[tuple[int, int]]
) -> None:
    kind = Kind(ranks, nodes, operations=20, strikes=1)
    assert {kind.shape_of(seed) for seed in range(12)} == shapes
    # Those that are played twice are of each shape, too.
    assert {kind.shape_of(seed) for seed in range(0, 96, 16)} == shapes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "x"], "--seeds x: write A..B"),
        (["--seeds", "5..3"], "the last seed, 3, is below the first, 5"),
        (["--seeds", "1.."], "has no end"),
        (["--ranks", "2", "--nodes", "3"], "2 ranks can be on at most 2 nodes"),
        (["--nodes", "5"], "4 ranks can be on at most 4 nodes"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["chaos", *arguments])
    assert done.exception is not None
    assert said in str(done.exception)
