"""`unisono chaos`: seeds in workers of its own, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner
from unisono.cli.app import app


def test_seeds_are_played_and_added_up(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = CliRunner().invoke(app, ["chaos", "--seeds", "1..6", "--jobs", "1", "--json", str(out)])
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    assert (found["seeds"], found["wrong"], found["repeated"]) == (6, {}, 0)
    assert found["calls"] > 100
    assert any(place.startswith("init/control.") for place in found["places"])
    assert any(place.endswith("/transport.put") for place in found["places"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "x"], "--seeds x: write A..B"),
        (["--seeds", "5..3"], "the last seed, 3, is below the first, 5"),
        (["--seeds", "1.."], "has no end"),
        (["--ranks", "2", "--nodes", "3"], "2 ranks can be on at most 2 nodes"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["chaos", *arguments])
    assert done.exception is not None
    assert said in str(done.exception)
