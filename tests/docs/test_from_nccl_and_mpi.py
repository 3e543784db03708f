"""The pages for those who know NCCL, MPI or PyTorch name what exists, and all that NCCL exports."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import settings_table
import unisono
from unisono.calls import Calls
from unisono.neighbours import Grid, Neighbourhood

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGE = (REFERENCE / "from-nccl-and-mpi.md").read_text()
TORCH_PAGE = (REFERENCE / "from-torch-distributed.md").read_text()
NCCL_NAMES = json.loads((ROOT / "tests" / "python" / "nccl_names.json").read_text())["names"]
SETTINGS = "".join((ROOT / one).read_text() for one in settings_table.SOURCES)
HEADERS = "".join(path.read_text() for path in (ROOT / "include" / "unisono").glob("*.h"))

_CODE = re.compile(r"`([^`]+)`")
# Names of types and enumerators, which are no functions.
_TYPES = {
    "ncclConfig_t",
    "ncclInvalidUsage",
    "ncclSum",
    "ncclProd",
    "ncclMin",
    "ncclMax",
    "ncclAvg",
}


def column(title: str, page: str = PAGE) -> Iterator[str]:
    """The code in one column of all tables of a page that have it."""
    place = None
    for line in page.splitlines():
        if line.startswith("|---"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            place = None
        elif title in cells:
            place = cells.index(title)
        elif place is not None:
            yield from _CODE.findall(cells[place])


def matches(pattern: str, name: str) -> bool:
    """Whether a name of the page, which `*` may end, stands for a function."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def test_every_function_of_nccl_on_the_page_is_exported() -> None:
    named = set(re.findall(r"`(p?nccl\w+\*?)`", PAGE)) - _TYPES
    assert [one for one in named if not any(matches(one, name) for name in NCCL_NAMES)] == []


@pytest.mark.parametrize("name", [name for name in NCCL_NAMES if not name.startswith("pnccl")])
def test_every_exported_function_is_on_the_page(name: str) -> None:
    named = set(_CODE.findall(PAGE))
    assert any(matches(one, name) or one == name.removesuffix("Config") for one in named)


def test_every_setting_on_the_page_is_known_and_nccl_reads_no_other_variable() -> None:
    known = {row.variable for row in settings_table.rows(SETTINGS)}
    assert set(re.findall(r"UNISONO_\w+", PAGE)) - known == set()
    assert {name for name in known if name.startswith("NCCL_")} == {"NCCL_COMM_ID"}
    sources = (path for path in (ROOT / "bindings" / "nccl").iterdir() if path.suffix == ".cc")
    assert all("getenv" not in path.read_text() for path in sources)


def test_every_name_of_cpp_is_in_a_header() -> None:
    names = [part for code in column("C++") for part in code.split("::")]
    assert len(names) > 50
    assert [one for one in names if not re.search(rf"\b{one}\b", HEADERS)] == []


@pytest.mark.parametrize("page", [PAGE, TORCH_PAGE], ids=["NCCL and MPI", "torch.distributed"])
def test_every_name_of_python_is_public(page: str) -> None:
    found = list(column("Python", page))
    assert len(found) > 25
    # What an instance has and the class has not.
    own = set(re.findall(r"self\.(\w+): ", inspect.getsource(Calls)))
    for code in found:
        if code == "async_op=True":
            assert "async_op" in unisono.CallOptions.__annotations__
            continue
        if code == "tag=":
            assert "tag" in inspect.signature(unisono.Communicator.send).parameters
            continue
        owner, _, member = code.rpartition(".")
        place = {
            "": unisono.Communicator,
            "Grid": Grid,
            "Neighbourhood": Neighbourhood,
            "Persistent": unisono.Persistent,
            "Window": unisono.Window,
            "Work": unisono.Work,
            "unisono": unisono,
        }[owner]
        assert hasattr(place, member) or member in own or hasattr(unisono, code), code
