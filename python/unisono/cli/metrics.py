"""`unisono metrics`: metrics of this host's ranks for Prometheus."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unisono.cli.output import progress_console, warn
from unisono.extras import missing_extra

if TYPE_CHECKING:
    from unisono.metrics import Telemetry

# One look may find as many calls as the records of a host's ranks hold; more are dropped.
_MOST_WAITING = 1 << 17


def metrics(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 9464,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="Of this job only: its world's comm.id.")
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds between two looks at the records.")
    ] = 1.0,
    otlp: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send traces and logs to this OTLP/HTTP endpoint, too."),
    ] = None,
) -> None:
    """Serve metrics of all ranks of this user on this host, at /metrics, for Prometheus.

    The ranks need nothing for it: each answers on its live socket. Ctrl-C and SIGTERM end it, and
    it sends the traces and logs that it holds.
    """
    # Imported here, because they take longer than --help may.
    from unisono.metrics import of_host, serve
    from unisono.metrics.endpoint import is_loopback

    signal.signal(signal.SIGTERM, _end)
    telemetry, flush = (None, None) if otlp is None else _telemetry(otlp.rstrip("/"))
    server = serve(of_host(job), port=port, host=host, interval_s=interval, telemetry=telemetry)
    if not is_loopback(host):
        warn(f"everybody who reaches {host}:{server.port} can read these metrics")
    progress_console().print(f"http://{host}:{server.port}/metrics", highlight=False)
    try:
        threading.Event().wait()
    finally:
        server.close()
        if flush is not None:
            flush()


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _telemetry(url: str) -> tuple["Telemetry", Callable[[], None]]:
    """What takes traces and logs, and what sends those that wait to be sent."""
    try:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from unisono.metrics import Telemetry
    except ImportError as missing:
        raise missing_extra("--otlp", str(missing.name), "opentelemetry") from None
    tracers: Any = TracerProvider()
    spans = BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces"), max_queue_size=_MOST_WAITING)
    tracers.add_span_processor(spans)
    loggers: Any = LoggerProvider()
    loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(f"{url}/v1/logs")))

    def flush() -> None:
        tracers.shutdown()
        loggers.shutdown()

    return Telemetry(tracers, loggers), flush
