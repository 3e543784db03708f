"""Calls as spans, and failures as log records, of OpenTelemetry."""

from collections.abc import Iterable, Sequence
from typing import Any

from unisono.extras import missing_extra
from unisono.metrics.calls import Finished

__all__ = ["Telemetry"]

_SCOPE = "unisono"
_SEVERITY_ERROR = 17  # SeverityNumber.ERROR of the data model


class Telemetry:
    """Emits a span for each call that is over, and a log record for each communicator's failure.

    Args:
        tracers: A TracerProvider of opentelemetry-sdk; without one, the global one.
        loggers: A LoggerProvider of it; without one, the global one.

    Raises:
        MachineError: opentelemetry-sdk is not installed.
    """

    def __init__(self, tracers: Any = None, loggers: Any = None) -> None:
        try:
            from opentelemetry import _logs, trace
        except ImportError:
            raise missing_extra("Telemetry", "opentelemetry-sdk", "opentelemetry") from None
        self._trace, self._logs = trace, _logs
        self._tracer = (tracers or trace.get_tracer_provider()).get_tracer(_SCOPE)
        self._logger = (loggers or _logs.get_logger_provider()).get_logger(_SCOPE)
        self._told: set[tuple[str, int, int]] = set()

    def emit(self, calls: Sequence[Finished], records: Iterable[dict[str, Any]]) -> None:
        """Emits what is new; a failure is reported once."""
        for call in calls:
            self._emit_span(call)
        for record in records:
            key = (record["communicator"], record["epoch"], record["rank"])
            failure = record.get("failure")
            if failure and key not in self._told:
                self._told.add(key)
                self._emit_log(record, failure)

    def _emit_span(self, call: Finished) -> None:
        entry = call.entry
        attributes = {**_attributes(call.record), "unisono.bytes": entry["bytes"],
                      "unisono.plan": entry["plan"], "unisono.protocol": entry["protocol"],
                      "unisono.path": entry["path"],
                      "unisono.sequence": entry["sequence"]}  # fmt: skip
        if "fallback" in entry:
            attributes |= {"unisono.fallback": entry["fallback"],
                           "unisono.chosen_path": entry["chosen_path"]}  # fmt: skip
        if call.is_message:
            attributes["unisono.peer"] = entry["peer"]
        span = self._tracer.start_span(call.collective, start_time=call.begin_ns,
                                       attributes=attributes)  # fmt: skip
        if entry["state"] != "ended":
            span.set_status(self._trace.StatusCode.ERROR, entry["state"])
        span.end(end_time=max(call.end_ns, call.begin_ns))

    def _emit_log(self, record: dict[str, Any], failure: dict[str, Any]) -> None:
        ahead = record["clock"]["wall_ns"] - record["clock"]["monotonic_ns"]
        self._logger.emit(
            self._logs.LogRecord(
                timestamp=failure["time_ns"] + ahead,
                severity_number=self._logs.SeverityNumber(_SEVERITY_ERROR),
                severity_text="ERROR", body=failure["message"],
                attributes={**_attributes(record), "unisono.failure.kind": failure["kind"],
                            "unisono.failure.rank": failure["rank"]},
            )
        )  # fmt: skip


def _attributes(record: dict[str, Any]) -> dict[str, Any]:
    return {"unisono.group": record["group"], "unisono.communicator": record["communicator"],
            "unisono.rank": record["rank"], "unisono.ranks": record["ranks"],
            "host.name": record["node"], "process.pid": record["process"]}  # fmt: skip
