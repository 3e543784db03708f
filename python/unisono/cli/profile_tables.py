"""The tables of `unisono profile`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from unisono.cli.output import print_table, print_text, put_json, warn, write_file
from unisono.doctor.job import ranks_text
from unisono.draw.numbers import gb_s, time_us
from unisono.errors import MachineError, MisuseError
from unisono.live import ask
from unisono.live.parts import hear
from unisono.profile import (
    Calls,
    Connection,
    Imbalance,
    Lateness,
    Part,
    PeerMessages,
    SlowRank,
    breakdown,
    imbalances,
    lateness,
    peer_messages,
    slow_connections,
    slow_ranks,
    windows,
)
from unisono.records.unisono_record import read_records
from unisono.report.parts import size
from unisono.report.profile import how_much, render_profile

_MOST_LINES = 20
_MOST_SLOW = 4
_NEWEST = 1 << 14


def profile_job(
    files: list[Path] | None, job: str | None, json: Path | None, html: Path | None
) -> None:
    """Profiles the records of files or of a running job, prints and writes."""
    if bool(files) == (job is not None):
        raise MisuseError("name files of records or a running job's --job, one of them")
    calls = Calls(read_records(files) if files else _of_job(str(job)))
    parts, found = breakdown(calls), windows(calls)
    slow, late, messages = slow_ranks(found), lateness(calls), peer_messages(calls)
    uneven = imbalances(calls.connections)
    if not put_json(json, _document(calls, parts, slow, late, messages, uneven)):
        _show(calls, parts, slow, late, messages, uneven)
    if html is not None:
        sending = [one for one in calls.connections if one.is_send]
        page = render_profile(
            _about(calls, slow), parts, slow, late, found, messages, sending, uneven
        )
        write_file(html, page)


def _of_job(job: str) -> list[dict[str, Any]]:
    for heard in hear(ask(job, newest=_NEWEST)):
        for rank, why in heard.silent.items():
            warn(f"rank {rank} {why}")
        if heard.records:
            return heard.records
    raise MachineError(f"no process of job {job} answers on this host")


def _document(
    calls: Calls, parts: list[Part], slow: list[SlowRank], late: list[Lateness],
    messages: list[PeerMessages], uneven: list[Imbalance],
) -> dict[str, Any]:  # fmt: skip
    return {
        "format": "unisono-profile", "version": 3, "collectives": len(calls.collectives),
        "left_out": calls.left_out, "clock_error_ns": calls.clock_error_ns,
        "breakdown": [asdict(one) for one in parts], "slow_ranks": [asdict(one) for one in slow],
        "lateness": [asdict(one) for one in late],
        "messages": [{**asdict(one), "bandwidth": one.bandwidth} for one in messages],
        "connections": [
            {**asdict(one), "bandwidth": one.bandwidth} for one in calls.connections
        ],
        "slow_connections": [asdict(one) for one in slow_connections(calls.connections)],
        "imbalances": [asdict(one) for one in uneven],
    }  # fmt: skip


def _about(calls: Calls, slow: list[SlowRank]) -> str:
    """What was profiled, and what stands out."""
    told = [f"{len(calls.collectives):,} collectives that all their ranks recorded, and "
            f"{len(calls.messages):,} calls with messages."]  # fmt: skip
    told += [f"{count:,} collectives are left out: {why}." for why, count in
             calls.left_out.items()]  # fmt: skip
    if calls.clock_error_ns < 0:
        told.append("Clocks of different hosts are compared by wall clock: nothing else aligns "
                    "them, and waiting times between hosts mean little.")  # fmt: skip
    elif calls.clock_error_ns:
        told.append(f"Clocks of different hosts agree to {time_us(calls.clock_error_ns / 1e3)}.")
    for how, what in (("late", "Late to collectives"), ("slow", "Slow to move data")):
        ranks = sorted({one.rank for one in slow if one.how == how})
        if ranks:
            told.append(f"{what}, again and again: {ranks_text([f'rank {one}' for one in ranks])}.")
    if not slow:
        told.append("No rank stands out.")
    told += _about_connections(calls.connections)
    return " ".join(told)


def _about_connections(connections: list[Connection]) -> list[str]:
    """Those that stand out of all that were timed."""
    timed = [one for one in connections if one.is_timed]
    if not timed:
        return []
    idle = max(timed, key=lambda one: one.idle)
    most = max(timed, key=lambda one: one.most_in_flight)
    told = [f"Idle longest: {idle.name} ({_seconds(idle.idle)}).",
            f"Most in flight: {most.name} ({size(most.most_in_flight).text})."]  # fmt: skip
    slow = slow_connections(connections)
    told += [f"Slow: {one.name} ({gb_s(one.bandwidth / 1e9)} while busy)."
             for one in slow[:_MOST_SLOW]]  # fmt: skip
    if len(slow) > _MOST_SLOW:
        told.append(f"{len(slow) - _MOST_SLOW} more connections are slow.")
    return told


def _seconds(value: float) -> str:
    return time_us(1e6 * value) if value >= 0 else "-"


def _show(
    calls: Calls, parts: list[Part], slow: list[SlowRank], late: list[Lateness],
    messages: list[PeerMessages], uneven: list[Imbalance],
) -> None:  # fmt: skip
    print_text(_about(calls, slow) + "\n")
    times = ("queued", "waited", "connected", "moved", "reduced")
    print_table(
        ("group", "collective", "size", "ranks", "calls", *times, "waited %"),
        (
            (one.group, one.kind, size(one.bytes).text, one.ranks, one.calls,
             *map(_seconds, (one.queued, one.waited, one.connected, one.moved)),
             _seconds(one.reduced or -1),
             f"{100 * one.share_waited:.0f}")
            for one in parts[:_MOST_LINES]
        ),
        right=("size", "ranks", "calls", *times, "waited %"),
        title=f"Where the time of a collective went ({len(parts)})", keys=3,
    )  # fmt: skip
    if slow:
        print_table(
            ("rank", "group", "how", "windows", "by"),
            ((one.rank, one.group, one.how, f"{one.windows} of {one.of}", how_much(one))
             for one in slow[:_MOST_LINES]),
            right=("rank",), title=f"Slow ranks ({len(slow)})",
        )  # fmt: skip
    if late:
        print_table(
            ("group", "rank", "last in calls", "others waited"),
            ((one.group, one.rank, f"{one.times} of {one.calls}", _seconds(one.cost))
             for one in late[:_MOST_LINES]),
            right=("rank", "others waited"), title=f"For whom others waited ({len(late)})", keys=2,
        )  # fmt: skip
    _show_connections(calls.connections, uneven)
    if messages:
        print_table(
            ("rank", "direction", "peer", "messages", "bytes", "busy", "idle", "most in flight",
             "bandwidth"),
            ((one.rank, "to" if one.is_send else "from", one.peer, one.posts,
              size(one.bytes).text, _seconds(one.busy), _seconds(one.idle),
              size(one.most_in_flight).text, gb_s(one.bandwidth / 1e9))
             for one in messages[:_MOST_LINES]),
            right=("rank", "peer", "messages", "bytes", "busy", "idle", "most in flight",
                   "bandwidth"),
            title=f"Messages between ranks ({len(messages)})", keys=3,
        )  # fmt: skip


def _show_connections(connections: list[Connection], uneven: list[Imbalance]) -> None:
    """Those that were busy longest come first: they may hold up the calls."""
    sending = sorted((one for one in connections if one.is_send), key=lambda one: -one.busy)
    if sending:
        figures = ("posts", "bytes", "busy", "idle", "idle %", "most", "mean", "bandwidth")
        print_table(
            ("rank", "peer", "channel", "transport", "protocol", *figures),
            ((one.rank, one.peer, one.channel, one.transport, one.protocol, one.posts,
              size(one.bytes).text,
              *((_seconds(one.busy), _seconds(one.idle), f"{100 * one.share_idle:.0f}",
                 size(one.most_in_flight).text, size(one.mean_in_flight).text,
                 gb_s(one.bandwidth / 1e9)) if one.is_timed else ("-",) * 6))
             for one in sending[:_MOST_LINES]),
            right=("rank", "peer", "channel", *figures),
            title=f"Connections, and what was in flight ({len(sending)})", keys=5,
        )  # fmt: skip
    if uneven:
        print_table(
            ("rank", "group", "connections", "bytes", "busy", "busiest peer"),
            ((one.rank, one.group, one.connections, f"{one.bytes:.2f}", f"{one.busy:.2f}",
              one.busiest) for one in uneven[:_MOST_LINES]),
            right=("rank", "connections", "bytes", "busy", "busiest peer"),
            title=f"Imbalance between connections of a rank: most, of the mean ({len(uneven)})",
            keys=2,
        )  # fmt: skip
