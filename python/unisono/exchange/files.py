"""Files with plans, whoever's they are."""

from pathlib import Path

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.exchange.mscclpp import write_mscclpp_json
from unisono.exchange.read_xml import read_msccl_xml
from unisono.exchange.write_xml import write_msccl_xml

__all__ = ["read_plan", "targets", "write_plan"]

# A plan of 2^20 steps has some 100 MB.
_MAX_FILE_BYTES = 256 << 20


def targets() -> dict[str, native.ForeignExecutor]:
    """The executors of others that plans can be written for, by name, with their limits."""
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
    if target not in known:
        raise MisuseError(f"there is no target '{target}'; there are {', '.join(known)}")
    if known[target].format == "mscclpp-json":
        return write_mscclpp_json(plan, known[target])
    return write_msccl_xml(plan, known[target])


def read_plan(path: str | Path) -> native.Plan:
    """The plan in a file: our text or JSON, or MSCCL's XML.

    Raises:
        MisuseError: It cannot be read, or holds no plan, or a wrong one.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise MisuseError(f"{path} has more than {_MAX_FILE_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise MisuseError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MisuseError(f"{path} is not text") from None
    start = text.lstrip()[:1]
    try:
        if start == "<":
            return read_msccl_xml(text)
        return native.Plan.from_json(text) if start == "{" else native.Plan.from_text(text)
    except MisuseError as error:
        raise MisuseError(f"{path}: {error}") from None
