"""Numbers with a unit and where they come from: "25 GB/s [olcf]"."""

import re
from collections.abc import Callable
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator

_SOURCED = re.compile(r"\s*([0-9][0-9_.eE+-]*)\s*([A-Za-z/]*)\s*\[([A-Za-z0-9_.-]+)\]\s*")

_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_GB_S = {"MB/s": 1e-3, "GB/s": 1.0, "TB/s": 1e3, "Mb/s": 1e-3 / 8, "Gb/s": 1 / 8, "Tb/s": 1e3 / 8}
_TFLOP_S = {"GFLOP/s": 1e-3, "TFLOP/s": 1.0, "PFLOP/s": 1e3}
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 1e3, "MB": 1e6, "GB": 1e9}

_PLAIN = re.compile(r"\s*([0-9][0-9_.eE+-]*)\s*([A-Za-z/]*)\s*")
_UNITS = {"duration": _NS, "bandwidth": _GB_S, "size": _BYTES, "speed": _TFLOP_S}


class Number(NamedTuple):
    """A number, the name of its source, and the unit of its kind: ns, GB/s, B or none."""

    value: float
    source: str
    unit: str = ""

    def text(self) -> str:
        """As a cluster file has it."""
        value = f"{self.value:.0f}" if self.unit == "B" else f"{self.value:.6g}"
        return f"{value}{f' {self.unit}' if self.unit else ''} [{self.source}]"


def _reader(kind: str, units: dict[str, float], example: str) -> Callable[[object], Number]:
    def read(text: object) -> Number:
        if isinstance(text, Number):
            return text
        match = _SOURCED.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise ValueError(f"'{text}' is no {kind} with a source; write it as {example}")
        digits, unit, source = match.groups()
        base = next(name for name, factor in units.items() if factor == 1)
        return Number(_value(text, kind, units, digits, unit), source, base)

    return read


def _value(text: object, kind: str, units: dict[str, float], digits: str, unit: str) -> float:
    if unit not in units:
        known = ", ".join(name for name in units if name) or "none"
        raise ValueError(
            f"'{text}' has {f'the unit {unit}' if unit else 'no unit'}; "
            f"a {kind} has one of: {known}"
        )
    try:
        return float(digits) * units[unit]
    except ValueError:
        raise ValueError(f"'{digits}' in '{text}' is no number") from None


def plain_reader(kind: str, example: str) -> Callable[[object], float]:
    """Reads a duration (ns), bandwidth (GB/s), size (bytes) or speed (TFLOP/s) without a source."""
    units = _UNITS[kind]

    def read(text: object) -> float:
        if isinstance(text, float):
            return text
        match = _PLAIN.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise ValueError(f"'{text}' is no {kind}; write it as {example}")
        return _value(text, kind, units, *match.groups())

    return read


Duration = Annotated[Number, BeforeValidator(_reader("duration", _NS, '"3.7 us [source]"'))]
Bandwidth = Annotated[Number, BeforeValidator(_reader("bandwidth", _GB_S, '"25 GB/s [source]"'))]
Size = Annotated[Number, BeforeValidator(_reader("size", _BYTES, '"512 KiB [source]"'))]
Plain = Annotated[Number, BeforeValidator(_reader("number", {"": 1.0}, '"8 [source]"'))]
