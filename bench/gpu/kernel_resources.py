"""Registers, stack and spills of each GPU kernel by architecture, and the lines of device code.

    python bench/gpu/kernel_resources.py BUILD/kernels/resources.txt [-o FILE]

The file is what ptxas said when the kernels were compiled: every build has one. Stack is where
functions that are not inlined keep what they pass on; spills are bytes stored and loaded for want
of registers. tests/device holds sm_90's against a budget. Counted as code are lines that are
neither empty nor a comment alone.
"""

import argparse
import re
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

DEVICE = Path(__file__).parents[2] / "src" / "device"


class Use(NamedTuple):
    """Of one kernel on one architecture; bytes of a thread."""

    registers: int = 0
    stack_bytes: int = 0
    spill_bytes: int = 0


def read_uses(report: str) -> dict[str, dict[int, Use]]:
    """By kernel and architecture, from ptxas' report; functions that kernels call are left out."""
    uses: dict[str, dict[int, Use]] = defaultdict(dict)
    parts = re.split(r"Compiling entry function '(\w+)' for 'sm_(\d+)'", report)
    for kernel, architecture, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes", text)
        used = re.search(r"Used (\d+) registers", text)
        if stack is None or used is None:
            raise ValueError(f"{kernel} for sm_{architecture} has no stack or registers")
        frame, stores, loads = map(int, stack.groups())
        uses[kernel][int(architecture)] = Use(int(used[1]), frame, stores + loads)
    if not uses:
        raise ValueError("no kernel is in the report")
    return dict(uses)


def table_of(uses: dict[str, dict[int, Use]]) -> list[str]:
    """Registers / stack / spills of each kernel, a column for each architecture."""
    architectures = sorted({one for by in uses.values() for one in by})
    lines = [
        "| kernel | " + " | ".join(f"sm_{one}" for one in architectures) + " |",
        "|---|" + "---|" * len(architectures),
    ]
    for kernel in sorted(uses):
        cells = [
            f"{use.registers} / {use.stack_bytes} / {use.spill_bytes}"
            for use in (uses[kernel][one] for one in architectures)
        ]
        lines.append(f"| `{kernel}` | " + " | ".join(cells) + " |")
    return lines


def lines_of_code(text: str) -> int:
    """Lines that are neither empty nor a comment alone."""
    return sum(
        bool(line.strip()) and not line.strip().startswith("//") for line in text.split("\n")
    )


def strata() -> list[str]:
    """Files, lines and code of each folder of src/device."""
    lines = ["| src/device | files | lines | of code |", "|---|---|---|---|"]
    sums = [0, 0, 0]
    for folder in ("ptx", "sync", "copy", "reduce", "kernels", "."):
        pattern = "*.[ch]*" if folder == "." else "**/*.c*"
        texts = [path.read_text() for path in sorted((DEVICE / folder).glob(pattern))]
        row = [
            len(texts),
            sum(len(text.splitlines()) for text in texts),
            sum(map(lines_of_code, texts)),
        ]
        sums = [a + b for a, b in zip(sums, row, strict=True)]
        name = "for the host" if folder == "." else folder
        lines.append(f"| {name} | " + " | ".join(map(str, row)) + " |")
    return [*lines, "| all | " + " | ".join(map(str, sums)) + " |"]


def main() -> int:
    """Writes both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    text = "\n".join(
        [
            f"Made by bench/gpu/kernel_resources.py, {datetime.now(UTC):%Y-%m-%d}.",
            "",
            "Registers / bytes of stack / bytes spilled, of a thread:",
            "",
            *table_of(read_uses(arguments.report.read_text())),
            "",
            *strata(),
            "",
        ]
    )
    if arguments.output:
        arguments.output.write_text(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
