"""The Prometheus endpoint: `docs/how-to/metrics.md` lists the metrics."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from unisono.errors import Error, MisuseError
from unisono.extras import missing_extra
from unisono.metrics.calls import Calls, Finished, Look, Source
from unisono.metrics.endpoint import server_of
from unisono.metrics.inspector import Inspector
from unisono.metrics.telemetry import Telemetry

__all__ = ["Exporter", "Server", "serve"]

# The duration of a call, from 10 us to 100 s.
_BUCKETS = tuple(round(digit * 10.0**power, 9) for power in range(-5, 2) for digit in (1, 2.5, 5))
_SIZES = ((1 << 10, "0-1KiB"), (64 << 10, "1KiB-64KiB"), (1 << 20, "64KiB-1MiB"),
          (16 << 20, "1MiB-16MiB"), (256 << 20, "16MiB-256MiB"))  # fmt: skip
_LARGEST = "256MiB-"
_DAY_S = 86_400.0
# After its last look, a communicator's numbers stay for so long: scrapes are more frequent.
_KEPT_S = 600.0


def _prometheus() -> Any:
    try:
        import prometheus_client
    except ImportError:
        raise missing_extra("Exporter", "prometheus_client", "metrics") from None
    return prometheus_client


def size_label(size: int) -> str:
    """The class of sizes that a call is counted in; each begins where the one before ends."""
    return next((label for end, label in _SIZES if size < end), _LARGEST)


class Exporter:
    """Collects what a source tells, for a registry of prometheus_client.

    `update` reads the source; a scrape gives what the last update found.
    """

    def __init__(
        self, source: Source, telemetry: Telemetry | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`now` is a clock in seconds: communicators that are gone are forgotten after a while."""
        client = _prometheus()
        self._core = __import__("prometheus_client.core", fromlist=["core"])
        self._source, self._telemetry = source, telemetry
        self._now = now
        self._lock = threading.Lock()
        self._calls, self._inspector = Calls(), Inspector()
        self._unseen: dict[tuple[str, int, int], list[int]] = {}
        self._failed: set[tuple[str, int, int]] = set()
        # By communicator: when it was last there, and the time series that it has.
        self._seen_s: dict[str, float] = {}
        self._series: dict[str, set[tuple[Any, tuple[str, ...]]]] = {}
        owner = ("communicator", "group", "rank")

        def counter(name: str, about: str, *labels: str) -> Any:
            return client.Counter(f"unisono_{name}", about, (*owner, *labels), registry=None)

        def gauge(name: str, about: str) -> Any:
            return client.Gauge(f"unisono_{name}", about, owner, registry=None)

        self._total = counter("calls", "Calls that are over.", "collective", "path", "state")
        self._bytes = counter("call_bytes", "Bytes of calls that have ended: the larger of input "
                              "and output.", "collective", "path")  # fmt: skip
        self._fallbacks = counter("fallbacks", "Calls that ran by another path than the chosen "
                                  "one.", "collective", "chosen_path", "path",
                                  "reason")  # fmt: skip
        self._errors = counter("errors", "Failures of communicators.", "kind")
        self._missed = counter("calls_unseen", "Calls that had left the record before it was read: "
                               "no other metric has them.", "what")  # fmt: skip
        self._seconds = client.Histogram(
            "unisono_call_duration_seconds", "Time from a call's start to its end.",
            ("communicator", "group", "collective", "size"), registry=None, buckets=_BUCKETS,
        )  # fmt: skip
        self._open = gauge("calls_under_way", "Calls that were made and are not over.")
        self._age = gauge("oldest_call_age_seconds", "How long the oldest call under way has been "
                          "so; 0 without one.")  # fmt: skip
        self._suspect = client.Gauge(
            "unisono_suspect", "How sure the doctor is that the rank holds its job up: 0 to 1.",
            ("job", "rank"), registry=None,
        )  # fmt: skip
        self._failed_looks = client.Counter("unisono_failed_looks", "Looks at the records that "
                                            "failed.", registry=None)  # fmt: skip
        self._silent = client.Gauge("unisono_silent_ranks", "Ranks on this host that gave no "
                                    "answer at the last look.", registry=None)  # fmt: skip

    def update(self) -> None:
        """Reads the source.

        Raises:
            Error: The source cannot be read. This is counted, and the numbers stay.
        """
        try:
            look = self._source()
        except Error:
            self._failed_looks.inc()
            raise
        with self._lock:
            calls = self._calls.new(look.records)
            for call in calls:
                self._count(call)
            self._count_missed(look)
            self._look_at_open(look)
            self._silent.set(look.silent)
            self._suspect.clear()
            for of_job, confidence in look.suspects.items():
                self._suspect.labels(*of_job).set(confidence)
            self._forget(look)
        if self._telemetry is not None:
            self._telemetry.emit(calls, look.records)

    def collect(self) -> Iterator[Any]:
        """The families, as a registry wants them."""
        with self._lock:
            for metric in (self._total, self._bytes, self._fallbacks, self._errors, self._missed,
                           self._seconds, self._open, self._age, self._silent, self._suspect,
                           self._failed_looks):  # fmt: skip
                yield from metric.collect()
            yield from self._inspector.collect(self._core)

    def _forget(self, look: Look) -> None:
        """Communicators that are gone: a host may run jobs for as long as it lives."""
        now = self._now()
        self._seen_s.update((record["communicator"], now) for record in look.records)
        for communicator in [one for one, at in self._seen_s.items() if now - at > _KEPT_S]:
            del self._seen_s[communicator]
            self._calls.forget(communicator)
            for metric, labels in self._series.pop(communicator, ()):
                metric.remove(*labels)
            self._failed = {one for one in self._failed if one[0] != communicator}
            for key in [one for one in self._unseen if one[0] == communicator]:
                del self._unseen[key]

    def _of(self, metric: Any, *labels: str) -> Any:
        """A time series of the communicator that the first label names."""
        self._series.setdefault(labels[0], set()).add((metric, labels))
        return metric.labels(*labels)

    def _count(self, call: Finished) -> None:
        owner = _owner(call.record)
        entry = call.entry
        calls = entry.get("messages", 1)
        self._of(self._total, *owner, call.collective, entry["path"], entry["state"]).inc(calls)
        if "fallback" in entry:
            ran = (entry["chosen_path"], entry["path"], entry["fallback"])
            self._of(self._fallbacks, *owner, call.collective, *ran).inc(calls)
        if entry["state"] == "ended":
            self._of(self._bytes, *owner, call.collective, entry["path"]).inc(entry["bytes"])
            labels = (*owner[:2], call.collective, size_label(entry["bytes"]))
            self._of(self._seconds, *labels).observe(call.seconds)
        self._inspector.add(call)

    def _count_missed(self, look: Look) -> None:
        for record in look.records:
            key = (record["communicator"], record["epoch"], record["rank"])
            before = self._unseen.setdefault(key, [0, 0])
            for place, what in enumerate(("collective", "message")):
                more = self._calls.unseen[key][place] - before[place]
                self._of(self._missed, *_owner(record), what).inc(more)
                self._inspector.miss(bool(place), record["node"], more)
                before[place] += more
            failure = record.get("failure")
            if failure and key not in self._failed:
                self._failed.add(key)
                self._of(self._errors, *_owner(record), failure["kind"]).inc()

    def _look_at_open(self, look: Look) -> None:
        self._open.clear()
        self._age.clear()
        for record in look.records:
            made = [
                entry["scheduled_ns"] for entry in [*record["collectives"], *record["messages"]]
                if entry["state"] in ("scheduled", "started") and not entry.get("captured")
            ]  # fmt: skip
            age = record["clock"]["monotonic_ns"] - min(made) if made else 0
            self._open.labels(*_owner(record)).set(len(made))
            self._age.labels(*_owner(record)).set(max(age, 0) / 1e9)


def _owner(record: dict[str, Any]) -> tuple[str, str, str]:
    """The communicator, its group's name, and the rank in the job."""
    world_ranks, rank = record["world_ranks"], record["rank"]
    return record["communicator"], record["group"], str(world_ranks[rank] if world_ranks else rank)


class Server:
    """An endpoint and the thread that reads the source for it, until `close`."""

    def __init__(self, exporter: Exporter, host: str, port: int, interval_s: float) -> None:
        client = _prometheus()
        registry = client.CollectorRegistry(auto_describe=False)
        registry.register(exporter)
        exporter.update()
        self._server = server_of(client.make_wsgi_app(registry), host, port)
        self._serving = threading.Thread(
            target=self._server.serve_forever, daemon=True, name="unisono metrics endpoint"
        )
        self._serving.start()
        self.port: int = self._server.server_port
        self._exporter, self._interval_s = exporter, interval_s
        self._end = threading.Event()
        self._reading = threading.Thread(target=self._read, daemon=True, name="unisono metrics")
        self._reading.start()

    def _read(self) -> None:
        next_s = time.monotonic()
        while not self._end.wait(max(next_s - time.monotonic(), 0)):
            # A communicator of this process may be gone, and the folder of sockets unusable.
            with contextlib.suppress(Error):
                self._exporter.update()
            next_s = max(next_s + self._interval_s, time.monotonic())

    def close(self) -> None:
        """Reads the source once more, and ends the endpoint and its threads."""
        self._end.set()
        self._reading.join()
        with contextlib.suppress(Error):
            self._exporter.update()
        self._server.shutdown()
        self._server.server_close()
        self._serving.join()


def serve(
    source: Source, *, port: int = 9464, host: str = "127.0.0.1", interval_s: float = 1.0,
    telemetry: Telemetry | None = None,
) -> Server:  # fmt: skip
    """Serves metrics at http://host:port/metrics.

    Args:
        source: `of_communicators(comm, ...)` for those of this process, `of_host()` for all ranks
            of this user on this host.
        port: 0 takes a free one: see `Server.port`.
        host: The address to listen on.
        interval_s: How often the record is read. It holds the newest `UNISONO_RECORD_SLOTS` calls;
            calls that have left it before are counted as unseen.
        telemetry: Where spans and log records go, too.

    Raises:
        MachineError: prometheus_client is not installed, or the port is taken.
        MisuseError: The interval is none.
    """
    if not 0 < interval_s <= _DAY_S:
        raise MisuseError(f"interval_s is {interval_s}; more than 0 is needed, and at most a day")
    return Server(Exporter(source, telemetry), host, port, interval_s)
