"""Files with plans in any supported format."""

import codecs
from pathlib import Path

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.exchange.mscclpp import write_mscclpp_json
from unisono.exchange.read_xml import read_msccl_plans, read_msccl_xml
from unisono.exchange.write_xml import write_msccl_xml
from unisono.files import read_bounded
from unisono.names import check_names

__all__ = ["holds_xml", "read_plan", "read_plans", "targets", "write_plan"]

# A plan of 2^20 steps has some 100 MB.
_MAX_FILE_BYTES = 256 << 20


def targets() -> dict[str, native.ForeignExecutor]:
    """The third-party runtimes that plans can be written for, by name, with their limits."""
    return {executor.name: executor for executor in native.foreign_executors()}


def write_plan(plan: native.Plan, target: str) -> str:
    """A plan as the file of an executor.

    Args:
        plan: The plan.
        target: "msccl", "executor-nccl", "rccl" (MSCCL's XML), or "mscclpp" (its JSON, for
            one-sided plans).

    Raises:
        MisuseError: There is no such target, or it cannot carry the plan.
    """
    known = targets()
    check_names("target", [target], list(known))
    if known[target].format == "mscclpp-json":
        return write_mscclpp_json(plan, known[target])
    return write_msccl_xml(plan, known[target])


def read_plan(path: str | Path) -> native.Plan:
    """The plan in a file: our text or JSON, or MSCCL's XML. `read_plans` says which encodings.

    Where the file serves calls in place and out of place, this is the plan for the latter.

    Raises:
        MisuseError: It cannot be read, or holds no plan, or a wrong one.
    """
    return _read(Path(path), every=False)[0]


def read_plans(path: str | Path) -> list[native.Plan]:
    """All plans of a file: one, or where MSCCL's XML serves both, out of place and in place.

    Text is UTF-8, or what its byte-order mark says: UTF-8 or UTF-16.

    Raises:
        MisuseError: It cannot be read, or holds no plan, or a wrong one.
    """
    return _read(Path(path), every=True)


def holds_xml(path: str | Path) -> bool:
    """Whether a file holds MSCCL's XML; MisuseError if it cannot be read."""
    return _text_of(Path(path)).lstrip().startswith("<")


def _read(path: Path, *, every: bool) -> list[native.Plan]:
    text = _text_of(path)
    start = text.lstrip()[:1]
    try:
        if start == "<":
            return read_msccl_plans(text) if every else [read_msccl_xml(text)]
        return [native.Plan.from_json(text) if start == "{" else native.Plan.from_text(text)]
    except MisuseError as error:
        raise MisuseError(f"{path}: {error}") from None


def _text_of(path: Path) -> str:
    content = read_bounded(path, _MAX_FILE_BYTES)
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if is_utf16 else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise MisuseError(
            f"{path} is not text: byte {error.start} is no {encoding.removesuffix('-sig').upper()}"
        ) from None
