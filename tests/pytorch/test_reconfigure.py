"""Groups whose members change while their processes live."""

import re

import pytest
from pytorch.ranks import Outcome, run

pytest.importorskip("torch.distributed", reason="PyTorch is not installed: unisono[torch]")
torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.xdist_group("pytorch reconfigure"),
    pytest.mark.skipif(
        not hasattr(torch.distributed.ProcessGroup, "reconfigure"),
        reason="PyTorch before 2.14 cannot reconfigure groups",
    ),
]

REFUSED = {
    "before": r"RuntimeError: all_reduce on rank \d of group '0': .* not been initialized. Call ",
    "before, asked for": r"RuntimeError: communicator on rank \d .*: the group has not been init",
    "same uuid": r"RuntimeError: reconfigure on rank \d got the uuid 1, which was already used",
    "old handles": r"RuntimeError: reconfigure .* got 3 handles, .* not part of the new comm",
    "foreign": r"RuntimeError: Invalid unisono reconfigure handle: .* a handle of 12 characters",
    "twice": r"RuntimeError: reconfigure on rank \d got one handle for .* must be unique",
}


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run("reconfigure.py", 3)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_by_name(outcome: Outcome, name: str) -> None:
    assert len(outcome.reports.get(name, [])) == 3, outcome.text()
    for text in outcome.reports[name]:
        assert re.search(REFUSED[name], text), text


def test_a_handle_that_was_used_admits_nobody(outcome: Outcome) -> None:
    assert len(outcome.reports.get("used", [])) == 3, outcome.text()
    for text in outcome.reports["used"]:
        assert re.search("MisuseError: the invitation of rank 1 is not one of the process", text), (
            text
        )
    assert outcome.reports["one secret"] == ["False"] * 3, outcome.text()


def test_members_have_the_ranks_that_were_asked_for(outcome: Outcome) -> None:
    assert outcome.reports["supported"] == ["True"] * 3, outcome.text()
    expected = [f"rank {2 - place} of 3: 3" for place in range(3)]
    assert outcome.reports["first"] == expected, outcome.text()
    assert outcome.reports["still of use"] == expected, outcome.text()


def test_the_others_go_on_without_a_process_that_died(outcome: Outcome) -> None:
    # In the order of their ranks before.
    assert outcome.reports["second"] == ["rank 1 of 2: 1", "rank 0 of 2: 1"], outcome.text()
    (text,) = outcome.reports["pending"]
    assert re.search("DistBackendError: all_reduce on rank 2 of group '0'", text), text


def test_a_process_that_does_not_come_is_named_in_time(outcome: Outcome) -> None:
    (text,) = outcome.reports["late"]
    assert "DistBackendError: reconfigure on rank" in text, text
    assert re.search(r"\b1\b", text), text
    (text,) = outcome.reports["after"]
    assert "the group has not been initialized" in text, text
    assert outcome.reports["alone"] == ["rank 0 of 1: 0"], outcome.text()
    assert set(outcome.codes) == {0}, outcome.text()
