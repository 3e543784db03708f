"""The page of `unisono watch`: who gets it, and what it shows in a real browser."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from python.browser import dump_dom
from python.live.ranks import LIMIT_S, running, stop
from python.live.test_ras import look
from unisono.errors import MachineError
from unisono.live.server import WatchServer
from unisono.report.watch import render_watch

pytest.importorskip("jinja2")


@pytest.fixture
def server() -> Iterator[WatchServer]:
    one = WatchServer(render_watch(0.5), 0, "17")
    yield one
    one.close()


def get(server: WatchServer, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_only_who_has_the_token_gets_anything(server: WatchServer) -> None:
    token = server.url.partition("?")[2]
    assert get(server, f"/?{token}")[0] == 200
    status, state = get(server, f"/state?{token}", f"localhost:{server.port}")
    assert (status, json.loads(state)["jobs"]) == (200, [])
    assert get(server, f"/other?{token}")[0] == 404
    for path in ("/", "/state", f"/state?{token}x", "/state?token=", "/state?token=%ff"):
        assert get(server, path)[0] == 403, path
    # A name that leads here, of a page that is from elsewhere.
    assert get(server, f"/state?{token}", "evil.example")[0] == 403


def test_the_port_may_be_taken(server: WatchServer) -> None:
    with pytest.raises(MachineError, match="cannot listen on"):
        WatchServer("", server.port)


class Cells(HTMLParser):
    """The texts of a page, by the kind of their element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        self._at = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._at = tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._at, []).append(data)


@pytest.mark.slow
def test_a_browser_shows_who_is_stopped(tmp_path: Path) -> None:
    with running(tmp_path, 4) as job:
        stop(job.processes[1])
        look(job.job, "stuck outside communication")
        server = WatchServer(render_watch(0.5), 0, job.job)
        try:
            done = dump_dom(server.url, tmp_path, 1280, 900, 5000)
        finally:
            server.close()
    found = Cells(done.stdout).texts
    assert found["h2"] == [f"Job {job.job}"], done.stderr[-2000:]
    assert "stuck outside communication" in found["p"]
    assert "3 of 4 ranks have answered." in found["p"]
    assert f"does not answer: its process {job.processes[1]} is stopped" in found["td"]
