"""Random edits of the library's programs: none gives a plan that is wrong.

studies/language/program_mutation.py tries all of them; studies/results/program_mutation.txt has its
counts.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.program_mutation import edits, judge, sample

LIBRARY = Path(__file__).parents[2] / "examples" / "language"
RING = (LIBRARY / "ring_all_reduce.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(LIBRARY.glob("*.py")), ids=lambda path: path.stem)
def test_an_edited_program_gives_no_wrong_plan(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    for edit in sample(source, 6, seed=20261121):
        verdict = judge(edit.source, path.stem, [(4, 2)], source)
        assert verdict.outcome not in ("HOLE", "bug"), f"{edit}\n{verdict.text}"


def test_edits_differ_from_the_program_and_from_each_other() -> None:
    every = edits(RING)
    assert len(every) > 40
    assert len({edit.source for edit in every}) > 0.9 * len(every)
    assert {"number", "operator", "name", "statement deleted", "step dropped"} <= {
        edit.kind for edit in every
    }


def test_the_judge_sees_what_is_right_and_what_is_wrong() -> None:
    shapes = [(4, 2)]
    name = "ring_all_reduce"
    assert judge(RING, name, shapes, RING).outcome == "same plan"
    shorter = RING.replace("range(1, p.ranks)", "range(1, p.ranks - 1)")
    assert shorter != RING
    verdict = judge(shorter, name, shapes, RING)
    assert verdict.outcome == "refused"
    assert "postcondition" in verdict.text
    assert (
        judge(RING.replace("p.ranks", "p.rank_count"), name, shapes, RING).outcome == "no program"
    )
    turned = RING.replace("(i + 1)", "(i + 2)").replace("(i + step)", "(i + 1 + step)")
    assert judge(turned, name, shapes, RING).outcome == "right"
    # Under the name of another one, what it does is wrong: that nobody but NumPy can know.
    other = RING.replace("def ring_all_reduce", "def all_to_next")
    refused = other.replace("range(1, p.ranks)", "range(1, p.ranks - 1)")
    assert judge(other, "all_to_next", shapes, refused).outcome == "HOLE"
