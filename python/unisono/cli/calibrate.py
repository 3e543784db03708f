"""`unisono calibrate`: fits a cluster's numbers to what a bench has measured."""

from pathlib import Path
from typing import Annotated

import typer

from unisono.bench.peers import OURS
from unisono.cli.models import takes_nccls_model
from unisono.cli.nccl import calibrate_nccl
from unisono.cli.output import (
    Json,
    Output,
    print_table,
    print_text,
    put_json,
    split_names,
    write_file,
)
from unisono.cli.simulation import (
    NETWORK_MODELS,
    load_simulator,
    print_errors,
)
from unisono.cli.watch import Counted
from unisono.errors import MisuseError
from unisono.names import check_names


def calibrate(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="What benches wrote: `unisono bench --json`, nccl-tests' output ... - is pasted."
        ),
    ],
    cluster: Annotated[str, typer.Option(help="Where to begin: a name, or a YAML file.")],
    output: Output = None,
    number: Annotated[
        list[str] | None,
        typer.Option(
            help="Numbers to fit, as --sources names them. Default: what the points show."
        ),
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(help="Algorithms to leave out, as one_shot.")
    ] = None,
    implementation: Annotated[
        str, typer.Option(help="Whose measurements: unisono, nccl, openmpi ...")
    ] = OURS,
    model: Annotated[
        str | None, typer.Option(help="loggops, flows (the default) or alpha_beta.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Steps of the fit, at most.")] = 15,
    ranks: Annotated[
        int, typer.Option(min=0, help="The ranks of nccl-tests' output, if it lists no devices.")
    ] = 0,
    nodes: Annotated[
        int, typer.Option(min=0, help="The nodes of nccl-tests' output, if it lists no devices.")
    ] = 0,
    json: Json = None,
) -> None:
    """Fit a cluster's numbers to measurements.

    Half of the points are fitted; the errors are shown on the other half, too.
    Writes the fitted cluster file to --output.

    With nccl-tests' output, a machine of format 2, or --implementation nccl on a machine of NCCL's
    model, NCCL's calibration is fitted instead.
    """
    simulator = load_simulator()
    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise MisuseError(f"--output is {output}; a cluster file ends with .yaml")
    only_events = {"--number": number, "--skip": skip, "--model": model}
    if takes_nccls_model(cluster, implementation, files, only_events):
        calibrate_nccl(files, cluster, output, ranks, nodes, json)
        return
    model = model or "flows"
    check_names("model", [model], NETWORK_MODELS)
    chosen = simulator.load_cluster(cluster)
    left_out = split_names(skip or [])
    points = [
        point
        for file in files
        for point in simulator.read_measurements(file, implementation)
        if point.algorithm not in left_out
    ]
    with Counted(f"simulating {len(points)} points") as counted:
        found = simulator.calibrate(
            chosen, points, numbers=split_names(number or []), model=model, rounds=rounds,
            source=f"fitted by unisono calibrate to {', '.join(file.name for file in files)}",
            done=counted.advance,
        )  # fmt: skip
    if output is not None:
        write_file(output, simulator.to_yaml(found.file))
    decades = {
        "fitted": simulator.errors_by_decade(found.fitted),
        "held back": simulator.errors_by_decade(found.held),
    }
    document = {
        "cluster": chosen.name,
        "numbers": found.values,
        "before": found.before,
        "errors": {half: [vars(row) for row in rows] for half, rows in decades.items()},
    }
    if put_json(json, document, "calibrate"):
        return
    print_table(
        ("number", "before", "fitted", "unit"),
        [
            (place, f"{found.before[place]:.4g}", f"{value:.4g}", found.units[place])
            for place, value in found.values.items()
        ],
        right=("before", "fitted"),
    )
    for half, rows in decades.items():
        print_text(f"\n{half} points")
        print_errors(rows)
