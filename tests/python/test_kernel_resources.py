"""The table of the kernels' registers says what ptxas said."""

import runpy
from pathlib import Path

import pytest

RESOURCES = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "gpu" / "kernel_resources.py"))

REPORT = """\
ptxas info    : Compiling entry function 'one' for 'sm_80'
    8 bytes stack frame, 4 bytes spill stores, 2 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
ptxas info    : Function properties for a_function_that_it_calls
    99 bytes stack frame, 99 bytes spill stores, 99 bytes spill loads
ptxas info    : Compiling entry function 'one' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers
"""


def test_each_kernel_has_a_cell_for_each_architecture() -> None:
    uses = RESOURCES["read_uses"](REPORT)
    assert uses == {"one": {80: (32, 8, 6), 90: (30, 0, 0)}}
    assert RESOURCES["table_of"](uses)[-1] == "| `one` | 32 / 8 / 6 | 30 / 0 / 0 |"


@pytest.mark.parametrize("report", ["", REPORT.replace("Used 30 registers", "")])
def test_a_report_that_lacks_something_is_refused(report: str) -> None:
    with pytest.raises(ValueError, match="no kernel|sm_90 has no stack or registers"):
        RESOURCES["read_uses"](report)


def test_comments_and_empty_lines_are_not_code() -> None:
    assert RESOURCES["lines_of_code"]("// a\n\n  // b\nint c;  // d\n") == 1


def test_all_strata_are_counted() -> None:
    rows = RESOURCES["strata"]()
    files = sum(1 for path in RESOURCES["DEVICE"].rglob("*") if path.is_file())
    assert rows[-1].startswith(f"| all | {files} |")
