"""Metrics of records: each call counts once, and what was missed is said."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from python.live.ranks import LIMIT_S, running, stop
from python.metrics.records import WALL_NS, collective, message, record
from unisono.errors import MachineError, MisuseError
from unisono.metrics import Calls, Exporter, Telemetry, endpoint, of_communicators, of_host, serve
from unisono.metrics.calls import Look
from unisono.metrics.inspector import size_class
from unisono.testing import run_ranks

client = pytest.importorskip("prometheus_client")
parser = pytest.importorskip("prometheus_client.parser")
OWNER = {"communicator": "5", "group": "world", "rank": "0"}


class Fed:
    """A source that gives what it is told to."""

    def __init__(self) -> None:
        self.look = Look([])

    def __call__(self) -> Look:
        return self.look


def values(exporter: Exporter) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(exporter)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in registry.collect() for sample in family.samples
    }  # fmt: skip


def of(found: dict[Any, float], name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def test_each_call_is_told_once_and_what_left_the_record_is_counted() -> None:
    calls = Calls()
    first = [collective(0), collective(1), collective(2, state="started")]
    assert [one.entry["sequence"] for one in calls.new([record(first)])] == [0, 1]
    again = [collective(1), collective(2), collective(3, state="failed")]
    assert [one.entry["sequence"] for one in calls.new([record(again)])] == [2, 3]
    assert calls.unseen["5", 0, 0] == [0, 0]
    # 4 to 6 came and left.
    [late] = calls.new([record([collective(7)], [message(2, 3), message(5, state="scheduled")])])[
        :1
    ]
    assert late.entry["sequence"] == 7
    assert calls.unseen["5", 0, 0] == [3, 2]
    assert calls.new([record([collective(7)], [message(2, 3)])]) == []
    # Another tag counts apart, and so does another epoch; what a graph holds is no call.
    others = [message(0, message_tag=1), message(0, path="interpreter"),
              message(0, captured=True, message_tag=2)]  # fmt: skip
    assert len(calls.new([record([], others)])) == 2
    assert len(calls.new([record([collective(0)], epoch=1)])) == 1


def test_times_are_of_the_wall_clock() -> None:
    [call] = Calls().new([record([collective(0, 2.5)])])
    assert call.seconds == pytest.approx(0.0025)
    assert (call.begin_ns, call.end_ns) == (WALL_NS + 10**9, WALL_NS + 10**9 + 2_500_000)
    # A call on a stream was not seen to start.
    streamed = {**collective(0), "path": "interpreter"}
    del streamed["started_ns"]
    assert Calls().new([record([streamed])])[0].seconds == pytest.approx(0.001)


def test_the_metrics_of_known_calls() -> None:
    source = Fed()
    exporter = Exporter(source)
    failure = {"kind": "timeout", "rank": 1, "time_ns": 10**9, "message": "late"}
    source.look = Look(
        [record([collective(0, 1.0), collective(1, 4.0, bytes=1 << 20),
                 collective(2, state="failed"),
                 collective(3, state="started", scheduled_ns=10**12 - 5 * 10**9)],
                [message(0, 3)], failure=failure)],
        silent=1,
    )  # fmt: skip
    exporter.update()
    exporter.update()
    found = values(exporter)
    call = {**OWNER, "collective": "all_reduce", "path": "host"}
    assert of(found, "unisono_calls_total", **call, state="ended") == 2
    assert of(found, "unisono_calls_total", **call, state="failed") == 1
    sent = {**OWNER, "collective": "send", "path": "host"}
    assert of(found, "unisono_calls_total", **sent, state="ended") == 3
    assert of(found, "unisono_call_bytes_total", **call) == 4096 + (1 << 20)
    assert of(found, "unisono_errors_total", **OWNER, kind="timeout") == 1
    assert of(found, "unisono_calls_under_way", **OWNER) == 1
    assert of(found, "unisono_oldest_call_age_seconds", **OWNER) == 5
    assert of(found, "unisono_silent_ranks") == 1
    assert of(found, "unisono_calls_unseen_total", **OWNER, what="collective") == 0
    size = {"communicator": "5", "group": "world", "collective": "all_reduce"}
    name = "unisono_call_duration_seconds"
    assert of(found, f"{name}_count", **size, size="1KiB-64KiB") == 1
    assert of(found, f"{name}_sum", **size, size="1MiB-16MiB") == pytest.approx(0.004)
    assert of(found, f"{name}_bucket", **size, size="1MiB-16MiB", le="0.0025") == 0
    assert of(found, f"{name}_bucket", **size, size="1MiB-16MiB", le="0.005") == 1


def test_fallbacks_are_counted_with_their_reason() -> None:
    source = Fed()
    exporter = Exporter(source)
    fell = {"path": "ll128_all_pairs", "fallback": "not_mapped", "chosen_path": "tma_bulk"}
    source.look = Look([record([collective(0, **fell), collective(1, **fell), collective(2)])])
    exporter.update()
    labels = {"collective": "all_reduce", "chosen_path": "tma_bulk", "path": "ll128_all_pairs",
              "reason": "not_mapped"}  # fmt: skip
    found = values(exporter)
    assert of(found, "unisono_fallbacks_total", **OWNER, **labels) == 2
    assert len([name for name, _ in found if name == "unisono_fallbacks_total"]) == 1


def test_communicators_that_are_gone_are_forgotten_after_a_while() -> None:
    source, now = Fed(), [0.0]
    exporter = Exporter(source, now=lambda: now[0])
    failure = {"kind": "timeout", "rank": 1, "time_ns": 10**9, "message": "late"}
    gone = record([collective(3)], [message(0)], failure=failure)
    source.look = Look([gone, record([collective(0)], communicator="6")])
    exporter.update()
    source.look = Look([record([collective(0)], communicator="6")])
    for now[0], expected in ((599.0, {"5", "6"}), (601.0, {"6"})):
        exporter.update()
        known = {dict(labels).get("communicator") for _, labels in values(exporter)}
        assert known - {None} == expected
    # One of that name that comes again is a new one.
    source.look = Look([gone])
    exporter.update()
    labels = {**OWNER, "collective": "all_reduce", "path": "host", "state": "ended"}
    assert of(values(exporter), "unisono_calls_total", **labels) == 1


def test_a_look_that_fails_is_counted() -> None:
    def fails() -> Look:
        raise MachineError("the folder is somebody else's")

    exporter = Exporter(fails)
    with pytest.raises(MachineError):
        exporter.update()
    assert of(values(exporter), "unisono_failed_looks_total") == 1


def test_the_names_of_nccl_inspector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    source = Fed()
    exporter = Exporter(source)
    source.look = Look([record([collective(2, 1.0), collective(3, 4.0)], [message(0)])])
    exporter.update()
    found = values(exporter)
    device = {"version": "unisono", "slurm_job_id": "77", "node": "n0", "gpu": "unknown"}
    common = {**device, "comm_name": "world", "n_nodes": "unknown", "nranks": "2"}
    call = {**common, "collective": "AllReduce", "message_size": "4-5KB",
            "algo_proto": "ring_simple"}  # fmt: skip
    assert of(found, "nccl_collective_exec_time_microseconds", **call) == pytest.approx(2500)
    # Of 4096 bytes in 1 and in 4 ms, with 2 ranks: the bus factor is 1.
    assert of(found, "nccl_bus_bandwidth_gbs", **call) == pytest.approx(4096 / 2e-3 * 1e-9)
    sent = {**common, "p2p_operation": "Send", "message_size": "100-101B"}
    assert of(found, "nccl_p2p_exec_time_microseconds", **sent) == pytest.approx(1e6)
    assert of(found, "nccl_collectives_total", **device) == 4
    assert of(found, "nccl_collectives_dropped_total", **device) == 2
    # Its gauges are of the calls since the last scrape; its counters stay.
    found = values(exporter)
    assert of(found, "nccl_bus_bandwidth_gbs", **call) is None
    assert of(found, "nccl_p2p_total", **device) == 1
    assert [size_class(one) for one in (0, 1, 1023, 1024, 5 << 20)] == [
        "0B", "1-2B", "1023-1024B", "1-2KB", "5-6MB",
    ]  # fmt: skip


def test_communicators_of_this_process_over_http() -> None:
    def work(comm: Any) -> None:
        for _ in range(5):
            comm.all_reduce(np.ones(1024, np.float32))
        if comm.rank == 0:
            server = serve(of_communicators(comm), port=0, interval_s=0.1)
            try:
                url = f"http://127.0.0.1:{server.port}/metrics"
                text = urllib.request.urlopen(url).read().decode()
                with pytest.raises(MachineError, match="cannot listen on"):
                    serve(of_communicators(comm), port=server.port)
            finally:
                server.close()
            found = {
                sample.labels["collective"]: sample.value
                for family in parser.text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name == "unisono_calls_total" and sample.labels["state"] == "ended"
            }
            assert found["all_reduce"] == 5
        comm.barrier()

    run_ranks(2, work)


@pytest.mark.slow
def answer_to(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(request)
        said = b""
        while part := client.recv(1 << 16):
            said += part
        return said


def test_a_page_of_another_site_and_an_idle_connection_get_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint._Handler, "timeout", 0.2)
    server = serve(Fed(), port=0)
    try:
        for host, status in (
            (f"127.0.0.1:{server.port}", b"200"), ("localhost", b"200"), ("[::1]:80", b"200"),
            ("evil.example", b"403"), (f"evil.example:{server.port}", b"403"), ("10.0.0.7", b"403"),
        ):  # fmt: skip
            request = f"GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n".encode()
            said = answer_to(server.port, request)
            assert said.split()[1] == status, host
            assert (b"unisono_silent_ranks" in said) == (status == b"200")
        assert answer_to(server.port, b"GET /metrics HTTP/1.0\r\n\r\n").split()[1] == b"403"
        # Neither says anything more, and both are closed.
        assert answer_to(server.port, b"") == b""
        assert answer_to(server.port, b"GET /met") == b""
    finally:
        server.close()


def test_ranks_of_other_processes(tmp_path: Path) -> None:
    with running(tmp_path, 2) as job:
        look = of_host(job.job, patience_s=180)()
        assert look.silent == 0
        assert sorted((one["group"], one["rank"]) for one in look.records) == [
            ("world", 0), ("world", 1), ("world/0.0", 0), ("world/0.1", 0),
        ]  # fmt: skip
        assert len(Calls().new(look.records)) > 16


def test_the_rank_that_holds_a_job_up_is_the_suspect(tmp_path: Path) -> None:
    """Those that wait for it are none, and there is none once it goes on."""
    with running(tmp_path, 3) as job:
        fed = of_host(job.job, patience_s=2)
        exporter = Exporter(fed)
        exporter.update()
        assert suspects(exporter) == {}
        stop(job.processes[1])
        until = time.monotonic() + LIMIT_S
        while not (found := suspects(exporter)):
            assert time.monotonic() < until, "the doctor suspects no rank"
            exporter.update()
        assert found.keys() == {(job.job, "1")}
        assert 0 < found[job.job, "1"] <= 1
        os.kill(job.processes[1], signal.SIGCONT)
        while suspects(exporter):
            assert time.monotonic() < until, "the doctor suspects a rank of a job that goes on"
            exporter.update()


def suspects(exporter: Exporter) -> dict[tuple[str, str], float]:
    return {(dict(labels)["job"], dict(labels)["rank"]): value
            for (name, labels), value in values(exporter).items()
            if name == "unisono_suspect"}  # fmt: skip


def test_an_interval_must_be_one() -> None:
    with pytest.raises(MisuseError, match="interval_s is 0"):
        serve(Fed(), port=0, interval_s=0)


def test_calls_as_spans_and_failures_as_logs() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs import export as log_export
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, tracers, loggers = InMemorySpanExporter(), TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    memory = (
        getattr(log_export, "InMemoryLogRecordExporter", None) or log_export.InMemoryLogExporter
    )
    logs = memory()
    loggers.add_log_record_processor(log_export.SimpleLogRecordProcessor(logs))
    source = Fed()
    exporter = Exporter(source, Telemetry(tracers, loggers))
    failure = {"kind": "peer", "rank": 1, "time_ns": 3 * 10**9, "message": "rank 1 has ended"}
    source.look = Look([record([collective(0, 2.0), collective(1, state="failed")], [message(0)],
                               failure=failure)])  # fmt: skip
    exporter.update()
    exporter.update()
    first, failed, sent = spans.get_finished_spans()
    assert (first.name, first.end_time - first.start_time) == ("all_reduce", 2_000_000)
    assert first.start_time == WALL_NS + 10**9
    assert first.attributes["unisono.bytes"] == 4096
    assert (failed.status.status_code.name, failed.status.description) == ("ERROR", "failed")
    assert (sent.name, sent.attributes["unisono.peer"]) == ("send", 1)
    [told] = logs.get_finished_logs()
    assert told.log_record.body == "rank 1 has ended"
    assert told.log_record.timestamp == WALL_NS + 3 * 10**9
    assert json.loads(json.dumps(dict(told.log_record.attributes)))["unisono.failure.rank"] == 1


@pytest.mark.slow
def test_sigterm_sends_the_spans_that_wait(tmp_path: Path) -> None:
    """They are sent in batches, of which the first one is not due yet."""
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    names: list[str] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                sent = gzip.decompress(sent)
            if self.path.endswith("/traces"):
                request = service.ExportTraceServiceRequest.FromString(sent)
                names.extend(span.name for of in request.resource_spans
                             for scope in of.scope_spans for span in scope.spans)  # fmt: skip
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server, running(tmp_path, 2) as job:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [
            sys.executable,
            "-m",
            "unisono",
            "metrics",
            "--port",
            "0",
            "--job",
            job.job,
            "--interval",
            "3600",
            "--otlp",
            f"http://127.0.0.1:{server.server_port}",
        ]
        environment = {**os.environ, "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
        with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as serving:
            assert b"/metrics" in serving.stderr.readline()
            serving.send_signal(signal.SIGTERM)
            assert serving.wait(LIMIT_S) == 128 + signal.SIGTERM
        server.shutdown()
    # Each of the two ranks has made eight of each when the job has started.
    assert min(names.count("all_reduce"), names.count("all_gather")) >= 16
