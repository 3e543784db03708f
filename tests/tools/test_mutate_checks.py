"""What tools/mutate_checks takes for a check, and what it writes in its place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "mutation"))

from layers import LAYERS  # noqa: E402
from places import closing, rewrite, sources  # noqa: E402


def checks(text: str, finds_waits: bool = False) -> list[str]:
    """What is taken out of a text."""
    _, places = rewrite("a.cc", text, 0, finds_waits)
    return [place.text for place in places]


def test_each_side_of_a_refusal_is_a_check_of_its_own() -> None:
    text = 'if (rank < 0 || f(a || b) >= ranks)\n  return misuse("no rank ", rank);\n'
    switched, places = rewrite("a.cc", text, 7, False)
    assert [(place.number, place.line, place.text) for place in places] == [
        (7, 1, "rank < 0"),
        (8, 1, "f(a || b) >= ranks"),
    ]
    assert switched == (
        "if ((unisono_mutant(7) ? false : bool(rank < 0 ))||"
        "(unisono_mutant(8) ? false : bool( f(a || b) >= ranks)))\n"
        '  return misuse("no rank ", rank);\n'
    )


def test_comparisons_of_proofs_and_calls_of_checks_are_checks() -> None:
    text = """
        const bool is_right = equal_in_constant_time(code, expected);
        UNISONO_TRY(check(frame, stream));
        UNISONO_TRY(send(frame));
    """
    assert checks(text) == ["equal_in_constant_time(code, expected)", "check(frame, stream)"]


@pytest.mark.parametrize(
    "text",
    [
        "if (!status.ok()) co_return status.take_error();",
        "if (rank == 0) return listen();",
        'if (const Error* known = find()) return wrong("known");',
        "bool equal_in_constant_time(Span a, Span b) {",
        '// if (a) return misuse("a comment");',
    ],
)
def test_what_refuses_nothing_by_itself_is_no_check(text: str) -> None:
    assert checks(text) == []


def test_a_wait_for_data_is_a_check_where_a_layer_waits() -> None:
    text = "if (!have_pieces(signal.pieces)) return;"
    assert checks(text) == []
    assert checks(text, finds_waits=True) == ["!have_pieces(signal.pieces)"]


def test_a_check_keeps_its_name_when_lines_move_and_may_be_left_alone() -> None:
    text = 'if (!in.done()) return malformed("a");\nif (!in.done()) return malformed("b");\n'
    _, places = rewrite("a.cc", text, 0, False)
    assert [place.key for place in places] == ["a.cc: !in.done()", "a.cc: !in.done() (2)"]
    _, left = rewrite("a.cc", "\n" + text, 0, False, {places[0].key})
    assert [place.key for place in left] == ["a.cc: !in.done() (2)"]


def test_brackets_in_strings_close_nothing() -> None:
    assert closing("f(\")\", ')', g())", 1) == 15


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_every_layer_has_checks_and_its_text_stays_the_same_but_for_the_switches(
    layer: object,
) -> None:
    found = 0
    for path in sources(ROOT, layer.sources):
        text = path.read_text()
        switched, places = rewrite(path.name, text, 0, layer.finds_waits)
        found += len(places)
        assert switched.count("\n") == text.count("\n")
        assert switched.count("unisono_mutant(") == len(places)
    assert found >= 30
