"""The JSON that the printer writes (held by tests/golden) against the published schema."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/schema/plan-v1.schema.json").read_text())
PLANS = sorted((ROOT / "tests/golden").glob("*.plan.json"))


def load(name: str) -> Any:
    return json.loads((ROOT / f"tests/golden/{name}.plan.json").read_text())


def is_valid(plan: Any) -> bool:
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(plan)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.name)
def test_printed_plans_are_valid(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)


def test_there_are_printed_plans() -> None:
    assert len(PLANS) >= 3


@pytest.mark.parametrize("field", sorted(SCHEMA["required"]))
def test_every_field_of_the_header_is_needed_and_no_other_is_allowed(field: str) -> None:
    plan = load("ring_all_reduce")
    del plan[field]
    assert not is_valid(plan)
    assert not is_valid({**load("ring_all_reduce"), field + "_": 1})


def step_of(plan: Any) -> Any:
    return plan["programs"][0]["thread_blocks"][0]["body"][0]


@pytest.mark.parametrize(
    "change",
    [
        {"operation": "snd"},
        {"operation": "recv"},
        {"operation": "copy"},
        {"operation": "signal"},
        {"count": 0},
        {"peers": [1]},
        {"unknown": 1},
        {"source": {"buffer": "input"}},
        {"source": {"buffer": "input", "index": {"k": 1}}},
        {"after": [{"thread_block": 1}]},
    ],
    ids=str,
)
def test_a_wrong_step_is_refused(change: dict[str, Any]) -> None:
    plan = load("ring_all_reduce")
    assert is_valid(copy.deepcopy(plan))
    step_of(plan).update(change)
    assert not is_valid(plan)


def test_loops_nest_twice_and_not_deeper() -> None:
    plan = load("ring_all_reduce")
    body = plan["programs"][0]["thread_blocks"][0]["body"]
    for depth in range(3):
        body[0] = {"loop": 2, "body": [body[0]]}
        assert is_valid(plan) == (depth < 2)
