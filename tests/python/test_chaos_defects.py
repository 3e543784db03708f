"""The defects that bench/chaos_defects.py plants: each edits one place of the sources."""

import chaos_defects
import pytest


@pytest.mark.parametrize("defect", chaos_defects.DEFECTS, ids=lambda defect: defect.what)
def test_a_defect_has_its_place(defect: chaos_defects.Defect) -> None:
    text = (chaos_defects.ROOT / defect.path).read_text()
    assert text.count(defect.before) == 1
    assert defect.before != defect.after
