"""What becomes of programs of the language when they are edited at random.

    python studies/language/program_mutation.py [--edits N] [-o FILE]

Every program of examples/language; of each, all edits, or N drawn at random. Refused: the compiler
or the verifier says what is wrong. No program: Python does. Same plan: the edit changes nothing.
Right: another plan, whose results are those of the collective. A HOLE is a plan that is wrong.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from report import finish  # noqa: E402
from support.program_mutation import OUTCOMES, edits, judge, sample  # noqa: E402

SHAPES = [(4, 2), (6, 3), (8, 2)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, help="of each program, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    by_program: dict[str, Counter[str]] = {}
    by_kind: dict[str, Counter[str]] = {}
    holes, started = [], time.process_time()
    for path in sorted((ROOT / "examples" / "language").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        chosen = sample(source, arguments.edits, arguments.seed) if arguments.edits else None
        for edit in chosen or edits(source):
            verdict = judge(edit.source, path.stem, SHAPES, source)
            by_program.setdefault(path.stem, Counter())[verdict.outcome] += 1
            by_kind.setdefault(edit.kind, Counter())[verdict.outcome] += 1
            if verdict.outcome in ("HOLE", "bug"):
                holes.append(f"{path.name}:{edit.line}: {edit.kind}: {verdict.text}")
        print(path.stem, dict(by_program[path.stem]), file=sys.stderr, flush=True)
    lines = [
        f"date: {time.strftime('%Y-%m-%d')}",
        f"command: program_mutation.py --edits {arguments.edits or 'all'} --seed {arguments.seed}",
        f"shapes: {', '.join(f'{ranks} ranks on {nodes} nodes' for ranks, nodes in SHAPES)}",
        f"CPU: {time.process_time() - started:.1f} s",
    ]
    for title, table in (("program", by_program), ("edit", by_kind)):
        lines += ["", f"{title:<34}" + "".join(f"{outcome:>12}" for outcome in OUTCOMES)]
        total: Counter[str] = Counter()
        for name, row in table.items():
            lines.append(f"{name:<34}" + "".join(f"{row[outcome]:>12}" for outcome in OUTCOMES))
            total += row
        lines.append(f"{'all':<34}" + "".join(f"{total[outcome]:>12}" for outcome in OUTCOMES))
    lines += ["", *(holes or ["no holes"])]
    finish(lines, arguments.output)
    sys.exit(bool(holes))


if __name__ == "__main__":
    main()
