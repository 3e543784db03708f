"""Records of many ranks as one time line, in the format that Perfetto and Chrome read."""

from collections.abc import Sequence
from typing import Any

from unisono.records.clocks import align

__all__ = ["perfetto"]


def perfetto(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A trace: a process for each rank, in it a track for each group and one for its messages.

    Clocks are aligned by the collectives that all ranks ended. Each process's label says by how
    much its clock may be off.
    """
    if not records:
        return {"traceEvents": []}
    ahead = align(records)
    events: list[dict[str, Any]] = []
    tracks: dict[int, int] = {}
    first_ns = min(
        (one["scheduled_ns"] - ahead[record["world_ranks"][record["rank"]]].ns
         for record in records for one in (*record["collectives"], *record["messages"])),
        default=0,
    )  # fmt: skip
    for record in records:
        rank = record["world_ranks"][record["rank"]]
        error = ahead[rank].error_ns
        label = "clock not aligned" if error < 0 else f"clock within {error / 1000:.1f} us"
        events += [_named("process_name", rank, 0, f"rank {rank} ({record['node']})"),
                   _named("process_labels", rank, 0, label, "labels")]  # fmt: skip
        written_ns = record["clock"]["monotonic_ns"]
        for name in ("collectives", "messages"):
            if not record[name]:
                continue
            track = tracks[rank] = tracks.get(rank, 0) + 1
            title = record["group"] + (" messages" if name == "messages" else "")
            events.append(_named("thread_name", rank, track, title))
            for one in record[name]:
                begin = one.get("started_ns", one.get("launched_ns", one["scheduled_ns"]))
                end = one.get("ended_ns", written_ns)
                shown = ("state", "sequence", "bytes", "plan", "path", "fallback", "chosen_path",
                         "waiting")  # fmt: skip
                events.append({
                    "name": one.get("collective") or f"{one['direction']} {one['peer']}",
                    "ph": "X", "pid": rank, "tid": track,
                    "ts": (begin - ahead[rank].ns - first_ns) / 1000,
                    "dur": max(end - begin, 0) / 1000,
                    "args": {key: one[key] for key in shown if key in one},
                })  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _named(what: str, rank: int, track: int, name: str, key: str = "name") -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": rank, "tid": track, "args": {key: name}}
