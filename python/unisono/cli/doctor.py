"""`unisono doctor`: says which call of a job is stuck, and which ranks are to blame."""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unisono.cli.output import (
    Html,
    Json,
    print_entries,
    print_table,
    print_text,
    put_json,
    warn,
    write_file,
)

if TYPE_CHECKING:
    from unisono.doctor import Diagnosis

_MOST_LINES = 20


def doctor(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES",
            help="Dumps and logs of the job, or folders of them.",
            exists=True,
            show_default=False,
        ),
    ],
    json: Json = None,
    html: Html = None,
    timeline: Annotated[
        Path | None,
        typer.Option(help="Write Unisono's records as a time-line for Perfetto.", metavar="FILE"),
    ] = None,
    flight_recorder: Annotated[
        Path | None,
        typer.Option(
            help="Write Unisono's records into this folder as PyTorch's Flight Recorder does, "
            "for torchfrtrace.",
            metavar="FOLDER",
        ),
    ] = None,
) -> None:
    """Say which call of a job is stuck, and which ranks are to blame.

    Reads Unisono's records, PyTorch's Flight Recorder dumps, NCCL's RAS reports, NCCLX's commDump,
    and logs (NCCL_DEBUG, PyTorch, torchrun, unisono run, Slurm, MPI, the kernel), in any mixture,
    in any folders, and compressed with gzip. The exit status is 0 where nothing is wrong, 3 with
    another verdict, and 4 where the files do not show it.
    """
    # `--help` does not wait for NumPy, nor a verdict for what it does not need.
    from unisono.doctor import diagnose, read_files

    found = diagnose(read_files(files))
    if timeline is not None or flight_recorder is not None:
        from unisono.records.unisono_record import read_records

        records = read_records(files)
    if timeline is not None:
        from unisono.doctor.perfetto import perfetto

        write_file(timeline, json_module.dumps(perfetto(records)))
    if flight_recorder is not None:
        from unisono.doctor.flight_writer import write_flight_recorder

        write_flight_recorder(records, flight_recorder)
    if not put_json(json, found.document()):
        _show(found)
    if html is not None:
        from unisono.report.hang import render_hang

        write_file(html, render_hang(found))
    if found.exit_status:
        raise typer.Exit(found.exit_status)


def _show(found: "Diagnosis") -> None:
    for problem in found.problems:
        warn(problem)
    confidence = f" (confidence {found.confidence:.2f})" if found.confidence else ""
    print_text(f"{found.verdict.capitalize()}{confidence}\n\n{found.paragraph}\n")
    for one in found.others:
        print_text(f"{one.verdict.capitalize()} (confidence {one.confidence:.2f})\n\n{one.text}\n")
    print_entries(
        (name, lines)
        for name, lines in (
            ("Evidence", found.evidence),
            ("Who waits for whom", found.cycle),
            ("What would help", found.would_help),
            ("Notes", found.notes),
            ("No dumps of", [", ".join(found.missing[:_MOST_LINES])]),
        )
        if any(lines)
    )
    # Groups in which some rank is behind come first.
    groups = sorted(found.groups, key=lambda one: (not one.behind, one.last_ended == one.furthest))
    print_table(
        ("group", "ranks", "dumps", "all ended", "furthest", "behind"),
        (
            (
                one.name,
                one.ranks,
                one.dumps,
                *("-" if number < 0 else number for number in (one.last_ended, one.furthest)),
                ", ".join(one.behind[:_MOST_LINES]),
            )
            for one in groups[:_MOST_LINES]
        ),
        right=("ranks", "dumps", "all ended", "furthest"),
        prose=("behind",),
        title=f"Groups ({len(groups)})",
    )
