"""The doctor's page: the verdict, who waits for whom, and the time line around a hang."""

from unisono.doctor import Diagnosis
from unisono.doctor.diagnosis import Bar, GroupLine
from unisono.doctor.job import ranks_text
from unisono.draw.svg import Svg
from unisono.report.parts import Cell, Column, Table, empty, number, text
from unisono.report.simulation import render_page

_LEFT, _WIDTH, _ROW, _TOP = 150, 900, 22, 46
# To the right of the calls, in words, where each rank is.
_NOTE_WIDTH, _MOST_NOTE = 360, 60
_COLOURS = ("#2a78d6", "#1baf7a", "#8b62c9", "#c98a14", "#4b93a8", "#a35c7a")
_STUCK = "#d64545"


def render_hang(found: Diagnosis) -> str:
    """The page as text.

    Raises:
        MachineError: jinja2 is not installed.
    """
    title = found.verdict.capitalize()
    confidence = f" Confidence {found.confidence:.2f}." if found.confidence else ""
    plots = [_draw(found.timeline, _notes(found))] if found.timeline else []
    return render_page(title, found.paragraph + confidence, plots, _tables(found))


def _tables(found: Diagnosis) -> dict[str, Table]:
    tables = {}
    for name, lines in (
        ("Other causes", [
            f"{one.verdict.capitalize()}. Confidence {one.confidence:.2f}. {one.text}"
            for one in found.others
        ]),
        ("Evidence", found.evidence), ("Who waits for whom", found.cycle),
        ("What would help", found.would_help), ("Files that were left out", found.problems),
        ("Notes", found.notes),
    ):  # fmt: skip
        if lines:
            tables[name] = Table((Column(name, is_text=True),), [[text(one)] for one in lines])
    columns = (
        Column("group", is_text=True), Column("ranks"), Column("dumps"), Column("all ended"),
        Column("furthest"), Column("why it stands out", is_text=True),
    )  # fmt: skip
    groups = sorted(found.groups, key=lambda one: (not one.behind, not _why(one)))
    tables["Groups"] = Table(
        columns,
        [
            [text(one.name), number(one.ranks, "d"), number(one.dumps, "d"),
             _number(one.last_ended), _number(one.furthest), text(_why(one))]
            for one in groups
        ],
    )  # fmt: skip
    return tables


def _number(call: int) -> Cell:
    return number(call, "d") if call >= 0 else empty("no call of the group is known")


def _why(group: GroupLine) -> str:
    """Why a group stands out; empty where it does not."""
    said = []
    if group.behind:
        said.append(f"{ranks_text(group.behind)} made fewer calls than others")
    if group.furthest > group.last_ended:
        said.append(f"not all ranks have ended call {group.last_ended + 1}")
    if (lost := group.ranks - group.dumps) > 0:
        said.append(f"{lost} of its ranks left no dump")
    return "; ".join(said)


def _notes(found: Diagnosis) -> dict[str, str]:
    """By the rank, what it does about the stuck call; first, that it is to blame."""
    notes: dict[str, str] = {}
    if (call := found.call) is not None:
        what = f"call {call.number}" if call.number >= 0 else "the message"
        for ranks, said in (
            (call.joined, f"is in {what}"), (call.ended, f"has ended {what}"),
            (call.absent, f"has not made {what}"), (call.unknown, "left no dump"),
        ):  # fmt: skip
            notes |= dict.fromkeys(ranks, said)
    for rank in found.ranks:
        said = f": {notes[rank]}" if rank in notes else ""
        notes[rank] = f"{found.verdict.capitalize()}{said}"
    return notes


def _draw(bars: list[Bar], notes: dict[str, str]) -> str:
    """A row for each rank, with its calls in their order."""
    ranks = list(dict.fromkeys(bar.rank for bar in bars))
    groups = list(dict.fromkeys(bar.group for bar in bars))
    # Clocks need not agree: each rank's calls are placed by their order.
    most = max(sum(bar.rank == rank for bar in bars) for rank in ranks)
    step = (_WIDTH - _LEFT) / most
    height = _TOP + _ROW * len(ranks) + 20 * (len(groups) + 1)
    picture = Svg(_WIDTH + _NOTE_WIDTH, height, "Calls of ranks")
    picture.label(
        10, 20, "The last calls of each rank, in its own order; the stuck one has a red border",
        class_="title",
    )  # fmt: skip
    for row, rank in enumerate(ranks):
        y = _TOP + row * _ROW
        picture.label(_LEFT - 8, y + 14, rank, "end")
        if note := notes.get(rank):
            picture.label(_WIDTH + 6, y + 14, note[:_MOST_NOTE])
        mine = [bar for bar in bars if bar.rank == rank]
        for place, bar in enumerate(mine):
            _draw_bar(picture, bar, _LEFT + place * step, y, step, groups.index(bar.group))
    for place, group in enumerate(groups):
        y = _TOP + len(ranks) * _ROW + 20 * place + 10
        picture.rect(_LEFT, y, 12, 12, fill=_COLOURS[place % len(_COLOURS)])
        picture.label(_LEFT + 18, y + 10, f"group {group}")
    return picture.text(standalone=False)


def _draw_bar(picture: Svg, bar: Bar, x: float, y: float, step: float, group: int) -> None:
    lasted = f"took {(bar.end - bar.begin) / 1e6:.3f} ms" if bar.end else "under way"
    picture.rect(
        x, y + 2, max(step - 3, 2), _ROW - 5,
        f"{bar.rank}: {bar.label} of group {bar.group}, {lasted}",
        fill=_COLOURS[group % len(_COLOURS)], fill_opacity=0.85 if bar.end else 0.3, class_="bar",
        stroke=_STUCK if bar.is_stuck else "none", stroke_width=2.5 if bar.is_stuck else 0,
    )  # fmt: skip
    if step > 46:
        picture.label(x + 4, y + 14, bar.label[: int(step / 7)], class_="in-dot")
