"""Plans from Python: made, printed, read, verified, timed, chosen."""

import json
from itertools import pairwise

import pytest
import unisono
from python.plans_of_slots import exchange_of
from unisono import _unisono as native
from unisono import lang, plans


def test_the_registry_is_listed_by_collective():
    every = plans.algorithms()
    names = [algorithm.plan_name for algorithm in every]
    assert len(set(names)) == len(names)
    assert {algorithm.collective for algorithm in every} <= set(unisono.collectives())
    ring = next(one for one in plans.algorithms("all_reduce") if one.name == "ring")
    assert ring.plan_name == "ring_all_reduce"
    assert ring.summary.endswith(".")
    assert ring.source
    assert ring.constraint
    with pytest.raises(unisono.MisuseError, match="no collective 'all_reduse'"):
        plans.algorithms("all_reduse")


def test_an_unknown_plan_is_refused_with_the_near_names():
    with pytest.raises(unisono.MisuseError, match="ring_all_reduce"):
        plans.find_algorithm("ring_all_reduc")


def test_placements_are_even_and_may_be_uneven():
    placement = plans.Placement(7, nodes=3)
    assert [placement.node_of(rank) for rank in range(7)] == [0, 0, 0, 1, 1, 2, 2]
    assert [placement.ranks_on(node) for node in range(3)] == [3, 2, 2]
    crossed = plans.Placement.from_nodes([1, 0, 1])
    assert (crossed.ranks, crossed.nodes, crossed.node_of(0)) == (3, 2, 1)
    with pytest.raises(unisono.MisuseError, match="nodes is 4; with 3 ranks"):
        plans.Placement(3, 4)
    with pytest.raises(unisono.MisuseError, match="rank is 7; it must be 0 to 6"):
        placement.node_of(7)


@pytest.mark.parametrize("algorithm", plans.algorithms(), ids=lambda one: one.plan_name)
def test_every_plan_is_right_and_survives_its_texts(algorithm):
    placement = plans.Placement(4, 2)
    if algorithm.why_not(placement):
        with pytest.raises(unisono.MisuseError):
            algorithm.plan(placement)
        pytest.skip(algorithm.why_not(placement))
    plan = algorithm.plan(placement)
    assert plan.name == algorithm.plan_name
    assert (plan.collective, plan.ranks) == (algorithm.collective, 4)
    report = plan.verify()
    assert report.ok
    assert report.failures == []
    assert report.steps == sum(
        len(block.steps) for rank in range(4) for block in plan.thread_blocks(rank)
    )
    assert plans.Plan.from_text(plan.to_text()) == plan
    assert plans.Plan.from_json(plan.to_json()) == plan
    assert json.loads(plan.to_json())["ranks"] == 4


def test_steps_are_unrolled():
    plan = plans.find_algorithm("ring_all_reduce").plan(plans.Placement(4))
    (block,) = plan.thread_blocks(1)
    assert (block.send_peer, block.recv_peer, block.channel) == (2, 0, 0)
    assert [step.operation for step in block.steps] == [
        "send",
        "recv_reduce_send",
        "recv_reduce_send",
        "recv_reduce_copy_send",
        "recv_copy_send",
        "recv_copy_send",
        "recv",
    ]
    first = block.steps[0]
    assert first.source.buffer == "input"
    assert first.destination is None
    assert (first.number, first.count, first.sends, first.receives) == (0, 1, True, False)
    with pytest.raises(unisono.MisuseError, match="rank is 4; plan .* has ranks 0 to 3"):
        plan.thread_blocks(4)


def test_a_wrong_plan_is_found_out():
    plan = plans.find_algorithm("ring_all_gather").plan(plans.Placement(3))
    wrong = json.loads(plan.to_json())

    def spoil(node):
        """Makes the first copy to the output go to another place."""
        if isinstance(node, dict):
            for value in node.values():
                if spoil(value):
                    return True
            if node.get("operation") == "copy_send":
                node["destination"]["index"] = (node["destination"]["index"] + 1) % 3
                return True
        if isinstance(node, list):
            return any(spoil(value) for value in node)
        return False

    assert spoil(wrong)
    report = plans.Plan.from_json(json.dumps(wrong)).verify()
    assert not report.ok
    failure = report.failures[0]
    assert failure.rank >= 0
    assert failure.expected != failure.got
    assert failure.expected in failure.describe()


def test_texts_that_cannot_be_read_say_where():
    with pytest.raises(unisono.MisuseError, match="line 1"):
        plans.Plan.from_text("plane ring\n")
    with pytest.raises(unisono.MisuseError):
        plans.Plan.from_json("{}")


def test_a_schedule_times_every_step():
    plan = plans.find_algorithm("ring_all_reduce").plan(plans.Placement(5, 2))
    schedule = plan.schedule()
    assert len(schedule.steps) == plan.verify().steps
    assert len(schedule.messages) == plan.verify().messages
    assert schedule.duration == max(step.end for step in schedule.steps)
    for arrow in schedule.messages:
        assert schedule.steps[arrow.sender].end == arrow.sent < arrow.arrived
        assert arrow.arrived <= schedule.steps[arrow.receiver].start
    with pytest.raises(unisono.MisuseError, match="deadlocks with 1 slots"):
        plan.schedule(slots=1)
    assert not plan.verify(slots=1).ok


def test_costs_are_stated():
    cost = plans.find_algorithm("ring_all_reduce").cost(plans.Placement(8), 8000)
    assert cost.steps == 14
    assert cost.bytes_sent == 14 * 1000
    assert cost.bytes_reduced == 7 * 1000
    assert cost.exact


def test_selection_is_a_table():
    placement = plans.Placement(8, 2)
    rows = plans.selection_table("all_reduce", placement)
    assert rows[0].min_bytes == 0
    assert rows[-1].max_bytes is None
    for row, later in pairwise(rows):
        assert row.max_bytes == later.min_bytes - 1
    ranked = plans.candidates("all_reduce", 1 << 20, placement)
    times = [candidate.time_us for candidate in ranked]
    assert times == sorted(times)
    chosen = plans.choose("all_reduce", 1 << 20, placement)
    assert (chosen.algorithm, chosen.protocol) == (ranked[0].algorithm, ranked[0].protocol)
    assert chosen.min_bytes <= 1 << 20
    text = plans.explain("all_reduce", 1 << 20, placement)
    assert str(text).startswith(f"all_reduce of 1 MiB on 8 ranks, 2 nodes:\n{chosen.algorithm}, ")


def test_a_setting_forces_the_choice():
    placement = plans.Placement(8, 2)
    forced = {"UNISONO_ALGORITHM": "all_reduce:tree"}
    chosen = plans.choose("all_reduce", 64, placement, settings=forced)
    other = plans.choose("all_gather", 64, placement, settings=forced)
    assert chosen.algorithm == "tree"
    assert other.algorithm != "tree"


def test_a_report_says_how_many_slots_a_plan_needs():
    assert plans.find_algorithm("ring_all_reduce").plan(plans.Placement(3)).verify().slots == 2
    for messages in (3, 4, 7):
        plan = exchange_of(messages)
        report = plan.verify(slots=2)
        assert (report.ok, report.slots) == (False, messages)
        assert f"with {messages} slots" in report.failures[0].describe()
        for more in (messages, messages + 3):
            enough = plan.verify(slots=more)
            assert (enough.ok, enough.slots) == (True, messages)
        assert not plan.verify(slots=messages - 1).ok
    # No number of slots helps where every rank receives before it sends.
    document = json.loads(exchange_of(1).to_json())
    for one in document["programs"]:
        one["thread_blocks"][0]["body"].reverse()
    report = plans.Plan.from_json(json.dumps(document)).verify()
    assert (report.failures[0].problem, report.slots) == ("deadlock", 0)


def test_a_plan_is_verified_with_the_slots_that_connections_have():
    free = native.usable_slots()
    assert exchange_of(free).verify().ok
    assert not exchange_of(free + 1).verify().ok
    assert exchange_of(free + 1).verify(slots=free + 1).ok


def test_a_custom_plan_is_right_but_for_its_results():
    @lang.program("custom", wanted=lambda shape, rank, index: [(1 - rank, index)])
    def swap(p):
        for rank in range(2):
            p.chunk(rank, "input", 0).copy(1 - rank, "output", 0)

    plan = swap.compile(2).plan
    report = plan.verify()
    assert report.ok
    assert not report.results_verified
    assert repr(report).startswith("<unisono.Report: right but for its results, 2 slots, ")
    known = plans.find_algorithm("ring_all_reduce").plan(plans.Placement(2))
    assert known.verify().results_verified
    # Everything else is verified.
    text = plan.to_text()
    rows = [row for row in text.split("\n") if not row.startswith("    recv ")]
    assert len(rows) == text.count("\n") - 1
    stuck = plans.Plan.from_text("\n".join(rows))
    failed = stuck.verify()
    assert failed.failures[0].problem == "message_left"
    assert "first message_left on rank" in repr(failed)


def test_a_failure_of_no_rank_names_none():
    plan = plans.find_algorithm("ring_all_reduce").plan(plans.Placement(2))
    point_to_point = plan.to_text().replace("collective all_reduce", "collective point_to_point")
    report = plans.Plan.from_text(point_to_point).verify()
    assert "first malformed, " in repr(report)
    assert repr(report.failures[0]) == "<unisono.Failure: malformed>"
