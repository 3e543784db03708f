"""Where nodes are: cluster files, jobs that know it, and which groups fit where."""

from functools import partial

import pytest
import unisono
from python.jobs import run_job
from unisono import levels, plans
from unisono.launcher import launch
from unisono.testing import run_ranks


def test_a_cluster_files_levels_are_those_of_its_network():
    spans = levels.spans_of_cluster("clos_three_layer")
    # The latencies of the file, less that of its racks; its last level holds all nodes.
    assert spans == [("rack", 2, 12_000), ("zone", 512, 28_000), ("building", 4096, 58_000)]
    assert levels.spans_of_cluster("dgx_h100") == []
    assert levels.locations_in_cluster("clos_three_layer", [0, 1500]) == [
        "rack=0+12000ns,zone=0+28000ns,building=0+58000ns",
        "rack=750+12000ns,zone=2+28000ns,building=0+58000ns",
    ]
    assert levels.locations_in_cluster("dgx_h100", [3]) == ["none"]
    with pytest.raises(unisono.MisuseError, match="node is 16384; .* 16384 nodes"):
        levels.locations_in_cluster("clos_three_layer", [16384])
    with pytest.raises(unisono.MisuseError, match="clos_three_layer"):
        levels.spans_of_cluster("clos_three_layers")


def test_a_placement_says_how_far_ranks_are_apart():
    placement = plans.Placement(8, 4).with_spans([("rack", 2, 5_000)])
    assert placement.levels == ["rack"]
    assert [placement.levels_left(0, rank) for rank in range(8)] == [-1, -1, 0, 0, 1, 1, 1, 1]
    named = plans.Placement(4, 4).with_levels(["rack=a", "rack=b", "rack=a", "rack=b"])
    assert [named.levels_left(0, rank) for rank in range(4)] == [-1, 1, 0, 1]
    with pytest.raises(unisono.MisuseError, match="node 0 are rack and those of node 1 are zone"):
        plans.Placement(2, 2).with_levels(["rack=a", "zone=a"])
    with pytest.raises(unisono.MisuseError, match="the levels are those of 1 nodes"):
        plans.Placement(2, 2).with_levels(["rack=a"])
    with pytest.raises(unisono.MisuseError, match="has 3 nodes; it must be a multiple of 2"):
        plans.Placement(6, 6).with_spans([("rack", 2, 0), ("zone", 3, 0)])


def test_times_between_racks_change_what_is_chosen():
    """Pairs that halve leave a rack less often than a ring of eight nodes does."""
    near = plans.Placement(32, 8)
    far = near.with_spans([("rack", 4, 500_000)])
    assert plans.explain("all_gather", "4MiB", near).algorithm == "hierarchical_ring"
    found = plans.explain("all_gather", "4MiB", far)
    assert found.algorithm == "hierarchical_recursive"
    assert found.levels == "2 racks (+500 us)"
    assert [one.where for one in found.distances] == [
        "inside a node", "inside a rack", "between racks",
    ]  # fmt: skip
    # Eight nodes of four lanes, one exchange of each lane between the racks.
    assert found.distances[2].messages == 8 * 4
    assert found.candidates[0].longer_us == 500


def test_a_job_takes_its_levels_from_a_cluster_file(tmp_path, capfdbinary):
    job = partial(run_job, tmp_path, capfdbinary)
    outcome, output = job(
        """
        comm = unisono.init()
        assert comm.all_reduce(np.ones(5)).tolist() == [4.0] * 5
        print(comm.explain("all_reduce", 8).levels)
        """,
        4,
        nodes=4,
        locations=levels.locations_in_cluster("clos_three_layer", range(4)),
    )
    assert outcome.ok, (outcome, output)
    assert output == [
        f"[{rank}] 2 racks (+12 us), 1 zone (+28 us), 1 building (+58 us)" for rank in range(4)
    ]


def test_each_node_needs_a_location():
    with pytest.raises(unisono.MisuseError, match="1 locations for 2 nodes"):
        launch(["x.py"], 2, nodes=2, locations=["rack=a"])


def test_ranks_of_one_process_may_be_in_racks():
    def body(comm):
        return comm.explain("all_gather", 1024).levels

    told = run_ranks(2, body, nodes=2, settings={"UNISONO_LEVELS": "rack=r1,zone=z1"})
    assert told == ["1 rack, 1 zone"] * 2


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "''"),
        ("tensor", "'tensor'"),
        ("tensor=0", "'tensor=0'"),
        ("tensor=2,=3", "'=3'"),
        ("tensor=2,tensor=4", "'tensor' is named twice"),
        (",".join(f"g{i}=1" for i in range(9)), "there are 9"),
    ],
)
def test_groups_that_cannot_be_read_are_quoted(text, part):
    with pytest.raises(unisono.MisuseError, match=part):
        levels.parse_groups(text)


def test_groups_stay_in_the_smallest_unit_that_holds_them():
    placement = plans.Placement(64, 8).with_spans([("rack", 2, 0), ("zone", 4, 0)])
    wanted = levels.parse_groups("tensor=8,expert=2,pipeline=2")
    placed = levels.place_groups(placement, wanted)
    assert [(one.name, one.size, one.stride, one.groups, one.where) for one in placed] == [
        ("tensor", 8, 1, 8, "node"),
        ("expert", 2, 8, 32, "rack"),
        ("pipeline", 2, 16, 32, "zone"),
        ("data", 2, 32, 32, "cluster"),
    ]
    assert not any(one.advice for one in placed)


def test_groups_that_are_split_get_an_advice():
    placement = plans.Placement(24, 3).with_spans([("rack", 2, 0)])
    (tensor, _) = levels.place_groups(placement, levels.parse_groups("tensor=12"))
    assert tensor.inside == [0, 1, 1]
    assert tensor.advice.startswith("1 of 2 tensor groups leave their rack")
    (tensor, data) = levels.place_groups(placement, levels.parse_groups("tensor=3"))
    # Ranks 6 to 8 and 15 to 17 are on two nodes each.
    assert tensor.inside == [6, 1, 1]
    assert tensor.where == "cluster"
    assert tensor.advice == (
        "2 of 8 tensor groups leave their node, and the others stay: choose sizes up to tensor "
        "whose product, now 3, divides the ranks of each node"
    )
    assert (data.name, data.where, data.advice) == ("data", "cluster", "")
    even = plans.Placement(32, 4).with_spans([("rack", 2, 0)])
    (tensor, _) = levels.place_groups(even, levels.parse_groups("tensor=16"))
    assert tensor.where == "rack"
    assert tensor.advice == (
        "each tensor group of 16 ranks leaves its node, which has 8: tensor=8 stays inside"
    )
    single = plans.Placement(4, 4)
    (tensor, _) = levels.place_groups(single, levels.parse_groups("tensor=2"))
    assert tensor.advice == "no tensor group of 2 ranks or more fits into nodes of 1"
    with pytest.raises(
        unisono.MisuseError, match="tensor 5 are 5 ranks, which do not divide the 2"
    ):
        levels.place_groups(placement, levels.parse_groups("tensor=5"))
