"""docs/reference/program-errors.md: every program on it fails as the page says."""

import re
from pathlib import Path

import pytest
from unisono.errors import ProgramError
from unisono.lang import program

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "program-errors.md").read_text(encoding="utf-8")
CASES = re.findall(
    r"^## ([^\n]+)\n.*?^```python\n(.*?)^```\n\n^```text\n(.*?)^```$",
    PAGE,
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize(
    ("code", "said"), [one[1:] for one in CASES], ids=[one[0] for one in CASES]
)
def test_a_mistake_is_told_as_the_page_says(code, said):
    with pytest.raises(ProgramError) as caught:
        exec(compile(code, "prog.py", "exec"), {"program": program})
    assert " ".join(said.split()) == " ".join(str(caught.value).split())


def test_every_program_of_the_page_is_tried():
    assert len(CASES) == PAGE.count("```python") >= 15
