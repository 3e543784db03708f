"""Files of MSCCL's XML that others published: read, verified, run, and compared with NumPy.

    python studies/language/foreign_files.py REPOSITORY... [-o FILE]

Every XML file with an <algo> in the last commit of each git repository, bare or not. Read: as a
plan. Proved: by the verifier. Right: run by the host engine on random data, as NumPy says.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from program_lines import git
from unisono import lang
from unisono._unisono import Plan
from unisono.cli.programs import expected_outputs, wrong_ranks
from unisono.errors import MisuseError
from unisono.exchange import read_msccl_xml

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from report import finish

COUNT = 1003  # elements of a block: chunks do not divide it


def is_right(plan: Plan) -> bool:
    rng = np.random.default_rng(5)
    inputs = [
        rng.integers(-999, 999, plan.input_blocks(rank) * COUNT) for rank in range(plan.ranks)
    ]
    return not wrong_ranks(lang.run(plan, inputs), expected_outputs(plan, inputs))


def judge(text: str) -> tuple[str, str]:
    """What became of a file, and what was said."""
    try:
        plan = read_msccl_xml(text)
    except MisuseError as error:
        return "not read", str(error).splitlines()[0]
    report = plan.verify()
    if not report.ok:
        said, _, _ = report.failures[0].describe().partition("how:")
        return "not verified", " ".join(said.split())
    return ("right", "") if is_right(plan) else ("WRONG", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", nargs="+", type=Path, metavar="REPOSITORY")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    lines = [f"Made by studies/language/foreign_files.py, {time.strftime('%Y-%m-%d')}."]
    failed = False
    for repository in arguments.repositories:
        paths = git(repository, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
        texts = {
            path: git(repository, "show", f"HEAD:{path}") for path in paths if path.endswith(".xml")
        }
        verdicts = {path: judge(text) for path, text in texts.items() if "<algo" in text}
        counts = Counter(verdict for verdict, _ in verdicts.values())
        failed = failed or counts["WRONG"] > 0
        commit = git(repository, "log", "-1", "--format=commit %h of %cs").strip()
        lines += ["", f"{repository.name}, {commit}: {len(verdicts)} files"]
        lines += [f"  {count} {verdict}" for verdict, count in sorted(counts.items())]
        lines += [
            f"  {path}: {verdict}: {said}"
            for path, (verdict, said) in verdicts.items()
            if verdict != "right"
        ]
    finish(lines, arguments.output)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
