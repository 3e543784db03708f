"""Runs what the documentation shows.

In README.md or a page of docs/ a block

    ```python title="mean.py"

is written to a file of that name, and in a block

    ```console

each line `$ command` is run in the same folder, in the order of the page; the lines below it are
what it prints, where `...` stands for anything (within a line, or for whole lines).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 280

_BLOCK = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<body>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Command:
    """A shell command and what it is said to print."""

    line: str
    output: str


def commands_of(body: str) -> list[Command]:
    """The commands of a console block."""
    commands = []
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        while line.endswith("\\"):
            more, _, output = output.partition("\n")
            line = line[:-1] + more
        commands.append(Command(line, output))
    return commands


def pattern_of(output: str) -> re.Pattern[str]:
    """A pattern for the output shown: `...` is anything, runs of blanks are alike."""
    lines = []
    for line in output.strip().splitlines():
        words = [re.escape(word) for word in line.split()]
        text = r"[^\S\n]*".join(words).replace(re.escape("..."), ".*")
        lines.append(r"(?:.*\n)*?" if line.strip() == "..." else rf"[^\S\n]*{text}[^\S\n]*\n")
    return re.compile(r"\s*" + "".join(lines) + r"\s*")


def run_page(text: str, folder: Path) -> int:
    """Writes the files and runs the commands of a page; returns how many commands ran."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    count = 0
    for block in _BLOCK.finditer(text):
        if block["title"]:
            (folder / block["title"]).write_text(block["body"])
        if block["language"] != "console":
            continue
        for command in commands_of(block["body"]):
            done = subprocess.run(
                ["bash", "-c", command.line],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
            )
            count += 1
            printed = done.stdout + done.stderr
            assert done.returncode == 0, f"$ {command.line}\n{printed}"
            if command.output.strip():
                shown = f"$ {command.line}\nshown:\n{command.output}\nprinted:\n{printed}"
                assert pattern_of(command.output).fullmatch(printed + "\n"), shown
    return count


# The page that a newcomer reads first; the others are tested by tools/test --rest.
FIRST_PAGE = "README.md"
PAGES = [
    pytest.param(
        path,
        id=(name := str(path.relative_to(ROOT))),
        marks=[] if name == FIRST_PAGE else pytest.mark.slow,
    )
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "```console" in path.read_text() and "decisions" not in path.parts
]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path) -> None:
    assert run_page(page.read_text(), tmp_path) > 0


GOOD = '```python title="a.py"\nprint("x  1.25  y")\n```\n```console\n$ python a.py\nx ... y\n```\n'


def test_a_page_that_tells_the_truth_passes(tmp_path: Path) -> None:
    assert run_page(GOOD, tmp_path) == 1


@pytest.mark.parametrize(
    "page",
    [GOOD.replace("x ... y", "x ... z"), GOOD.replace("python a.py", "python b.py")],
    ids=["another output", "a command that fails"],
)
def test_a_page_that_does_not_is_found(page: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_page(page, tmp_path)
