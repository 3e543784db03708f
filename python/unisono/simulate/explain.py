"""Where the time of a simulated collective went, in words."""

from unisono import _unisono as native
from unisono.simulate.run import Hop, Simulated
from unisono.simulate.workload import SimulatedWorkload

_MEANINGS = {
    "launch": "starting the call",
    "overhead": "thread blocks' work for each message (o)",
    "latency": "messages on their way (L), and slots on their way back",
    "port": "bytes through ports and links (G)",
    "thread block": "bytes through thread blocks (O)",
    "compute": "computing between calls",
    "reduction": "reductions",
    "copy": "local copies",
    "queue": "waiting for ports, links or cores that others used",
}


def explain_path(one: Simulated, most_hops: int = 12) -> str:
    """The critical path: what each share of the time was spent on, and its messages.

    Every moment of it waited for the one before, so nothing off the path could have made the
    collective end later, and only what is on it can make it end sooner.
    """
    lines = [
        f"{one.algorithm}_{one.collective}, {one.protocol}, {one.ranks} ranks on {one.nodes} nodes:"
        f" {one.time_us:.2f} us",
        *_path(one),
    ]
    return "\n".join([*lines, *_hops(one.hops, most_hops)])


def explain_workload(one: SimulatedWorkload, most_hops: int = 12) -> str:
    """The same for a workload: its critical path goes through computation and calls."""
    lines = [f"{one.name}, {one.ranks} ranks on {one.nodes} nodes: {one.time_us:.2f} us"]
    return "\n".join([*lines, *_path(one), *_hops(one.hops, most_hops)])


def _path(one: Simulated | SimulatedWorkload) -> list[str]:
    lines = [
        f"critical path: {one.path_messages:,} messages one after another, "
        f"{one.path_messages_inter_node:,} of them between nodes",
    ]
    shares = sorted(one.shares.items(), key=lambda share: -share[1])
    lines += [
        f"  {us / one.time_us:6.1%}  {us:12.2f} us  {_MEANINGS[name]}"
        for name, us in shares
        if us > 0
    ]
    if one.simulated_ranks < one.ranks:
        lines.append(
            f"{one.simulated_ranks} ranks stood for all {one.ranks}, which do the same at the same "
            "times; a message to such a rank is shown as one to the rank that stands for it"
        )
    return lines


def _hops(hops: list[Hop], most_hops: int) -> list[str]:
    lines = []
    shown = hops if len(hops) <= most_hops else [*hops[: most_hops // 2], *hops[-most_hops // 2 :]]
    for i, hop in enumerate(shown):
        if len(shown) < len(hops) and i == most_hops // 2:
            lines.append(f"  ... {len(hops) - len(shown):,} more ...")
        lines.append(
            f"  rank {hop.sender} -> rank {hop.receiver}: {native.format_bytes(hop.bytes)}, "
            f"sent at {hop.sent_us:.2f}, there at {hop.arrived_us:.2f} us"
        )
    return lines
