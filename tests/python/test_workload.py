"""Workload files, traces and GOAL: what is read, what it takes, and what is refused."""

import contextlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from python.chakra_nodes import node, trace
from unisono import cli
from unisono.errors import MisuseError
from unisono.simulate import (
    LogGops,
    Workload,
    goal_of_workload,
    load_cluster,
    load_workload,
    parse_log_gops,
    parse_workload,
    read_goal,
    run_goal,
    simulate_workload,
    write_goal,
)

STEP = """
format: 1
name: step
ranks: 16
communicators:
  tensor: {size: 8}
  data: {size: 2, stride: 8}
programs:
  - ranks: all
    steps:
      - repeat:
          count: 3
          steps:
            - compute: {time: 200 us, name: forward}
            - all_reduce: {size: 4 MiB, over: tensor, algorithm: ring, name: sum, after: [forward]}
            - compute: {time: 0.4 ms, name: backward, after: [sum]}
            - reduce_scatter: {size: 32 MiB, over: data, name: gradients, after: [backward]}
      - compute: {time: 50 us, name: update, after: [gradients]}
"""


def test_a_workload_file_overlaps_what_it_says() -> None:
    result = simulate_workload(load_cluster("dgx_a100"), parse_workload(STEP), explain=True)
    assert result.compute_us == pytest.approx(3 * 600 + 50)
    assert 0 < result.exposed_us < result.communication_us
    # The shown rank never waits for more than its own calls; another may end a little later.
    assert result.tasks[-1].ended_us == pytest.approx(result.compute_us + result.exposed_us)
    assert result.time_us == pytest.approx(result.tasks[-1].ended_us, rel=1e-4)
    names = [task.name for task in result.tasks]
    assert names[:2] == ["forward", "sum"]
    assert names[-1] == "update"
    assert ("tensor", "all_reduce", 4 << 20, "ring") in result.algorithms
    assert result.shares["compute"] > 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("200 us", "200", "'200' is no duration; write it as \"1.5 ms\""),
        ("4 MiB", "4 us", "'4 us' has the unit us; a size has one of"),
        ("over: tensor", "over: tenser", "is over 'tenser'; there are tensor, data"),
        ("after: [sum]", "after: [update]", "it is after 'update', but no step before it"),
        ("all_reduce:", "all_reduced:", "all_reduced: Extra inputs"),
        ("{size: 8}", "{size: 5}", "16 ranks do not divide into groups of 5"),
        ("ranks: all", "ranks: 0..16", "write all, 0..15 or a list"),
        ("ranks: 16", "ranks: 0", "ranks: Input should be greater than or equal to 1"),
        ("format: 1", "format: 2", "format: Input should be 1"),
        ("algorithm: ring", "algorithm: rng", "rng"),
        ("programs:", "program:", "program: Extra inputs are not permitted"),
        ("name: step", "name: step\nname: other", "'name' occurs twice"),
    ],
)
def test_wrong_files_say_what_would_be_right(old: str, new: str, message: str) -> None:
    assert old in STEP
    with pytest.raises(MisuseError, match="(?s)" + message):
        simulate_workload(load_cluster("dgx_a100"), parse_workload(STEP.replace(old, new, 1)))


def test_a_training_step_may_be_a_file() -> None:
    workload = parse_workload("""
format: 1
name: fsdp
training:
  model: gpt-1.3b
  layout: {shard: 8, replicate: 2}
  device: {speed: 150 TFLOP/s, memory: 1.5 TB/s}
  global_batch_tokens: 65536
  gather: layer
  algorithms: {all_gather: ring}
""")
    result = simulate_workload(load_cluster("dgx_a100"), workload)
    assert result.name == "fsdp"
    assert result.ranks == 16
    assert {over for over, *_ in result.algorithms} == {"shard", "replicate"}


def test_messages_go_round_a_communicator() -> None:
    workload = parse_workload("""
format: 1
name: ring
ranks: 4
communicators: {all: {size: 4}}
programs:
  - ranks: [0, 1, 2, 3]
    steps:
      - send: {size: 1 MiB, to: "+1", over: all}
      - recv: {size: 1 MiB, from: "-1", over: all}
""")
    assert simulate_workload(load_cluster("dgx_a100"), workload).time_us > 0
    workload.lists[0].ranks = [0, 1, 2]
    with pytest.raises(MisuseError, match="message"):
        simulate_workload(load_cluster("dgx_a100"), workload)


def test_goal_goes_out_and_comes_back(tmp_path: Path) -> None:
    cluster = load_cluster("dgx_a100")
    schedule = goal_of_workload(cluster, parse_workload(STEP))
    for name in ("step.goal", "step.bin"):
        write_goal(schedule, tmp_path / name)
        again = read_goal(tmp_path / name)
        assert again.to_binary() == schedule.to_binary()
    assert run_goal(schedule, cluster).time_us > 1850
    with pytest.raises(MisuseError, match=r"ends in .goal \(text\) or .bin"):
        write_goal(schedule, tmp_path / "step.txt")
    (tmp_path / "bad.goal").write_text("num_ranks 1\nrank 0 {\nsend 1b to 1\n}\n")
    with pytest.raises(MisuseError, match="line 3, column 12: rank 1; ranks are 0 to 0"):
        read_goal(tmp_path / "bad.goal")


def test_log_gops_have_units() -> None:
    assert parse_log_gops("L=3.7us,o=200ns,G=0.04ns/B,S=64KiB") == LogGops(
        latency_ns=3700, overhead_ns=200, gap_ns_per_byte=0.04, rendezvous_bytes=65536
    )
    for text in ("L=3", "L=3ns/B", "G=1ns", "x=3ns", "L=1ns,L=2ns", ""):
        with pytest.raises(MisuseError):
            parse_log_gops(text)


def flight_recorder(ranks: int, calls: int) -> list[dict[str, Any]]:
    """Dumps of an all-reduce each 500 us, of 100 us."""
    dumps = []
    for _ in range(ranks):
        entries = [
            {
                "process_group": ("0", "default_pg"), "collective_seq_id": i + 1, "is_p2p": False,
                "profiling_name": "nccl:all_reduce", "input_sizes": [[1 << 18]],
                "input_dtypes": ["Float"], "output_sizes": [[1 << 18]], "state": "completed",
                "time_created_ns": 1_000_000 + 500_000 * i, "duration_ms": 0.1,
            }
            for i in range(calls)
        ]  # fmt: skip
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
        dumps.append({"version": "2.10", "pg_config": config, "entries": entries})
    return dumps


def write_dumps(folder: Path, dumps: list[dict[str, Any]], *, pickled: bool) -> Path:
    for rank, dump in enumerate(dumps):
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(dump) if pickled else json.dumps(dump).encode())
    return folder


@pytest.mark.parametrize("pickled", [True, False])
def test_flight_recorder_dumps_keep_the_time_between_calls(tmp_path: Path, pickled: bool) -> None:
    folder = write_dumps(tmp_path, flight_recorder(4, 5), pickled=pickled)
    result = simulate_workload(load_cluster("dgx_a100"), load_workload(folder))
    # Four gaps of 400 us between calls that overlap with nothing.
    assert result.compute_us == pytest.approx(4 * 400)
    assert len([task for task in result.tasks if task.kind == "collective"]) == 5
    assert result.time_us == pytest.approx(result.compute_us + result.communication_us)


def test_dumps_of_gloo_are_read() -> None:
    """Real ones, of record_flight_recorder.py; the groups' ranks and durations are not in them."""
    folder = Path(__file__).with_name("flight_recorder_gloo")
    workload = load_workload(folder)
    assert workload.communicators == {"0": [[0, 1, 2, 3]], "1": [[0, 1]], "2": [[2, 3]]}
    result = simulate_workload(load_cluster("dgx_a100"), workload)
    names = [task.name for task in result.tasks if task.kind == "collective"]
    assert names == 2 * [
        "all_reduce", "all_reduce", "all_gather", "broadcast", "reduce", "all_to_all", "barrier",
    ]  # fmt: skip
    assert result.compute_us > 0


def test_dumps_of_nccl_are_read() -> None:
    """Real ones, of record_flight_recorder_nccl.py; messages to the next rank are in batches."""
    workload = load_workload(Path(__file__).with_name("flight_recorder_nccl"))
    assert workload.communicators == {"0": [[0, 1, 2, 3]], "1": [[0, 1]], "2": [[2, 3]]}
    result = simulate_workload(load_cluster("hgx_h200_4_nccl"), workload)
    of_rank = {kind: [task.name for task in result.tasks if task.kind == kind]
               for kind in ("collective", "send", "recv")}  # fmt: skip
    assert of_rank["collective"] == 3 * [
        "all_reduce", "all_reduce", "_all_gather_base", "_reduce_scatter_base", "all_to_all",
        "broadcast", "reduce", "all_reduce", "all_reduce_barrier",
    ]  # fmt: skip
    assert of_rank["send"] == 3 * ["send 0->1"]
    assert of_rank["recv"] == 3 * ["recv 0<-3"]
    assert result.compute_us > 0


def test_what_the_watchdog_saw_too_late_began_when_it_could(tmp_path: Path) -> None:
    dumps = flight_recorder(2, 3)
    for dump in dumps:
        for i, entry in enumerate(dump["entries"]):
            # All are made at once, run one after another, and are seen at one time later.
            entry |= {"time_created_ns": 1_000_000, "time_discovered_started_ns": 9_000_000 + i,
                      "time_discovered_completed_ns": 9_000_001 + i}  # fmt: skip
    folder = write_dumps(tmp_path, dumps, pickled=True)
    assert simulate_workload(load_cluster("dgx_a100"), load_workload(folder)).compute_us == 0
    for dump in dumps:
        for i, entry in enumerate(dump["entries"]):
            # The watchdog was there when each began, 300 us after another.
            entry |= {"time_discovered_started_ns": 2_000_000 + 300_000 * i,
                      "time_discovered_completed_ns": 2_100_000 + 300_000 * i}  # fmt: skip
    write_dumps(tmp_path, dumps, pickled=True)
    result = simulate_workload(load_cluster("dgx_a100"), load_workload(folder))
    assert result.compute_us == pytest.approx(2 * 200)


def test_a_batch_without_a_duration_is_refused(tmp_path: Path) -> None:
    dumps = flight_recorder(2, 2)
    for dump in dumps:
        dump["entries"][1] |= {"state": "scheduled", "duration_ms": None}
        dump["entries"].append(
            dump["entries"][0] | {"profiling_name": "nccl:coalesced", "duration_ms": None}
        )
    folder = write_dumps(tmp_path, dumps, pickled=True)
    with pytest.raises(MisuseError, match=r"rank 0, entry 1 \(nccl:all_reduce, completed"):
        load_workload(folder)


def test_a_call_of_gloo_that_has_not_ended_is_refused(tmp_path: Path) -> None:
    dumps = flight_recorder(2, 2)
    for entry in dumps[1]["entries"]:
        entry |= {"profiling_name": "gloo:all_reduce", "retired": False}
        del entry["duration_ms"]
    folder = write_dumps(tmp_path, dumps, pickled=True)
    with pytest.raises(MisuseError, match=r"rank 1, entry 0 \(gloo:all_reduce"):
        load_workload(folder)


def change(entry: int, name: str, value: Any) -> Callable[[list[dict[str, Any]]], None]:
    def apply(dumps: list[dict[str, Any]]) -> None:
        dumps[1]["entries"][entry][name] = value

    return apply


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            change(4, "duration_ms", None),
            r"rank 1, entry 4 \(nccl:all_reduce, completed\): it has ",
        ),
        (change(2, "profiling_name", "nccl:dance"), "'nccl:dance' is no collective"),
        (change(0, "process_group", ("9", "")), "its group '9' is not in pg_config"),
        (lambda dumps: dumps[1]["entries"].pop(), "call 4 on communicator 0 is nothing at rank 1"),
        (lambda dumps: dumps[1]["entries"][3].pop("input_sizes"), "it has no 'input_sizes'"),
        (lambda dumps: dumps[1].pop("entries"), "it has no list of entries"),
    ],
)
def test_dumps_that_are_wrong_are_refused(
    tmp_path: Path, spoil: Callable[[list[dict[str, Any]]], None], message: str
) -> None:
    dumps = flight_recorder(4, 5)
    spoil(dumps)
    folder = write_dumps(tmp_path, dumps, pickled=True)
    with pytest.raises(MisuseError, match=message):
        simulate_workload(load_cluster("dgx_a100"), load_workload(folder))


class _Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (Path("pwned"), "x"))


def test_a_pickle_that_calls_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_bytes(pickle.dumps({"entries": [_Hostile()]}))
    with pytest.raises(MisuseError, match=r"it names pathlib.*; a dump holds plain data only"):
        load_workload(tmp_path)


@settings(deadline=None, max_examples=50)
@given(contents=st.binary(max_size=64))
def test_no_bytes_crash_the_readers(
    tmp_path_factory: pytest.TempPathFactory, contents: bytes
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    for name in ("trace_0", "trace.0.et"):
        (folder / name).write_bytes(contents)
        with contextlib.suppress(MisuseError):
            load_workload(folder)
        (folder / name).unlink()


def record(rank: int, ranks: int, calls: int, first: int = 0) -> dict[str, Any]:
    entries = [
        {
            "sequence": i, "collective": "all_gather", "plan": "ring", "protocol": "simple",
            "bytes": 1 << 20, "type": "float32", "operation": "sum", "root": 0,
            "path": "host", "state": "ended", "scheduled_ns": 1000 * i + 1,
            "started_ns": 300_000 * i + 1000, "ended_ns": 300_000 * i + 51_000,
        }
        for i in range(first, calls)
    ]  # fmt: skip
    return {
        "format": "unisono-record", "version": 2, "cause": "request", "communicator": "7",
        "group": "world", "epoch": 0, "rank": rank, "ranks": ranks,
        "world_ranks": list(range(ranks)), "node": "n", "process": 1, "watched": False,
        "clock": {"monotonic_ns": 1, "wall_ns": 1}, "collectives": entries, "messages": [],
    }  # fmt: skip


def test_our_records_are_workloads(tmp_path: Path) -> None:
    for rank in range(4):
        # Rank 2's ring has lost its oldest entry.
        (tmp_path / f"record_{rank}.json").write_text(json.dumps(record(rank, 4, 4, rank == 2)))
    result = simulate_workload(load_cluster("dgx_a100"), load_workload(tmp_path))
    assert result.algorithms == [("record", "all_gather", 1 << 20, "ring")]
    assert result.compute_us == pytest.approx(2 * 250)
    late = record(3, 4, 4)
    late["collectives"][-1]["state"] = "started"
    (tmp_path / "record_3.json").write_text(json.dumps(late))
    with pytest.raises(MisuseError, match="call 3 .* is started; the record ends early"):
        load_workload(tmp_path)
    late["collectives"][-1].update(state="ended", started_ns=0, path="interpreter")
    (tmp_path / "record_3.json").write_text(json.dumps(late))
    with pytest.raises(MisuseError, match="call 3 .* went to a CUDA stream; the record does"):
        load_workload(tmp_path)
    (tmp_path / "record_3.json").unlink()
    with pytest.raises(MisuseError, match="no records of ranks 3"):
        load_workload(tmp_path)


def write_chakra(folder: Path, nodes: list[bytes], ranks: int = 2) -> Path:
    for rank in range(ranks):
        (folder / f"step.{rank}.et").write_bytes(trace(nodes))
    return folder


CHAKRA = [
    node(1, "load", 2, []),
    node(2, "forward", 4, [1], 300),
    node(3, "sum", 7, [2], 0, comm_type=0, comm_size=1 << 20, pg_name="3"),
    node(5, "backward", 4, [3], 500, stream=7),
    node(4, "beside", 4, [2], 100, is_cpu_op=True),
]


def test_chakra_traces_run_in_the_order_of_their_dependencies(tmp_path: Path) -> None:
    folder = write_chakra(tmp_path, CHAKRA)
    (folder / "groups.json").write_text('{"3": [0, 1]}')
    result = simulate_workload(load_cluster("dgx_a100"), load_workload(folder))
    assert [task.name for task in result.tasks][:2] == ["load", "forward"]
    assert result.time_us == pytest.approx(800 + result.communication_us)
    # The host's part goes on beside the sum.
    assert result.compute_us == pytest.approx(result.time_us)
    assert result.algorithms[0][:3] == ("3", "all_reduce", 1 << 20)


def test_chakra_traces_may_be_json(tmp_path: Path) -> None:
    from google.protobuf import json_format
    from unisono.simulate.chakra_trace import read_trace

    nodes = read_trace(write_chakra(tmp_path, CHAKRA) / "step.0.et").nodes
    for rank in range(2):
        (tmp_path / f"step.{rank}.et").unlink()
        text = '{"version": "0.0.4"}' + "".join(map(json_format.MessageToJson, nodes))
        (tmp_path / f"step.{rank}.json").write_text(text)
    (tmp_path / "groups.json").write_text('{"3": [0, 1]}')
    result = simulate_workload(load_cluster("dgx_a100"), load_workload(tmp_path))
    assert result.time_us == pytest.approx(800 + result.communication_us)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node(1, "a", 4, [2]), node(2, "b", 4, [1])], "in a cycle: 1 needs 2 needs 1"),
        ([node(1, "a", 4, [9])], "depends on node 9, which the trace does not have"),
        ([node(1, "a", 7, [], comm_type=0)], r"node 1 \(a\) has no comm_size"),
        ([node(1, "a", 7, [], comm_type=12, comm_size=1)], "comm_type 12; it is 0 to 9"),
        ([node(1, "a", 7, [], comm_type=0, comm_size=1, pg_name="9")], "group '9'; there are"),
        ([node(1, "a", 4, []), node(1, "b", 4, [])], "two nodes have one number"),
        ([], "step.0.et: a Chakra trace without a node, only metadata"),
        ([node(1, "init", 1, [])], "no node of its traces computes or communicates"),
        ([node(1, "a", 7, [], comm_type=0, is_cpu_op=True)], r"node 1 \(a\) has no comm_size"),
    ],
)
def test_chakra_traces_that_are_wrong_are_refused(
    tmp_path: Path, nodes: list[bytes], message: str
) -> None:
    with pytest.raises(MisuseError, match=message):
        load_workload(write_chakra(tmp_path, nodes))


def test_a_chakra_trace_that_ends_early_names_the_byte(tmp_path: Path) -> None:
    path = write_chakra(tmp_path, CHAKRA, 1) / "step.0.et"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(MisuseError, match=r"byte \d+: a message of \d+ bytes, but only .* early"):
        load_workload(tmp_path)


def test_a_folder_must_hold_something(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="folder without files"):
        load_workload(tmp_path)
    with pytest.raises(MisuseError, match="cannot read"):
        load_workload(tmp_path / "none.yaml")
    assert isinstance(parse_workload(STEP), Workload)


EXAMPLES = Path(__file__).parents[2] / "examples" / "workloads"


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `unisono simulate --workload` prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["unisono", "simulate", "--workload", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    printed = capsys.readouterr()
    assert ended.value.code in (0, None), printed.err
    return printed.out


@pytest.mark.slow
def test_the_command_shows_a_step_and_writes_goal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = str(EXAMPLES / "step.yaml")
    shown = command(capsys, step, "--cluster", "dgx_a100", "--explain")
    assert "step: 16 ranks on 2 nodes" in shown
    assert "computing between calls" in shown
    goal = str(tmp_path / "step.bin")
    command(capsys, step, "--cluster", "dgx_a100", "--goal", goal)
    result = json.loads(command(capsys, goal, "--loggops", "L=1us,o=100ns", "--json", "-"))
    assert len(result["ranks_us"]) == 16
    assert result["time_us"] > 8 * 600


def test_a_standstill_is_a_failure_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wait.goal"
    path.write_text(
        "num_ranks 2\nrank 0 {\na: recv 1b from 1\nb: send 1b to 1\nb requires a\n}\n"
        "rank 1 {\na: recv 1b from 0\nb: send 1b to 0\nb requires a\n}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["unisono", "simulate", "--workload", str(path)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code not in (0, None)
    error = " ".join(capsys.readouterr().err.split())
    assert "they wait for each other" in error
    assert "rank 1, operation 0 (recv of 1 bytes from 0 with tag 0) waits for rank 0" in error
