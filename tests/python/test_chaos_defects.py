"""The defects that studies/chaos/defects.py plants: each edits one place of the sources."""

import defects
import pytest


@pytest.mark.parametrize("defect", defects.DEFECTS, ids=lambda defect: defect.what)
def test_a_defect_has_its_place(defect: defects.Defect) -> None:
    text = (defects.ROOT / defect.path).read_text()
    assert text.count(defect.before) == 1
    assert defect.before != defect.after
