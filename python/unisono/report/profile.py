"""The profile's page: where time went, how late ranks were, and what connections carried."""

from collections.abc import Callable, Sequence

from unisono.draw.chart import Axis, Bar, Series, draw_bars, draw_chart
from unisono.draw.numbers import gb_s, time_us
from unisono.profile.breakdown import Part
from unisono.profile.connections import Connection, Imbalance
from unisono.profile.messages import PeerMessages
from unisono.profile.slow_ranks import Lateness, SlowRank, Window
from unisono.report.parts import Cell, Column, Table, empty, number, responsive, size, text
from unisono.report.simulation import render_page

__all__ = ["render_profile"]

# More lines than these are not told apart.
_MOST_LINES = 8
# Collectives that have bars of their own.
_MOST_BARS = 4


def render_profile(
    about: str, parts: Sequence[Part], slow: Sequence[SlowRank], late: Sequence[Lateness],
    found: Sequence[Window], messages: Sequence[PeerMessages],
    connections: Sequence[Connection], uneven: Sequence[Imbalance],
) -> str:  # fmt: skip
    """The page as text.

    Raises:
        MachineError: jinja2 is not installed.
    """
    tables = {"Where the time of collectives went": _parts(parts)}
    if slow:
        tables["Slow ranks"] = _slow(slow)
    if late:
        tables["For whom others waited"] = _late(late)
    if connections:
        tables["Connections"] = _connections(connections)
    if uneven:
        tables["Imbalance between connections of a rank"] = _imbalances(uneven)
    if messages:
        tables["Messages between ranks"] = _messages(messages)
    plots = [_shares(parts), _flights(connections), _bandwidth(found), _lateness(found)]
    plots = [plot for plot in plots if plot]
    return render_page("Profile", about, plots, tables)


def seconds(value: float) -> Cell:
    """A cell with a time."""
    return Cell(time_us(1e6 * value), value)


def _parts(parts: Sequence[Part]) -> Table:
    columns = (
        Column("group", is_text=True), Column("collective", is_text=True), Column("size"),
        Column("ranks"), Column("calls"), Column("queued"), Column("waited for peers"),
        Column("connected"), Column("moved"), Column("reduced"), Column("share waited", "%"),
    )  # fmt: skip
    rows = [
        [
            text(one.group), text(one.kind), size(one.bytes), number(one.ranks, "d"),
            number(one.calls, "d"), seconds(one.queued), seconds(one.waited),
            seconds(one.connected), seconds(one.moved),
            seconds(one.reduced) if one.reduced else empty("not measured"),
            number(100 * one.share_waited, ".0f"),
        ]
        for one in parts
    ]  # fmt: skip
    return Table(columns, rows)


def _slow(slow: Sequence[SlowRank]) -> Table:
    columns = (Column("rank"), Column("group", is_text=True), Column("how", is_text=True),
               Column("windows"), Column("of"), Column("by", is_text=True))  # fmt: skip
    return Table(columns, [
        [number(one.rank, "d"), text(one.group), text(one.how), number(one.windows, "d"),
         number(one.of, "d"), text(how_much(one))]
        for one in slow
    ])  # fmt: skip


def how_much(one: SlowRank) -> str:
    """How late it is, or how slow."""
    if one.how == "late":
        return time_us(1e6 * one.median)
    return f"{one.median:.2f} of the others' bandwidth"


def _late(late: Sequence[Lateness]) -> Table:
    columns = (Column("group", is_text=True), Column("rank"), Column("was last in calls"),
               Column("of"), Column("others waited"))  # fmt: skip
    return Table(columns, [
        [text(one.group), number(one.rank, "d"), number(one.times, "d"), number(one.calls, "d"),
         seconds(one.cost)]
        for one in late
    ])  # fmt: skip


def _connections(connections: Sequence[Connection]) -> Table:
    columns = (
        Column("rank"), Column("peer"), Column("channel"), Column("transport", is_text=True),
        Column("protocol", is_text=True), Column("group", is_text=True), Column("posts"),
        Column("bytes"), Column("busy"), Column("idle"), Column("share idle", "%"),
        Column("most in flight"), Column("mean in flight"),
        Column("bandwidth while busy", is_text=True),
    )  # fmt: skip
    rows = []
    for one in connections:
        timed = [empty("not timed")] * 6
        if one.is_timed:
            timed = [
                seconds(one.busy), seconds(one.idle), number(100 * one.share_idle, ".0f"),
                size(one.most_in_flight), size(one.mean_in_flight),
                text(gb_s(one.bandwidth / 1e9)),
            ]  # fmt: skip
        rows.append(
            [number(one.rank, "d"), number(one.peer, "d"), number(one.channel, "d"),
             text(one.transport), text(one.protocol), text(one.group), number(one.posts, "d"),
             size(one.bytes), *timed]
        )  # fmt: skip
    return Table(columns, rows)


def _imbalances(uneven: Sequence[Imbalance]) -> Table:
    columns = (Column("rank"), Column("group", is_text=True), Column("connections"),
               Column("most bytes, of the mean"), Column("most busy, of the mean"),
               Column("busiest peer"))  # fmt: skip
    return Table(columns, [
        [number(one.rank, "d"), text(one.group), number(one.connections, "d"),
         number(one.bytes, ".2f"), number(one.busy, ".2f"), number(one.busiest, "d")]
        for one in uneven
    ])  # fmt: skip


def _flights(connections: Sequence[Connection]) -> str:
    """The connections that were busy longest: how long, and how long idle."""
    busiest = sorted((one for one in connections if one.is_timed), key=lambda one: -one.busy)
    bars = [
        Bar(f"{one.name} {what}", 1e6 * value, what)
        for one in busiest[:_MOST_LINES]
        for what, value in (("busy", one.busy), ("idle", one.idle))
    ]  # fmt: skip
    if not bars:
        return ""
    draw: Callable[[int], str] = lambda width: draw_bars(  # noqa: E731
        "Connections that were busy longest", Axis("time", write=time_us), bars, width=width,
        standalone=False,
    )  # fmt: skip
    return responsive(draw)


def _messages(messages: Sequence[PeerMessages]) -> Table:
    columns = (
        Column("rank"), Column("direction", is_text=True), Column("peer"), Column("messages"),
        Column("bytes"), Column("busy"), Column("idle"), Column("most in flight"),
        Column("bandwidth while busy", is_text=True),
    )  # fmt: skip
    return Table(columns, [
        [number(one.rank, "d"), text("to" if one.is_send else "from"), number(one.peer, "d"),
         number(one.posts, "d"), size(one.bytes), seconds(one.busy), seconds(one.idle),
         size(one.most_in_flight), text(gb_s(one.bandwidth / 1e9))]
        for one in messages
    ])  # fmt: skip


def _shares(parts: Sequence[Part]) -> str:
    """What each of the collectives that took most time spent it on, over all its calls."""
    bars = [
        Bar(f"{one.kind} {size(one.bytes).text} {what}", 1e6 * one.calls * seconds_each, one.kind)
        for one in parts[:_MOST_BARS]
        for what, seconds_each in (
            ("queued", one.queued), ("waited", one.waited), ("connected", one.connected),
            ("moved", one.moved), ("reduced", one.reduced),
        ) if seconds_each > 0
    ]  # fmt: skip
    if not bars:
        return ""
    draw: Callable[[int], str] = lambda width: draw_bars(  # noqa: E731
        "Where the time of collectives went",
        Axis("time of all calls, mean over ranks", write=time_us), bars, width=width,
        standalone=False,
    )  # fmt: skip
    return responsive(draw)


def _bandwidth(found: Sequence[Window]) -> str:
    """Each group's bus bandwidth: the median over its ranks, by window."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for one in found:
        middle = sorted(one.bandwidth)[len(one.bandwidth) // 2] / 1e9
        if middle > 0:
            lines.setdefault(one.group, []).append((one.begin_s, float(middle)))
    return _lines("Bus bandwidth of each group", Axis("bus bandwidth", True, gb_s), lines)


def _lateness(found: Sequence[Window]) -> str:
    """How late ranks were; of many, those that were latest."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for one in found:
        for place, rank in enumerate(one.ranks):
            late = max(float(one.late[place]) / 1e3, 0.0)
            lines.setdefault(f"rank {rank}", []).append((one.begin_s, late))
    latest = sorted(lines, key=lambda name: -max(value for _, value in lines[name]))
    kept = {name: sorted(lines[name]) for name in latest[:_MOST_LINES]}
    return _lines("How late ranks came to collectives", Axis("late", write=_late_text), kept)


def _late_text(value: float) -> str:
    return time_us(value)


def _lines(title: str, axis: Axis, lines: dict[str, list[tuple[float, float]]]) -> str:
    series = [Series(name, points) for name, points in list(lines.items())[:_MOST_LINES]]
    if not series or max(len(one.points) for one in series) < 2:
        return ""
    draw: Callable[[int], str] = lambda width: draw_chart(  # noqa: E731
        title, Axis("seconds from the first call"), axis, series, width=width, standalone=False
    )
    return responsive(draw)
