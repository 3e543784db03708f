"""Every program of the library as files for third-party runtimes, to be read by their loaders.

    python studies/language/export_library.py FOLDER [--target rccl]... [--built-in]

Writes FOLDER/TARGET/NAME_RANKSxNODES_PROTOCOL_PLACE.xml for each program of examples/language (and
with --built-in for each built-in algorithm) that the target can carry, for mscclpp the JSON of the
tests' one-sided programs, and prints how many were written and, by reason, how many were refused.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from unisono import exchange, lang, plans
from unisono.errors import MisuseError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

TARGETS = ("msccl", "executor-nccl", "rccl", "mscclpp")
SHAPES = ((1, 1), (2, 1), (3, 1), (4, 2), (8, 1), (8, 2), (16, 2), (16, 4), (32, 4), (64, 8))
PROTOCOLS = ("simple", "ll", "ll128")

Made = tuple[str, plans.Plan | str]  # name, and the plan or why there is none


def _programs(target: str) -> Iterator[Made]:
    for path in sorted((ROOT / "examples" / "language").glob("*.py")):
        (program,) = lang.load(path)
        for ranks, nodes in SHAPES:
            for protocol in PROTOCOLS:
                for in_place in sorted({False, program.in_place}):
                    place = "in" if in_place else "out"
                    name = f"{path.stem}_{ranks}x{nodes}_{protocol}_{place}"
                    try:
                        made = program.compile(
                            ranks, nodes, protocol=protocol, in_place=in_place, target=target
                        )
                        yield name, made.plan
                    except MisuseError as error:
                        yield name, str(error)


def _one_sided(target: str) -> Iterator[Made]:
    from python.test_exchange_mscclpp import puts, reads, scratches, star

    for program in (puts, reads, scratches, star):
        for ranks in (2, 3, 4, 5, 8):
            yield f"{program.name}_{ranks}x1_simple_out", program.compile(ranks, target=target).plan


def _built_in(_target: str) -> Iterator[Made]:
    for entry in plans.algorithms():
        for ranks, nodes in SHAPES:
            for protocol in PROTOCOLS:
                for in_place in (False, True):
                    placement = plans.Placement(ranks, nodes)
                    if entry.why_not(placement, in_place=in_place):
                        continue
                    place = "in" if in_place else "out"
                    plan = entry.plan(placement, in_place=in_place, protocol=protocol)
                    yield f"{plan.name}_{ranks}x{nodes}_{protocol}_{place}", plan


def _kind(reason: str) -> str:
    """A refusal without its names and numbers, to count by."""
    text = reason.splitlines()[0]
    text = re.sub(r"^(\S+\.py:\d+: |plan \S+?(, rank \d+)?: )", "", text)
    return re.sub(r"\d+", "N", text)


def export(folder: Path, target: str, source: Iterator[Made]) -> tuple[int, Counter[str]]:
    """Writes what can be written; how many, and why others could not."""
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    refused: Counter[str] = Counter()
    for name, plan in source:
        try:
            if isinstance(plan, str):
                raise MisuseError(plan)
            text = exchange.write_plan(plan, target)
        except MisuseError as error:
            refused[_kind(str(error))] += 1
            continue
        suffix = "json" if target == "mscclpp" else "xml"
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
        written += 1
    return written, refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--built-in", action="store_true")
    arguments = parser.parse_args()
    for target in arguments.target or TARGETS:
        sources = {"programs": _one_sided if target == "mscclpp" else _programs}
        if arguments.built_in and target != "mscclpp":
            sources["built-in"] = _built_in
        for which, source in sources.items():
            written, refused = export(arguments.folder / target, target, source(target))
            print(f"{target}, {which}: {written} files written, {refused.total()} refused")
            for reason, count in refused.most_common():
                print(f"    {count:6}  {reason}")


if __name__ == "__main__":
    main()
