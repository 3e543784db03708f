"""Lines of programs: counted as said, and the documentation's are those of the files."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = runpy.run_path(str(ROOT / "studies" / "language" / "program_lines.py"))
PAGE = (ROOT / "docs" / "how-to" / "write-an-algorithm.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## The library") : PAGE.index("## How long it takes")]
LIBRARY = sorted((ROOT / "examples" / "language").glob("*.py"))

PYTHON = '''
"""A docstring."""

import os


def helper(p):  # counted
    """Not counted,
    nor this."""
    # a comment

    text = """counted,
    and this"""
    return text


@decorated(
    1,
)
def main(p):
    helper(p)


main(os)
'''

CUDA = """
// run(a comment)
#include <run>

template <typename T>
__global__ void run(T* data,  // counted: where it lies
                    int count) {
  /* not
     counted */
  for (int i = 0; i < count; ++i) {
    data[i] = call(run_before(i));
  }
}

void call() { run(nullptr, 0); }
"""


def test_pythons_functions_are_counted():
    assert LINES["python_lines"](PYTHON) == 4 + 5


def test_a_cuda_function_is_counted_where_it_is_defined():
    assert LINES["cuda_lines"](CUDA, "run") == 5
    assert LINES["cuda_lines"](CUDA, "call") == 1
    with pytest.raises(SystemExit, match="no definition of walk"):
        LINES["cuda_lines"](CUDA, "walk")


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_the_documentation_states_the_lines_that_there_are(path):
    lines = LINES["python_lines"](path.read_text(encoding="utf-8"))
    stated = re.findall(rf"^\| `{path.stem}` \| (\d+) \|", SECTION, re.MULTILINE)
    assert stated
    assert {int(one) for one in stated} == {lines}
