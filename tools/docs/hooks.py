"""Adds to the site the pages that are made from the code, and those that live in the root."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cpp_headers
import file_formats
import settings_table
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = {"ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}

_COMMAND_LINE_HEAD = """\
# Command line

This page lists the commands of `unisono` with their options, as `--help` prints them. It is for
people who look up an option; `unisono COMMAND --help` shows the same in a terminal."""
_CPP_HEAD = """\
# C++

This page lists the public headers, each with a page made of its comments. It is for people who
write C++ programs with Unisono. Link `unisono::unisono` of the CMake package `unisono`.
"""


def _root_page(text: str) -> str:
    """A root page's links point from the root; on the site it is a sibling of docs/."""
    text = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\]\(((?!https?:|#)[^)]*)\)", _keep_if_on_site, text)


def _keep_if_on_site(match: re.Match[str]) -> str:
    target = match[1].split("#")[0]
    on_site = (ROOT / "docs" / target).exists() or target in ROOT_PAGES
    return match[0] if on_site else "]"


def _command_line() -> str:
    """The command line's own help, as typer writes it down."""
    import typer.cli
    import typer.main
    from unisono.cli.app import app
    from unisono.cli.deferred import load_all

    command = load_all(typer.main.get_command(app))
    context = typer.Context(command, info_name="unisono")
    text = typer.cli.get_docs_for_click(obj=command, ctx=context, name="unisono")
    return text.replace("# `unisono`", _COMMAND_LINE_HEAD, 1)


def with_pages(nav: list[Any], pages: dict[str, list[str]]) -> list[Any]:
    """The navigation, where an index page that stands alone has become a section with its pages.

    Args:
        nav: As mkdocs.yml has it: titles with a page, or with a list of the same.
        pages: By index page: those that follow it.
    """

    def entry(title: str, value: Any) -> Any:
        if isinstance(value, list):
            return {title: with_pages(value, pages)}
        return {title: [value, *pages[value]] if value in pages else value}

    return [entry(*next(iter(item.items()))) if isinstance(item, dict) else item for item in nav]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Generates the pages, and puts them into the navigation."""

    def add(uri: str, text: str) -> None:
        files.append(File.generated(config, uri, content=text))

    for name in sorted(ROOT_PAGES):
        if (ROOT / name).exists():
            add(name, _root_page((ROOT / name).read_text()))

    add(
        "reference/settings.md",
        settings_table.markdown(
            "".join((ROOT / one).read_text() for one in settings_table.SOURCES)
        ),
    )

    add("reference/cli.md", _command_line())
    add("reference/files.md", file_formats.markdown())

    headers = sorted((ROOT / "include" / "unisono").glob("*.h"))
    decisions = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    sections = {
        "reference/cpp/index.md": [f"reference/cpp/{header.stem}.md" for header in headers],
        "decisions/index.md": [f"decisions/{decision.name}" for decision in decisions],
    }
    config.nav = with_pages(config.nav or [], sections)
    index = [_CPP_HEAD]
    for header in headers:
        name = f"unisono/{header.name}"
        text = header.read_text()
        add(f"reference/cpp/{header.stem}.md", cpp_headers.markdown(name, text))
        leading, _ = cpp_headers.parse(text)
        summary = " ".join(leading).split(". ")[0].rstrip(".")
        index.append(f"- [`<{name}>`]({header.stem}.md): {summary.replace('<', '&lt;')}.")
    add("reference/cpp/index.md", "\n".join(index) + "\n")
    return files
