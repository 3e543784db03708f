"""Holds the doctor against a corpus of hangs that `make.py` made.

    python studies/hangs/judge.py FOLDER [--wrong]

Prints what it said of each kind, and precision and recall of its verdicts and of the ranks that it
names. Right is a verdict that the label allows, with exactly the label's ranks; where the label
allows `undecided`, that is right without ranks. --wrong also prints each case that is not right.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from kinds import KINDS
from rich.console import Console
from unisono.doctor import Diagnosis, diagnose, read_files
from unisono.doctor.diagnosis import Verdict
from unisono.tables import Table, label, number, prose

# What the command says of an empty folder.
_NO_DUMPS = Diagnosis(Verdict.undecided, 0.0, "There are no files to read.")


@dataclass
class Score:
    """Cases of one kind."""

    said: Counter[str] = field(default_factory=Counter)
    cases: int = 0
    blamed: int = 0
    right_verdict: int = 0
    right_ranks: int = 0
    right_blame: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wrong", action="store_true")
    chosen = parser.parse_args()
    scores: dict[str, Score] = defaultdict(Score)
    left_out: Counter[str] = Counter()
    for path in sorted(chosen.folder.glob("*/label.json")):
        case_label = json.loads(path.read_text())
        if case_label["outcome"] not in ("hung", "healthy"):
            left_out[f"{case_label['case']['kind']['name']}: {case_label['outcome']}"] += 1
            continue
        dumps = path.parent / "dumps"
        found = diagnose(read_files([dumps])) if any(dumps.iterdir()) else _NO_DUMPS
        score, truth = scores[case_label["case"]["kind"]["name"]], case_label["truth"]
        named = {int(one.removeprefix("rank ")) for one in found.ranks
                 if one.removeprefix("rank ").isdecimal()}  # fmt: skip
        is_right = str(found.verdict) in truth["verdicts"]
        abstains = is_right and not found.verdict.blames
        more = len(named - set(truth["ranks"]))
        has_all = named >= set(truth["ranks"])
        ranks_right = abstains or (has_all and more <= truth["two_ends"])
        score.cases += 1
        score.said[str(found.verdict)] += 1
        score.blamed += found.verdict.blames
        score.right_verdict += is_right
        score.right_ranks += ranks_right
        score.right_blame += found.verdict.blames and is_right and ranks_right
        if chosen.wrong and not (is_right and ranks_right):
            case = case_label["case"]
            print(
                f"{path.parent.name} ({case['layout']}, {case['library']}, {case['ranks']} ranks, "
                f"rank {case['victim']} at step {case['step']}): {found.verdict} {sorted(named)}: "
                f"{found.paragraph}\n"
            )
    _print(scores, left_out)


def _print(scores: dict[str, Score], left_out: Counter[str]) -> None:
    table = Table([label("kind"), number("cases"), number("verdict"), number("ranks"),
                   prose("what the doctor said")])  # fmt: skip
    for name, one in scores.items():
        table.add_row(
            name, one.cases, f"{one.right_verdict / one.cases:.2f}",
            f"{one.right_ranks / one.cases:.2f}",
            ", ".join(f"{verdict} {count}" for verdict, count in one.said.most_common()),
        )  # fmt: skip
    Console().print(table, crop=False)
    hangs = [one for name, one in scores.items() if KINDS[name].hangs]
    healthy = [one for name, one in scores.items() if not KINDS[name].hangs]
    cases, blamed = sum(one.cases for one in hangs), sum(one.blamed for one in hangs)
    verdicts, ranks = sum(one.right_verdict for one in hangs), sum(one.right_ranks for one in hangs)
    if cases:
        right_blame = sum(one.right_blame for one in hangs)
        print(f"\n{cases} hangs, in {blamed} of which the doctor blamed somebody")
        print(f"recall: verdicts {verdicts / cases:.3f}, ranks {ranks / cases:.3f}")
        print(f"precision of verdict and ranks where it blamed: {right_blame / max(blamed, 1):.3f}")
    count = sum(one.cases for one in healthy)
    if count:
        print(f"{count} jobs without a hang: blame in {sum(one.blamed for one in healthy)}")
    for what, times in sorted(left_out.items()):
        print(f"left out: {times} of {what}")


if __name__ == "__main__":
    main()
