"""The pages that say how to add to Unisono name files and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs" / "how-to").glob("add-*.md"))

_PATH = re.compile(r"`((?:src|tests|python|bindings|docs)/[\w./-]+)`")
# "NAME" is the reader's.
_READERS = re.compile(r"NAME")


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_files_that_a_guide_names_exist(page: Path) -> None:
    named = [path for path in _PATH.findall(page.read_text()) if not _READERS.search(path)]
    assert len(named) >= 5
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_there_is_a_guide_for_each_seam() -> None:
    assert [page.stem for page in GUIDES] == [
        "add-a-kernel",
        "add-a-launcher",
        "add-a-transport",
        "add-an-algorithm",
    ]
