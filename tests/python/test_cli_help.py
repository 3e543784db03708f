"""Help: no name is cut, paragraphs are filled, and it is there at once, at every width."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from unisono.cli.app import app
from unisono.cli.deferred import context_of, load_all
from unisono.cli.help_text import documentation, help_of


def commands(group: Any, context: Any = None, name: str = "unisono") -> Iterator[tuple[Any, Any]]:
    """Every command and group, with a context that knows its name."""
    context = context_of(group, name, context)
    yield group, context
    for one, command in getattr(group, "commands", {}).items():
        yield from commands(command, context, one)


ALL = list(commands(load_all(typer.main.get_command(app))))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("command", "context"), ALL, ids=[ctx.command_path for _, ctx in ALL])
def test_help_fits_and_cuts_nothing(
    command: Any, context: Any, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = help_of(command, context)
    assert [line for line in text.split("\n") if len(line) > width] == []
    assert "…" not in text
    for parameter in command.get_params(context):
        for name in (*parameter.opts, *parameter.secondary_opts):
            if parameter.param_type_name == "option":
                assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), name
        for word in (parameter.help or "").split():
            assert word in text, (parameter.name, word)
    assert text.split("\n")[-1] == f"Documentation: {documentation()}"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("command", "context"), ALL, ids=[ctx.command_path for _, ctx in ALL])
def test_paragraphs_wrap_once(
    command: Any, context: Any, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    description = help_of(command, context).split("Arguments:")[0].split("Options:")[0]
    for paragraph in description.split("\n\n")[1:]:
        lines = paragraph.strip().split("\n")
        for line, following in itertools.pairwise(lines):
            # A line that could hold the next word was broken where the source breaks.
            assert len(line) + 1 + len(following.split()[0]) > width, line


def test_help_names_aliases_defaults_and_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    texts = {context.command_path: help_of(command, context) for command, context in ALL}
    bench = " ".join(texts["unisono bench"].split())
    assert "-n, -np, --ranks, --nproc-per-node RANKS" in bench
    assert "-g, --gpus GPUS" in bench
    assert all("-h, --help" in text for text in texts.values())
    assert "Smallest size. [default: 8]" in bench
    assert "[default: 1; at least 1]" in bench
    assert "Usage: unisono bench [OPTIONS] [COLLECTIVES...]" in bench
    assert "Usage: unisono explain [OPTIONS] COLLECTIVE SIZE" in texts["unisono explain"]


def test_the_address_is_the_packages_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata
    from email.message import Message

    found = Message()
    monkeypatch.setattr(importlib.metadata, "metadata", lambda _: found)
    assert documentation() == "the folder docs/ of the source"
    found["Project-URL"] = "Repository, https://example.org/r"
    assert documentation() == "https://example.org/r"
    found["Project-URL"] = "Documentation, https://example.org/d"
    assert documentation() == "https://example.org/d"


def loaded_by(program: str) -> set[str]:
    """The packages that a program has imported, by the names of their roots."""
    code = f"import sys\n{program}\nprint(*sys.modules, file=sys.stderr)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_no_help_waits_for_a_package_that_is_slow_to_import() -> None:
    names = [context.command_path.split()[1:] for _, context in ALL]
    asked = [[*words, "--help"] for words in names]
    assert len(asked) > 20
    loaded = loaded_by(
        "import typer\n"
        "from unisono.cli.app import app\n"
        "from unisono.cli.deferred import help_alone\n"
        "group = typer.main.get_command(app)\n"
        f"for words in {asked!r}: assert help_alone(group, 'unisono', words), words\n"
    )
    slow = {"numpy", "pydantic", "matplotlib", "jinja2", "asyncio", "torch", "yaml", "scipy"}
    assert loaded & slow == set()


def test_help_of_what_is_run_is_its_own() -> None:
    from unisono.cli.deferred import help_alone

    group = typer.main.get_command(app)
    for words in (["run", "train.py", "--help"], ["bench", "-n", "2"], [], ["no-such", "--help"]):
        assert help_alone(group, "unisono", words) is None
