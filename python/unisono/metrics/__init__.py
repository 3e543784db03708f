"""Metrics of running jobs for Prometheus, and traces and logs for OpenTelemetry.

Both are made from the record, which a thread or another process reads now and then: calls take no
longer for it. `pip install 'unisono[metrics]'` has what `Exporter` and `serve` need,
`pip install 'unisono[opentelemetry]'` what `Telemetry` needs.
"""

from unisono.arguments import guard
from unisono.metrics.calls import Calls, Finished, Source, of_communicators, of_host
from unisono.metrics.exporter import Exporter, Server, serve
from unisono.metrics.telemetry import Telemetry

__all__ = [
    "Calls", "Exporter", "Finished", "Server", "Source", "Telemetry", "of_communicators",
    "of_host", "serve",
]  # fmt: skip

guard(globals())
