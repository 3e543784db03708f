"""The formats that plans are written in, and for whom."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from unisono import plans
from unisono.errors import MisuseError
from unisono.exchange import targets, write_plan
from unisono.names import check_names

FORMAT_HELP = "text, json, msccl-xml, or mscclpp-json for one-sided plans."


class Format(StrEnum):
    """How a plan is written."""

    text = "text"
    json = "json"
    msccl_xml = "msccl-xml"
    mscclpp_json = "mscclpp-json"

    @classmethod
    def of(cls, path: Path | None) -> "Format":
        """The format that a file's name says."""
        suffix = path.suffix if path is not None else ""
        return {".json": cls.json, ".xml": cls.msccl_xml}.get(suffix, cls.text)


PlanFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A plan, as text, JSON or MSCCL's XML.")
]
Target = Annotated[
    str | None,
    typer.Option(
        help="Whose limits the plan must keep: msccl, executor-nccl, rccl (the default for XML), "
        "mscclpp.",
    ),
]


def executor_of(form: Format, target: str | None) -> str | None:
    """For whom a plan is compiled; None: for us.

    Raises:
        MisuseError: There is no such target, or it reads another format.
    """
    defaults = {Format.msccl_xml: "rccl", Format.mscclpp_json: "mscclpp"}
    if target is None:
        return defaults.get(form)
    known = targets()
    check_names("target", [target], list(known))
    if form in defaults and known[target].format != form.value:
        raise MisuseError(f"{target} reads {known[target].format}, not {form.value}")
    return target


def written(plan: plans.Plan, form: Format, target: str | None) -> str:
    """A plan in a format; MisuseError if its executor cannot carry it."""
    if form is Format.text:
        return plan.to_text()
    if form is Format.json:
        return plan.to_json()
    executor = executor_of(form, target)
    assert executor is not None  # both formats have a default
    return write_plan(plan, executor)
