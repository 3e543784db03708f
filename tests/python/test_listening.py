"""Where ranks listen on hosts with container bridges, with IPv6 alone, and where that is wrong.

tests/pytorch/test_listening.py has the same for PyTorch's store.
"""

from __future__ import annotations

import pytest
from python.bridged_hosts import BRIDGE, inside, two_hosts
from python.fake_pmi import FakePmi
from python.hosts import plain_environment
from unisono import _through_store

pytestmark = pytest.mark.xdist_group("network namespaces")

PROGRAM = """
import numpy as np, unisono
with unisono.init(timeout=120, bootstrap_timeout=1800) as comm:
    print("sum", comm.all_reduce(np.array([comm.rank + 1]))[0], flush=True)
"""


@pytest.mark.parametrize(
    ("network", "expected"), [("10.1.0.", "10.1.0.1"), ("fd00::", "[fd00::1]")]
)
def test_ranks_meet_past_a_bridge_that_each_host_has(network: str, expected: str) -> None:
    with two_hosts(network) as names:
        launcher = FakePmi(2, prefixes=inside(names))
        outputs = launcher.run(PROGRAM, plain_environment(), timeout=100)
    assert [(code, text.count("sum 3")) for code, text in outputs] == [(0, 1)] * 2, outputs
    assert launcher.said["unisono-0"].startswith(f"tcp://{expected}:")
    # Nothing says that this is right, so the rank says what it did, and what would change it.
    assert f"this rank listens on {expected.strip('[]')}" in outputs[0][1]
    assert f"{BRIDGE} (docker0); UNISONO_INTERFACE names another" in outputs[0][1]


def test_an_address_that_is_refused_is_said_at_once() -> None:
    with two_hosts("10.1.0.") as names:
        launcher = FakePmi(2, only=1, said={"unisono-0": "tcp://172.17.0.1:9,secret"},
                           prefixes=inside(names))  # fmt: skip
        [(_, text)] = launcher.run(PROGRAM, plain_environment(), until="has not reached")
    assert "rank 1 has not reached rank 0 at tcp://172.17.0.1:9 so far: connecting to" in text
    assert "refused" in text
    assert "UNISONO_INTERFACE, on the host that listens, names" in text


def test_rank_0_listens_where_it_was_told_before_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    given = {"UNISONO_INTERFACE": "eth1"}
    assert _through_store.place("127.0.0.1", "eth2", given) == "eth2"
    assert _through_store.place("127.0.0.1", None, given) == "eth1"
    assert _through_store.place("127.0.0.1", None, {"UNISONO_INTERFACE": ""}) == "127.0.0.1"
