"""Chakra traces: whose they are, what holds a node up, what is none, and groups."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from unisono.errors import MisuseError

pytest.importorskip("pydantic")
pytest.importorskip("google.protobuf")

from python.chakra_nodes import field, node, trace
from unisono.simulate import Workload, load_cluster, load_workload, simulate_workload
from unisono.simulate.chakra_trace import read_trace


def write(folder: Path, *contents: bytes, name: str = "step.{}.et") -> Path:
    for rank, one in enumerate(contents):
        (folder / name.format(rank)).write_bytes(one)
    return folder


def kinds(workload: Workload, rank: int = 0) -> list[tuple[str, str, float]]:
    return [(one.kind, one.stream, one.duration_ns) for one in workload.lists[rank].tasks]


def test_a_control_dependency_on_no_node_holds_nothing_up(tmp_path: Path) -> None:
    # chakra_converter leaves them where it has removed the caller.
    nodes = [node(2, "a", 4, [], 100, ctrl=[1]), node(3, "b", 4, [2], 200, ctrl=[1, 2])]
    workload = load_workload(write(tmp_path, trace(nodes)))
    assert simulate_workload(load_cluster("dgx_a100"), workload).time_us == pytest.approx(300)
    # One on a node that is there keeps its order, and data are waited for.
    ordered = [node(2, "a", 4, [], 100, stream=1), node(3, "b", 4, [], 200, ctrl=[2], stream=2)]
    workload = load_workload(write(tmp_path, trace(ordered)))
    assert simulate_workload(load_cluster("dgx_a100"), workload).time_us == pytest.approx(300)
    with pytest.raises(MisuseError, match="node 2 .* depends on node 1, which the trace does not"):
        load_workload(write(tmp_path, trace([node(2, "a", 4, [1], 100)])))


@pytest.mark.parametrize("kind", [5, 6, 7])
def test_a_hosts_call_is_not_the_communication(tmp_path: Path, kind: int) -> None:
    nodes = [
        node(1, "c10d::allreduce_", kind, [], 30, is_cpu_op=True),
        node(2, "ncclDevKernel", 7, [1], 900, comm_type=0, comm_size=1 << 20, is_cpu_op=False),
    ]
    workload = load_workload(write(tmp_path, trace(nodes), trace(nodes)))
    assert kinds(workload) == [("compute", "host", 30_000), ("collective", "world", 0)]


def test_a_rank_is_what_the_contents_say(tmp_path: Path) -> None:
    def own(rank: int) -> list[bytes]:
        return [node(1, "a", 4, [], 100 * (rank + 1))]

    def durations() -> list[float]:
        workload = load_workload(tmp_path)
        return [workload.lists[rank].tasks[0].duration_ns for rank in range(2)]

    # The names are the wrong way round.
    write(tmp_path, trace(own(1), rank=1), trace(own(0), rank=0))
    assert durations() == [100_000, 200_000]
    send = node(2, "s", 5, [1], comm_src=1, comm_dst=0, comm_size=8)
    receive = node(2, "r", 6, [1], comm_src=1, comm_dst=0, comm_size=8)
    write(tmp_path, trace([*own(1), send]), trace([*own(0), receive]))
    assert durations() == [100_000, 200_000]
    assert read_trace(tmp_path / "step.0.et").rank == 1
    with pytest.raises(MisuseError, match="rank 0 by its metadata and 1 by node 2"):
        load_workload(write(tmp_path, trace([*own(1), send], rank=0)))
    with pytest.raises(MisuseError, match=r"step.1.et and step.0.et are both traces of rank 0"):
        load_workload(write(tmp_path, trace(own(0)), trace(own(0), rank=0)))
    with pytest.raises(MisuseError, match="its metadata has rank 'first', not a number"):
        load_workload(write(tmp_path, trace(own(0), rank="first"), trace(own(1))))


def test_a_name_may_say_more_than_the_rank(tmp_path: Path) -> None:
    for rank in range(2):
        contents = trace([node(1, "a", 4, [], 100 * (rank + 1))])
        (tmp_path / f"rank_{rank}_step_7.et").write_bytes(contents)
    workload = load_workload(tmp_path)
    assert [len(one.tasks) for one in workload.lists] == [1, 1]
    assert workload.lists[1].tasks[0].duration_ns == 200_000


def test_two_steps_of_a_rank_are_not_two_ranks(tmp_path: Path) -> None:
    contents = trace([node(1, "a", 4, [], 100)])
    write(tmp_path, contents, contents, name="rank0_step{}.et")
    with pytest.raises(MisuseError, match="are both traces of rank 0"):
        load_workload(tmp_path)


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    (tmp_path / "step.4000000.et").write_bytes(trace([node(1, "a", 4, [], 100)]))
    with pytest.raises(MisuseError, match=r"traces of ranks 0, 1, .*; the last one is 4000000"):
        load_workload(tmp_path)
    (tmp_path / "step.4000000.et").rename(tmp_path / "step.et")
    with pytest.raises(MisuseError, match=r"neither its contents nor its name .* step.0.et does"):
        load_workload(tmp_path)


KINETO = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X", "name": "a"}]}
HOST = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1, "name": "a"}]}


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (json.dumps(KINETO).encode(), "is a Kineto trace .* chakra_converter"),
        (json.dumps(KINETO, indent=2).encode(), "is a Kineto trace"),
        (json.dumps(KINETO["traceEvents"]).encode(), "is a Kineto trace"),
        (gzip.compress(json.dumps(KINETO).encode(), mtime=0), "is a Kineto trace"),
        (json.dumps(HOST).encode(), "is a host trace .* chakra_trace_link"),
        (b'{"version": "0.0.4"}', "a Chakra trace without a node, only metadata"),
        (b"", "a Chakra trace without a node; there is nothing"),
    ],
)
def test_other_traces_are_said_to_be(tmp_path: Path, contents: bytes, message: str) -> None:
    for name in ("trace_0.json", "trace.0.et", "trace_0.json.gz"):
        if not contents and name != "trace.0.et":
            continue
        (tmp_path / name).write_bytes(contents)
        with pytest.raises(MisuseError, match=f"^{tmp_path / name}:? {message}"):
            load_workload(tmp_path)
        (tmp_path / name).unlink()


def test_metadata_of_any_length_are_not_json(tmp_path: Path) -> None:
    # A message's length is its first byte: 91 is [ and 123 is {.
    for length in (91, 123):
        metadata = field(1, "0" * (length - 2))
        assert len(metadata) == length
        path = write(tmp_path, trace([node(1, "a", 4, [], 100)], metadata)) / "step.0.et"
        assert path.read_bytes()[0] == length
        assert len(read_trace(path).nodes) == 1


def test_one_trace_is_given_as_its_folder(tmp_path: Path) -> None:
    path = write(tmp_path, trace([node(1, "a", 4, [], 100)])) / "step.0.et"
    with pytest.raises(MisuseError, match="is one rank's trace; give the folder"):
        load_workload(path)


def test_groups_are_as_the_traces_list_them(tmp_path: Path) -> None:
    def of(rank: int) -> bytes:
        pair = [0, 1] if rank < 2 else [2, 3]
        listed = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": []},
                  {"pg_name": "1", "ranks": pair}, {"pg_name": "2", "ranks": [0, 8]}]  # fmt: skip
        text = repr([json.dumps(listed)])
        both = [node(2, "sum", 7, [], comm_type=0, comm_size=1 << 20, pg_name="0"),
                node(3, "gather", 7, [2], comm_type=2, comm_size=1 << 10, pg_name="1")]  # fmt: skip
        return trace([node(1, "## process_group:init ##", 1, [], inputs=text), *both])

    folder = write(tmp_path, *map(of, range(4)))
    workload = load_workload(folder)
    assert workload.communicators["0"] == [[0, 1, 2, 3]]
    assert workload.communicators["1"] == [[0, 1], [2, 3]]
    result = simulate_workload(load_cluster("dgx_a100"), workload)
    # A gather's size in a trace is a rank's share.
    assert [one[:3] for one in result.algorithms] == [
        ("0", "all_reduce", 1 << 20), ("1", "all_gather", 2 << 10),
    ]  # fmt: skip
    (folder / "groups.json").write_text('{"1": [0, 1, 2, 3]}')
    assert load_workload(folder).communicators["1"] == [[0, 1, 2, 3]]


def test_dumps_may_say_their_rank_and_may_not_be_empty(tmp_path: Path) -> None:
    config = {"0": {"name": "0", "ranks": "[0, 1]"}}
    entry = {"process_group": ["0", ""], "profiling_name": "nccl:all_reduce", "duration_ms": 0.1,
             "time_created_ns": 1, "collective_seq_id": 1, "input_sizes": [[4]],
             "output_sizes": [[4]]}  # fmt: skip
    for file, rank in (("a_5", 0), ("b_7", 1)):
        dump = {"version": "2.10", "pg_config": config, "entries": [entry], "rank": rank}
        (tmp_path / file).write_text(json.dumps(dump))
    assert len(load_workload(tmp_path).lists) == 2
    for file in ("a_5", "b_7"):
        dump = json.loads((tmp_path / file).read_text())
        (tmp_path / file).write_text(json.dumps(dump | {"entries": []}))
    with pytest.raises(MisuseError, match="holds no call, message or compute"):
        load_workload(tmp_path)
    (tmp_path / "b_7").write_text(json.dumps(dump | {"rank": -1}))
    with pytest.raises(MisuseError, match="b_7: its rank is -1; it is a number from 0 on"):
        load_workload(tmp_path)
