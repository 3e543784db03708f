"""The library of programs: lines, ranks tried, plans verified, plans run and compared with NumPy.

    python studies/language/library_table.py [-o FILE]

Lines are those of code, as studies/language/program_lines.py counts them.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from program_lines import python_lines
from unisono import lang
from unisono.cli.programs import wrong_ranks
from unisono.errors import MisuseError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.program_mutation import expected  # noqa: E402

MOST_RUN = 16  # ranks of plans that are run; larger ones are verified only
SHAPES = [
    (ranks, nodes)
    for ranks in (*range(1, 17), 24, 32, 64)
    for nodes in range(1, min(ranks, 8) + 1)
    if ranks % nodes == 0
]


def measure(path: Path) -> str:
    (program,) = lang.load(path)
    verified = ran = needs_power = 0
    for shape in SHAPES:
        for in_place in sorted({False, program.in_place}):
            try:
                plan = program.compile(*shape, in_place=in_place).plan
            except lang.ProgramError:
                raise
            except MisuseError:  # the program's own check
                needs_power += 1
                continue
            verified += 1
            if plan.ranks > MOST_RUN:
                continue
            rng = np.random.default_rng(7)
            inputs = [
                rng.integers(-999, 999, plan.input_blocks(rank) * 29) for rank in range(plan.ranks)
            ]
            outputs = lang.run(plan, inputs)
            wanted = expected(plan.collective, program.name, inputs)
            if wrong := wrong_ranks(outputs, wanted):
                raise SystemExit(f"{path.stem}: ranks {wrong} of {shape} are wrong")
            ran += 1
    lines = python_lines(path.read_text(encoding="utf-8"))
    tried = "1-16, 24, 32, 64" + (", powers of two" if needs_power else "")
    return f"| `{path.stem}` | {lines} | {tried} | {verified} | {ran} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    rows = [
        f"Made by studies/language/library_table.py, {time.strftime('%Y-%m-%d')}.",
        "",
        "| program | lines | ranks tried | plans verified | run, and right |",
        "|---|---|---|---|---|",
    ]
    for path in sorted((ROOT / "examples" / "language").glob("*.py")):
        rows.append(measure(path))
        print(rows[-1], flush=True)
    if arguments.output:
        arguments.output.write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
