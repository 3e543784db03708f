"""The demonstration: `python -m unisono.demo [--quick] [--output FOLDER]`, as ./tools/demo runs it.

Runs every collective by every algorithm on eight ranks of two virtual nodes and checks each result,
trains a small network data-parallel on handwritten digits, and writes FOLDER/report.html. The exit
status is 0 only if everything was right.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unisono import plans
from unisono.bench.cases import Case, Request, list_cases
from unisono.bench.machine import describe_machine
from unisono.bench.rows import Row, write_document
from unisono.bench.tables import summary_of
from unisono.cli.bench import conclude, run_with_progress
from unisono.cli.output import complain, console, show
from unisono.draw import draw_plan
from unisono.errors import Error, MachineError
from unisono.job_folder import job_folder
from unisono.launcher import launch
from unisono.report import Drawing, Training, write_report

RANKS, NODES = 8, 2

# Plans that look different, and what to look for.
_DRAWN = {
    "ring_all_reduce": "Every chunk travels round the ring twice: reduced on the way to the rank "
    "that completes it, then copied on the way to all.",
    "tree_all_reduce": "Two trees, each for half of the data: what is a leaf in one works in the "
    "other. Up to reduce, down to hand out; a chain inside each node.",
    "hierarchical_recursive_all_gather": "Ranks of the same place in their nodes exchange between "
    "nodes, all at once; then each node shares what it has got.",
}


def list_demo_cases(request: Request, quick: bool) -> list[Case]:
    """Every algorithm over every protocol in small sizes, and over Simple in large ones.

    LL and LL128 are made for small messages. The small sizes hold odd numbers of elements.
    """
    small = [4, 1028, 33 * 1024] if quick else [4, 260, 2052, 33 * 1024, 256 * 1024]
    large = [512 * 1024] if quick else [2 << 20, 16 << 20]
    everything = replace(request, algorithms=["all"])
    cases = list_cases(replace(everything, sizes=small, protocols=["all"]))
    cases += list_cases(replace(everything, sizes=large, protocols=["simple"]))
    return list(dict.fromkeys(cases))


def run_digits(quick: bool) -> Training | None:
    """Trains on the digits; None, with the reason on the screen, if it could not."""
    script = find_example("digits_numpy.py")
    epochs = 5 if quick else 20
    with job_folder() as folder:
        result = folder / "digits.json"
        command = [str(script), "--epochs", str(epochs), "--json", str(result)]
        outcome = launch(command, RANKS, nodes=NODES, prefix_output=False)
        if not outcome.ok:
            complain(f"the training on digits failed: {outcome.message}")
        if not result.exists():
            return None
        return Training(**json.loads(result.read_text()))


def find_example(name: str) -> Path:
    """A file of examples/, of the current folder or of the checkout that this package is from."""
    for root in (Path.cwd(), Path(__file__).resolve().parents[2]):
        if (root / "examples" / name).is_file():
            return root / "examples" / name
    raise MachineError(f"examples/{name} is not here; run the demo in a checkout of the sources")


def draw_plans() -> list[Drawing]:
    """The drawings for the report."""
    placement = plans.Placement(RANKS, NODES)
    node_of_rank = [placement.node_of(rank) for rank in range(RANKS)]
    drawings = []
    for name, about in _DRAWN.items():
        plan = plans.find_algorithm(name).plan(placement)
        drawings.append(Drawing(name, draw_plan(plan, node_of_rank, standalone=False), about))
    return drawings


def run_demo(quick: bool, output: Path) -> int:
    """Runs everything; the exit status."""
    machine = describe_machine()
    console().print(
        f"unisono {machine['unisono']}: {RANKS} ranks of {NODES} virtual nodes on "
        f"{machine['processor']}, {machine['cores']} cores",
        highlight=False,
    )
    request = Request(ranks=RANKS, nodes=NODES, seconds=0.01 if quick else 0.1)
    rows = run_with_progress(request, list_demo_cases(request, quick))
    show(summary_of(rows))
    status = conclude(rows) or check_complete(rows)
    console().print()
    training = run_digits(quick)
    if training is None or not training.ok:
        status = 1
    output.mkdir(parents=True, exist_ok=True)
    write_document(output / "bench.json", request, rows)
    report = output / "report.html"
    write_report(report, rows, title="Unisono demo", drawings=draw_plans(), training=training)
    console().print(f"\nreport: {report}", highlight=False)
    return status


def check_complete(rows: Sequence[Row]) -> int:
    """1, and a complaint, if an algorithm of the registry did not run though it can serve."""
    placement = plans.Placement(RANKS, NODES)
    ran = {(row.collective, row.algorithm) for row in rows}
    missing = [
        entry.plan_name
        for entry in plans.algorithms()
        if (entry.collective, entry.name) not in ran and not entry.why_not(placement)
    ]
    if missing:
        complain(f"these did not run: {', '.join(missing)}")
    return 1 if missing else 0


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m unisono.demo", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer and smaller sizes, less training"
    )
    parser.add_argument("--output", type=Path, default=Path("demo"), help="folder of the report")
    arguments = parser.parse_args()
    try:
        return run_demo(arguments.quick, arguments.output)
    except Error as error:
        complain(str(error))
        return 1
    except OSError as error:
        complain(f"cannot write to {arguments.output}: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
