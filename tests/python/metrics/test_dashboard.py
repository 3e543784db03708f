"""The dashboard's queries against a real Prometheus, which scrapes a real endpoint."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from python.metrics.records import collective, message, record
from unisono.metrics import serve
from unisono.metrics.calls import Look

pytest.importorskip("prometheus_client")
DASHBOARD = Path(__file__).parents[3] / "packaging" / "grafana" / "unisono.json"
PROMETHEUS = shutil.which("prometheus")
LIMIT_S = 180


def queries() -> list[tuple[str, str]]:
    """Title and expression, with Grafana's variables as a person would choose them."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [
        (panel["title"], target["expr"].replace("$group", ".*").replace("$__rate_interval", "20s"))
        for panel in panels for target in panel["targets"]
    ]  # fmt: skip


def ask(port: int, expression: str) -> list[Any]:
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}") as answer:
        found: list[Any] = json.load(answer)["data"]["result"]
        return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def test_every_query_of_the_dashboard_finds_something(tmp_path: Path) -> None:
    if PROMETHEUS is None:
        pytest.skip("no prometheus here (Debian's package is called so): the queries are not tried")
    begun = time.monotonic()

    def growing() -> Look:
        calls = int(10 * (time.monotonic() - begun)) + 2
        failure = {"kind": "timeout", "rank": 1, "time_ns": 1, "message": "late"}
        return Look([record([collective(i) for i in range(calls)] + [
            collective(calls, state="started")], [message(0)], failure=failure)],
            suspects={("5", "1"): 0.9})  # fmt: skip

    server = serve(growing, port=0, interval_s=0.2)
    port = free_port()
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: unisono\n"
        f"  static_configs: [{{targets: ['127.0.0.1:{server.port}']}}]\n"
    )
    command = [PROMETHEUS, f"--config.file={tmp_path / 'prometheus.yml'}",
               f"--storage.tsdb.path={tmp_path / 'data'}",
               f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        prometheus = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        empty = dict.fromkeys(queries())
        until = time.monotonic() + LIMIT_S
        while empty and time.monotonic() < until:
            time.sleep(0.5)
            try:
                empty = {one: None for one in empty if not _has_numbers(ask(port, one[1]))}
            except urllib.error.HTTPError as error:
                if error.code == 400:
                    pytest.fail(error.read().decode())
            except urllib.error.URLError:
                assert prometheus.poll() is None, (tmp_path / "log").read_text()
        assert not empty
    finally:
        prometheus.kill()
        prometheus.wait()
        server.close()


def _has_numbers(found: list[Any]) -> bool:
    return any(one["value"][1] != "NaN" for one in found)


def test_a_query_of_a_metric_that_there_is_not_would_be_found() -> None:
    text = DASHBOARD.read_text()
    assert "$group" in text
    for title, expression in queries():
        assert "$" not in expression, title
