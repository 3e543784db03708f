"""The site's navigation: every page can be reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs")

import hooks
from mkdocs.config import load_config
from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[2]


def pages_of(nav: list[Any]) -> list[str]:
    found = []
    for item in nav:
        value = next(iter(item.values())) if isinstance(item, dict) else item
        found += pages_of(value) if isinstance(value, list) else [value]
    return found


def test_an_index_page_becomes_a_section_with_its_pages() -> None:
    nav = [{"A": "a.md"}, {"B": [{"C": "c/index.md"}, "d.md"]}]
    assert hooks.with_pages(nav, {"c/index.md": ["c/1.md", "c/2.md"]}) == [
        {"A": "a.md"},
        {"B": [{"C": ["c/index.md", "c/1.md", "c/2.md"]}, "d.md"]},
    ]
    # Again, as when the site is served: nothing is added twice.
    once = hooks.with_pages(nav, {"c/index.md": ["c/1.md"]})
    assert pages_of(hooks.with_pages(once, {"c/index.md": ["c/1.md"]})) == pages_of(once)


def test_every_header_and_every_decision_is_in_the_navigation() -> None:
    config = load_config(str(ROOT / "mkdocs.yml"))
    # What mkdocs sets while it calls a hook.
    config.plugins._current_plugin = "hooks"
    files = hooks.on_files(Files([]), config)
    pages = pages_of(config.nav or [])
    assert len(set(pages)) == len(pages)
    generated = {file.src_uri for file in files if file.src_uri.endswith(".md")}
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert set(pages) == generated | written


def test_the_site_has_a_switch_search_and_ways_on() -> None:
    config = load_config(str(ROOT / "mkdocs.yml"))
    theme = config.theme
    assert len([one for one in theme["palette"] if "toggle" in one]) == 3
    assert {"navigation.footer", "search.highlight"} <= set(theme["features"])
    assert any(name.endswith("search") for name in config.plugins)
    assert [str(one) for one in config.extra_css] == ["stylesheets/site.css"]
    assert (ROOT / "docs" / "stylesheets" / "site.css").is_file()


def test_pages_on_how_to_are_in_groups_of_one_kind_of_work() -> None:
    nav = load_config(str(ROOT / "mkdocs.yml")).nav or []
    (groups,) = (item["How to"] for item in nav if "How to" in item)
    sizes = {title: len(pages) for group in groups for title, pages in group.items()}
    assert len(sizes) >= 6
    assert all(3 <= size <= 8 for size in sizes.values()), sizes
