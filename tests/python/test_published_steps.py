"""Predicted training steps against published ones, a test for each row.

Bounds are a little above the errors of studies/results/training_steps.txt, so that a change of a
model shows: one that is larger is a loss, and one that is smaller lets its bound be lowered.
"""

import runpy
from pathlib import Path
from typing import Any

import pytest
from unisono.simulate.plan_training.search import KERNELS_OFF

STUDY = runpy.run_path(
    str(Path(__file__).parents[2] / "studies" / "simulator" / "training_steps.py")
)
DOCUMENT: dict[str, Any] = STUDY["read_table"]()
ROWS = {row["name"]: row for row in DOCUMENT["steps"]}
# Percent, by row.
BOUNDS = {
    "llama-8b-8": 5, "llama-8b-128": 4, "llama-70b-64": 3, "llama-70b-512": 4, "gpt-175b-128": 4,
    "nemotron-15b-16": 3, "mpt-7b-8": 18, "llama-405b-576": 3, "llama-405b-2304": 3,
    "llama-405b-16384": 8, "nemotron-340b-128": 6, "grok-512": 7, "mpt-30b-32": 5,
    "mpt-70b-64": 17,
}  # fmt: skip
# Rows that ran on 80 GB although the memory that is predicted for them is more.
COUNTED_TOO_LARGE = {"llama-405b-16384", "nemotron-340b-128"}
# What a GPU has, in GB.
CAPACITY_GB = 80


@pytest.mark.parametrize("name", ROWS)
def test_a_published_step_is_predicted_within_its_bound(name: str) -> None:
    one = STUDY["predict"](DOCUMENT, ROWS[name])
    assert abs(100 * one.error) <= BOUNDS[name], f"{one.error:+.1%}"
    assert (one.needs_gb > CAPACITY_GB) == (name in COUNTED_TOO_LARGE), one.needs_gb


def test_every_row_has_a_source_and_one_number() -> None:
    for row in DOCUMENT["steps"]:
        assert row["source"] in DOCUMENT["sources"]
        assert row["model"] in DOCUMENT["models"]
        assert sum(key in row for key in ("step_s", "tokens_per_s", "model_tflops_per_gpu")) == 1
    assert len(ROWS) == len(DOCUMENT["steps"]) == len(BOUNDS)


def test_no_left_out_row_is_fitted() -> None:
    fit, left_out = (set(DOCUMENT["split"][part]) for part in ("fit", "left_out"))
    assert not fit & left_out
    assert fit | left_out == set(ROWS)
    assert len(left_out) >= 4
    # Whole models are left out, so that none of a fitted model's steps is among them.
    models = [{ROWS[name]["model"] for name in part} for part in (fit, left_out)]
    assert not models[0] & models[1]


def test_the_factor_of_kernels_is_the_fitted_rows() -> None:
    """Their median error is nearly nothing: the left-out rows have no say in it."""
    errors = sorted(
        STUDY["predict"](DOCUMENT, ROWS[name]).error for name in DOCUMENT["split"]["fit"]
    )
    assert abs(errors[len(errors) // 2]) < 0.015


def test_goal_of_twelve_percent_holds_where_it_is_said_to() -> None:
    rows = STUDY["predict_all"]()
    assert sum(abs(one.error) <= 0.12 for one in rows) >= 12
    assert sum(abs(one.error) <= 0.12 for one in rows if not one.is_fitted) >= 6


def test_intervals_are_as_wide_as_four_of_five_steps_need() -> None:
    needed = STUDY["held_by"](STUDY["predict_all"]())
    assert needed == pytest.approx(KERNELS_OFF, abs=0.03)


def test_errors_are_below_half_of_those_at_the_speed_that_was_assumed_before() -> None:
    def median(speed: float) -> float:
        off = sorted(abs(one.error) for one in STUDY["predict_all"](speed) if not one.is_fitted)
        middle: float = off[len(off) // 2]
        return middle

    assert median(0) < 0.5 * median(660)
