"""Runs what the documentation shows (tests/docs/pages.py says how)."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.pages import run_page

ROOT = Path(__file__).resolve().parents[2]

# The page that a newcomer reads first; the others are tested by tools/test --rest.
FIRST_PAGE = "README.md"
# tests/package/test_cpp_consumer.py runs this one, which needs the installed library.
INSTALLED_PAGE = Path("docs/how-to/cpp.md")
PAGES = [
    pytest.param(
        path,
        id=(name := str(path.relative_to(ROOT))),
        marks=[] if name == FIRST_PAGE else pytest.mark.slow,
    )
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "```console" in path.read_text()
    and "decisions" not in path.parts
    and path.relative_to(ROOT) != INSTALLED_PAGE
]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path) -> None:
    assert run_page(page.read_text(), tmp_path) > 0


GOOD = '```python title="a.py"\nprint("x  1.25  y")\n```\n```console\n$ python a.py\nx ... y\n```\n'


def test_a_page_that_tells_the_truth_passes(tmp_path: Path) -> None:
    assert run_page(GOOD, tmp_path) == 1


@pytest.mark.parametrize(
    "page",
    [GOOD.replace("x ... y", "x ... z"), GOOD.replace("python a.py", "python b.py")],
    ids=["another output", "a command that fails"],
)
def test_a_page_that_does_not_is_found(page: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_page(page, tmp_path)
