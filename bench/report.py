"""What measurements end with."""

from collections.abc import Sequence
from pathlib import Path


def finish(lines: Sequence[str], output: Path | None) -> None:
    """Prints the lines, and writes them to the file if there is one."""
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if output is not None:
        output.write_text(text, encoding="utf-8")
