"""The generators of the reference pages: nothing public is lost, nothing private is shown."""

from __future__ import annotations

import re
from pathlib import Path

import cpp_headers
import pytest
import settings_table
from pydantic import BaseModel, Field

ROOT = Path(__file__).resolve().parents[2]
HEADERS = sorted((ROOT / "include" / "unisono").glob("*.h"))


HEADER = """\
// A small header, about Box<T>.
//
// More about it.
#pragma once

#include <vector>

namespace unisono {

// Holds a T.
template <class T>
class Box {
 public:
  Box();

  // Returns what is held.
  T& get() { return value_; }

 private:
  T value_;
};

// Two of a kind.
int size(const Box<int>& box);
int weight(
    const Box<int>& box);

inline constexpr int box_count = 3;

}  // namespace unisono
"""


def test_each_declaration_has_its_heading_comment_and_code() -> None:
    page = cpp_headers.markdown("unisono/box.h", HEADER)
    assert re.findall(r"^## `(.*)`$", page, re.MULTILINE) == ["Box", "size, weight", "box_count"]
    assert "Holds a T." in page
    assert "  // Returns what is held.\n  T& get() { return value_; }\n};" in page
    assert "int weight(\n    const Box<int>& box);" in page


def test_private_members_are_not_shown() -> None:
    page = cpp_headers.markdown("unisono/box.h", HEADER)
    assert "private" not in page
    assert "T value_;" not in page


def test_angle_brackets_of_prose_do_not_become_tags() -> None:
    assert "about Box&lt;T>." in cpp_headers.markdown("unisono/box.h", HEADER)


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_every_class_enum_and_constant_of_a_header_is_on_its_page(header: Path) -> None:
    text = header.read_text()
    page = cpp_headers.markdown(f"unisono/{header.name}", text)
    declared = re.findall(
        r"^(?:class|struct|enum class|using)\s+(?:\[\[\w+\]\]\s+)?(\w+)[^;]*?[{=]",
        text,
        re.MULTILINE,
    )
    assert declared or "(" in text
    headings = " ".join(re.findall(r"^## `(.*)`$", page, re.MULTILINE))
    assert [name for name in declared if name not in headings] == []


class Leaf(BaseModel):
    """Grows on a tree."""

    green: bool = True
    # Of another name in the file.
    of_year: int = Field(ge=1, le=2000, alias="from")


class Tree(BaseModel):
    name: str = Field(pattern="^a|b$")
    leaves: list[Leaf] | None = Field(None, max_length=8)


def test_members_have_their_types_bounds_and_defaults() -> None:
    formats = pytest.importorskip("file_formats")
    assert formats.parts(Tree) == [Tree, Leaf]
    assert formats.table(Tree)[2:] == [
        "| `name` | text, matches `^a\\|b$` | **required** |",
        "| `leaves` | list of [Leaf](#leaf), length at most 8 | nothing |",
    ]
    assert formats.table(Leaf)[2:] == [
        "| `green` | true or false | `true` |",
        "| `from` | whole number, at least 1, at most 2,000 | **required** |",
    ]


def test_every_member_of_a_file_is_on_the_page() -> None:
    formats = pytest.importorskip("file_formats")
    page = formats.markdown()
    for schema in (formats.ClusterFile, formats.WorkloadFile, formats.LinksFile):
        for part in formats.parts(schema):
            section = re.split(rf"^###? {formats.title(part)}$", page, flags=re.MULTILINE)[1]
            members = [field.alias or name for name, field in part.model_fields.items()]
            assert re.findall(r"^\| `(\w+)`", section.split("\n#")[0], re.MULTILINE) == members


def test_quantities_are_told_from_plain_numbers() -> None:
    page = pytest.importorskip("file_formats").markdown()
    assert "| `latency` | duration | **required** |" in page
    assert "| `bandwidth` | bandwidth | **required** |" in page
    assert "| `speed` | speed | **required** |" in page
    assert "| `burst` | size | 0 B |" in page


def test_every_row_of_the_settings_table_is_on_the_page() -> None:
    source = "".join((ROOT / one).read_text() for one in settings_table.SOURCES)
    page = settings_table.markdown(source)
    variables = re.findall(r'"(UNISONO_\w+)"', source)
    assert len(variables) > 10
    assert "UNISONO_NCCL_HOST_MEMORY" in variables
    assert [name for name in variables if f"| `{name}` |" not in page] == []
    assert all(len(row.meaning) > 20 for row in settings_table.rows(source))
