"""Lines of the kernel's log: errors of GPUs (Xid), processes killed for their memory, ports."""

import re
from collections.abc import Iterator

from unisono.records.logs.events import Event, Line, What

__all__ = ["read_kernel"]

_HOST = re.compile(r"(\S{1,120}) kernel: ")
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.\d)?"
                  r"\): (\d{1,4}), ?(.{0,200})")  # fmt: skip
_PROCESS = re.compile(r"pid='?(\d{1,9})")
_KILLED = re.compile(r"[Oo]ut of memory: Kill(?:ed)? process (\d{1,9}) \(([^)]{0,40})\)")
_PORT = re.compile(
    r"(mlx\d_core \S{1,20} \S{1,20}|mlx\d_\d{1,3}|bnxt_en \S{1,20} \S{1,20}): "
    r"(?:[Pp]ort:? \d{1,3} )?(?:NIC )?[Ll]ink (?:is )?[Dd](?:own|OWN)\b"
)  # fmt: skip


def read_kernel(line: Line) -> Iterator[Event]:
    """What a line of the kernel says."""
    host = _HOST.search(line.text)
    on = host[1] if host else ""
    text = line.text[:300]
    if found := _XID.search(line.text):
        process = _PROCESS.search(found[4])
        yield Event(
            What.device, text, line.number, host=on, card=f"{found[1][-4:]}:{found[2]}".lower(),
            code=int(found[3]), process=int(process[1]) if process else 0,
            reason=f"Xid {found[3]}",
        )  # fmt: skip
    elif found := _KILLED.search(line.text):
        yield Event(What.out_of_memory, text, line.number, host=on, process=int(found[1]),
                    reason=found[2])  # fmt: skip
    elif found := _PORT.search(line.text):
        yield Event(What.link, text, line.number, host=on, reason=found[1])
