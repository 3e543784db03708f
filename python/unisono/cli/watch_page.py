"""`unisono watch`: what `unisono ras` shows, as a page that stays up to date."""

import threading
import webbrowser
from typing import Annotated

import typer

from unisono.cli.output import print_text


def watch(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="Of this job only: its world's comm.id.")
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.5, max=3600, help="Seconds between two looks.")
    ] = 2.0,
    browser: Annotated[bool, typer.Option("--browser", help="Open it in a browser.")] = False,
) -> None:
    """Show where the ranks of running jobs are, as a page that is live.

    It shows the ranks on this host, and is served on 127.0.0.1 until Ctrl-C, to those who have
    the address with its token.
    """
    # Imported here, because they take longer than --help may.
    from unisono.live.server import WatchServer
    from unisono.report.watch import render_watch

    server = WatchServer(render_watch(interval), port, job)
    print_text(server.url)
    try:
        if browser:
            webbrowser.open(server.url)
        threading.Event().wait()
    finally:
        server.close()
