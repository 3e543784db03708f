"""Whose checks are taken out, and by which tests they must be missed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """Sources that guard one border, and the programs whose tests are theirs.

    Attributes:
        name: For the command line.
        sources: Patterns of paths from the root of the project.
        programs: Of build/mutants.
        finds_waits: Whether it waits for data, so that waits are taken out, too.
    """

    name: str
    sources: tuple[str, ...]
    programs: tuple[str, ...]
    finds_waits: bool = False


LAYERS = (
    Layer(
        "bootstrap",
        (
            "src/comm/control/channel.cc",
            "src/comm/control/control_group.cc",
            "src/comm/control/group.cc",
            "src/comm/control/group_inquiry.cc",
            "src/comm/control/handshake.cc",
            "src/comm/control/mail.cc",
            "src/comm/control/messages.cc",
            "src/comm/control/node.cc",
            "src/comm/join/bootstrap.cc",
            "src/comm/join/invitation.cc",
            "src/comm/join/join.cc",
            "src/comm/join/settings.cc",
        ),
        ("comm_blame_test", "comm_control_test", "comm_join_test", "fault_test"),
    ),
    Layer(
        "transport",
        (
            "src/transport/*.cc",
            "src/transport/*.h",
            "src/transport/shm/*.cc",
            "src/transport/socket/*.cc",
        ),
        ("transport_test", "conformance_test", "multirank_test"),
        finds_waits=True,
    ),
    Layer(
        "plan",
        ("src/plan/*.cc", "src/base/json*.cc", "src/base/wire.h"),
        ("plan_test", "base_test", "verify_test"),
    ),
    Layer("goal", ("src/simulate/goal*.cc",), ("simulate_test",)),
)
