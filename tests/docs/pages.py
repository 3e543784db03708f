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


def run_page(text: str, folder: Path, **variables: str) -> int:
    """Writes the files and runs the commands of a page, with more variables in the environment.

    Returns:
        How many commands ran.
    """
    environment = {
        **os.environ,
        **variables,
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
