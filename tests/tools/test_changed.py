"""Which test programs a change concerns: those that reach its layer, and never fewer."""

from __future__ import annotations

from pathlib import Path

import changed
import pytest

FILES = {
    "src/base/str.h": "",
    "src/base/str.cc": '#include "base/str.h"\n',
    "src/plan/plan.h": '#include "base/str.h"\n',
    "src/verify/verify.cc": '#include "plan/plan.h"\n',
    "src/verify/verify.h": "",
    "tests/base/str_test.cc": '#include "base/str.h"\n',
    "tests/plan/plan_test.cc": '#include "plan/plan.h"\n',
    "tests/verify/verify_test.cc": '#include "verify/verify.h"\n',
    "tests/nccl/abi_test.cc": '#include "nccl/abi.h"\n',
    "src/comm/core.cc": '#include "plan/plan.h"\n',
    "tests/fault/ranks_test.cc": "#include <unisono/communicator.h>\n",
    "tests/golden/plan.txt": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with a few layers and their tests."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "programs"),
    [
        (["src/verify/verify.cc"], ["nccl", "verify"]),
        (["src/plan/plan.h"], ["fault", "nccl", "plan", "verify"]),
        (["src/base/str.cc"], ["base", "fault", "nccl", "plan", "verify"]),
        (["src/comm/core.cc"], ["fault", "nccl"]),
        (["src/base/str.h"], None),
        (["include/unisono/types.h"], None),
        (["cmake/UnisonoTests.cmake"], None),
        (["tests/support/ranks.h"], None),
        (["tests/plan/plan_test.cc"], ["plan"]),
        (["bindings/nccl/init.cc"], ["nccl"]),
        (["docs/index.md", "README.md"], []),
    ],
)
def test_a_change_concerns_the_programs_that_reach_it(
    files: list[str], programs: list[str] | None, root: Path
) -> None:
    assert changed.programs(files, root) == programs


def test_the_top_of_this_tree_concerns_few_and_its_bottom_all() -> None:
    top = changed.programs(["src/chaos/play.cc"], changed.ROOT)
    bottom = changed.programs(["src/base/str.cc"], changed.ROOT)
    assert top is not None
    assert bottom is not None
    assert "chaos" in top
    assert "plan" not in top
    assert {"plan", "verify", "comm", "fault", "chaos", "transport"} <= set(bottom)


def test_no_commit_means_all_programs() -> None:
    assert changed.chosen_since(None) == ()
    with pytest.raises(SystemExit, match="--since no-such-commit"):
        changed.chosen_since("no-such-commit")
