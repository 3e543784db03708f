"""Logs: alone they have the verdict that a person gives; with dumps they add to theirs."""

from __future__ import annotations

import gzip
import pickle
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from python.doctor.dumps import write
from python.doctor.jobs import Job, simulate
from python.doctor.log_samples import (
    KILLED,
    OOM,
    SAMPLES,
    Sample,
    closed,
    nccl_ranks,
    timed_out,
    torchrun,
    traceback,
    xid,
)
from python.doctor.test_hostile import read_or_refuse
from python.tiers import quick
from unisono.doctor import Diagnosis, diagnose, files, read_files
from unisono.doctor.files import parse
from unisono.errors import MisuseError
from unisono.records.logs.read import read_log


def examine(folder: Path, texts: dict[str, str]) -> Diagnosis:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return diagnose(read_files([folder]))


def judged(found: Diagnosis) -> tuple[str, tuple[str, ...]]:
    return found.verdict, tuple(found.ranks)


def of(sample: Sample) -> tuple[str, tuple[str, ...]]:
    return sample.verdict, sample.ranks


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_log_has_the_verdict_of_a_person(tmp_path: Path, name: str) -> None:
    found = examine(tmp_path, SAMPLES[name].files)
    assert judged(found) == of(SAMPLES[name]), found.paragraph
    assert found.evidence or not found.verdict.blames
    assert found.exit_status == (3 if found.verdict.blames else 4)


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[default0]:",
        "\x1b[31m",
        "Epoch 0:   6%|##  | 32/500 [6:28<94:39, 1.3it/s]\r",
        "node1: ",
        "(RayWorkerWrapper pid=4009) ",
        "  | 2024-11-28T07:42:15.533Z | ",
    ],
)
def test_what_a_launcher_writes_before_a_line_changes_nothing(tmp_path: Path, prefix: str) -> None:
    sample = SAMPLES["watchdog_other_call"]
    text = "".join(prefix + line + "\n" for line in sample.files["job.log"].splitlines())
    assert judged(examine(tmp_path, {"job.log": text})) == of(sample)


@pytest.mark.parametrize("form", ["[{}] ", "{}: ", "[1,{}]<stderr>:"])
def test_a_prefix_tells_the_rank(tmp_path: Path, form: str) -> None:
    error = "\n".join(("Traceback (most recent call last):", '  File "a.py", line 1',
                       "ValueError: 7"))  # fmt: skip
    lost = "unisono.errors.PeerError: peer error (rank 2): rank 2 is gone, as rank 0 found: reset"
    text = "".join(form.format(rank) + line + "\n" for rank, said in (
        (0, lost), (2, error), (1, lost.replace("as rank 0", "as rank 1"))
    ) for line in said.splitlines())  # fmt: skip
    assert judged(examine(tmp_path, {"job.log": text})) == ("died", ("rank 2",))


def test_numbers_of_lines_are_no_ranks(tmp_path: Path) -> None:
    sample = SAMPLES["watchdog_silent_rank"]
    text = "".join(f"[{1000 + number}] {line}\n"
                   for number, line in enumerate(sample.files["job.log"].splitlines()))  # fmt: skip
    assert judged(examine(tmp_path, {"job.log": text})) == of(sample)
    text += "[2000] node1:7:8 [0] enqueue.cc:9 NCCL WARN Cuda failure 'unspecified launch failure'"
    assert judged(examine(tmp_path, {"job.log": text})) == (
        "GPU error", ("process 7 of host node1",))  # fmt: skip


@pytest.mark.parametrize("numbers", [(22, 23), (23, 22)])
def test_the_first_call_of_a_rank_that_timed_out_is_the_stuck_one(
    tmp_path: Path, numbers: tuple[int, int]
) -> None:
    text = "".join(timed_out([0, 1, 2], number) for number in numbers)
    found = examine(tmp_path, {"job.log": text})
    assert found.call is not None
    assert found.call.number == 22


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("rank 3 was killed by SIGKILL", ("died", ("rank 3",))),
        ("rank 3 exited with code 3", ("died", ("rank 3",))),
        ("rank 3 failed first: it still ran when rank 0 exited with code 1 because of it",
         ("stuck outside communication", ("rank 3",))),
    ],
)  # fmt: skip
def test_the_last_line_of_unisono_run_is_believed(
    tmp_path: Path, said: str, expected: tuple[str, tuple[str, ...]]
) -> None:
    text = (
        "unisono.errors.CollectiveTimeoutError: timeout (rank 3): rank 3 answers, but is not "
        f"in a call of this communicator; rank 0 has waited for it for 5 s: a\nerror: {said}\n"
    )
    assert judged(examine(tmp_path, {"run.txt": text})) == expected


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("peer error (rank 1): rank 1 left the communicator (destroyed, or its process ended) "
         "while rank 0 still needed it in call 4", "never joined"),
        ("timeout (rank 1): rank 1 does not answer: it is stopped, cut off, or busy outside of any "
         "call; rank 0 has waited", "stuck outside communication"),
        ("peer error (rank 1): the connection between rank 0 and rank 1 is broken, though both "
         "answer: reset", "network"),
        ("aborted (rank 1): the communicator was aborted on rank 1", "aborted"),
        ("timeout (rank 1): rank 0 waits in send to rank 1 (call 7), which itself waits in send to "
         "rank 0 (call 5), and no rank is known to be stopped; rank 0 has", "undecided"),
    ],
)  # fmt: skip
def test_errors_of_unisono_name_the_rank_and_why(tmp_path: Path, said: str, verdict: str) -> None:
    found = examine(tmp_path, {"rank_0.log": f"unisono.errors.PeerError: {said}\n"})
    assert judged(found) == (verdict, () if verdict == "undecided" else ("rank 1",))


PROGRAM = """
import os, signal, sys, time
import numpy as np
import unisono

way, a = sys.argv[1], np.ones(1000)
# Only a rank that sleeps is found by its time limit.
comm = unisono.init(timeout=10.0 if way == "sleep" else 120.0)
for step in range(12):
    comm.all_reduce(a)
    if step == 9 and comm.rank == 2:
        if way == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if way == "raise": raise ValueError("bad shard")
        if way == "sleep": time.sleep(600)
        if way == "leave": sys.exit(0)
        if way == "size": a = np.ones(1001)
"""
WAYS = {"kill": "died", "raise": "died", "sleep": "stuck outside communication",
        "leave": "never joined", "size": "other call"}  # fmt: skip


@pytest.mark.parametrize("way", quick(WAYS, kept={"size"}))
def test_the_output_of_a_job_that_failed_names_the_rank(tmp_path: Path, way: str) -> None:
    (tmp_path / "job.py").write_text(PROGRAM)
    output = tmp_path / "out.txt"
    with output.open("wb") as out:
        subprocess.run([sys.executable, "-m", "unisono", "run", "-n", "4", "-v", "--label",
                        str(tmp_path / "job.py"), way], stdout=out, stderr=out, timeout=240,
                       check=False)  # fmt: skip
    found = diagnose(read_files([output]))
    assert judged(found) == (WAYS[way], ("rank 2",)), output.read_text()


def job_with(fault: str) -> Job:
    return next(one for seed in range(99)
                if (one := simulate(seed, fault, flat=True)).ranks == 4)  # fmt: skip


@pytest.mark.parametrize("format_", ["nccl", "unisono"])
def test_a_log_says_why_a_rank_left_no_dump(tmp_path: Path, format_: str) -> None:
    job = job_with("died")
    write(job, tmp_path / "dumps", format_)
    alone = diagnose(read_files([tmp_path]))
    found = examine(tmp_path, {"logs/out.txt": torchrun(job.victim, -9, KILLED), "logs/dmesg": OOM})
    assert judged(found) == ("died", (f"rank {job.victim}",))
    assert found.confidence > alone.confidence
    assert any("for its memory" in one for one in found.evidence)
    assert found.call == alone.call
    assert f"group {found.call.group}" in found.paragraph


@pytest.mark.parametrize("format_", ["nccl", "unisono"])
def test_dumps_that_surely_show_another_rank_are_believed(tmp_path: Path, format_: str) -> None:
    """Both causes are told."""
    job = job_with("skip")
    write(job, tmp_path, format_)
    other = (job.victim + 1) % job.ranks
    found = examine(tmp_path, {"out.txt": torchrun(other, -9, KILLED)})
    assert judged(found) == ("never joined", (f"rank {job.victim}",))
    assert [(one.verdict, one.ranks) for one in found.others][-1] == ("died", [f"rank {other}"])


def test_dumps_in_which_all_calls_ended_are_not_all_well_where_a_log_shows_a_failure(
    tmp_path: Path,
) -> None:
    write(job_with(""), tmp_path, "unisono")
    assert diagnose(read_files([tmp_path])).verdict in ("nothing wrong", "slow, not stuck")
    found = examine(tmp_path, {"kern.log": nccl_ranks(1, 4) + xid("node0", "4e", 79, "fallen off")})
    assert judged(found) == ("GPU error", ("rank 1",))


def test_a_log_does_not_change_a_verdict_that_it_says_nothing_of(tmp_path: Path) -> None:
    write(job_with("skip"), tmp_path, "nccl")
    before = diagnose(read_files([tmp_path]))
    after = examine(tmp_path, {"job.log": nccl_ranks(1, 4)})
    assert (judged(after), after.paragraph) == (judged(before), before.paragraph)


def test_a_connection_that_ended_is_evidence_for_the_rank_that_died(tmp_path: Path) -> None:
    files_ = {"a.log": nccl_ranks(3, 1) + closed(0, 1, "node2"), "b.log": torchrun(2, -9, KILLED)}
    found = examine(tmp_path, files_)
    assert judged(found) == ("died", ("rank 2",))


@pytest.mark.parametrize(
    "name", ["rank_3.log", "job-2025-11-30-rank3-gpu12.err", "rank3/stderr.log", "rank-3.log.gz"]
)
def test_a_file_of_one_rank_is_of_the_rank_that_its_name_says(tmp_path: Path, name: str) -> None:
    error = b"Traceback (most recent call last):\nValueError: bad shard\n"
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(error) if name.endswith(".gz") else error)
    (tmp_path / "others.log").write_text(timed_out([0, 1, 2], 7))
    assert judged(diagnose(read_files([tmp_path]))) == ("died", ("rank 3",))


def test_lines_say_the_rank_before_the_files_name(tmp_path: Path) -> None:
    files_ = {"rank_0.log": traceback(3, "ValueError: bad shard"),
              "rank_3.log": timed_out([0, 1, 2], 7)}  # fmt: skip
    assert judged(examine(tmp_path, files_)) == ("died", ("rank 3",))


@pytest.mark.parametrize("format_", ["nccl", "unisono", "ncclx"])
def test_compressed_files_in_any_folders_are_read(tmp_path: Path, format_: str) -> None:
    job = job_with("skip")
    for number, path in enumerate(write(job, tmp_path / "plain", format_)):
        target = tmp_path / "all" / f"host{number}" / "2025-11-30" / (path.name + ".gz")
        target.parent.mkdir(parents=True)
        target.write_bytes(gzip.compress(path.read_bytes()))
        shutil.copystat(path, target)
    found = diagnose(read_files([tmp_path / "all"]))
    assert (found.verdict, found.ranks) == ("never joined", [f"rank {job.victim}"])


def test_damaged_and_endless_compressed_files_cost_themselves(tmp_path: Path) -> None:
    whole = gzip.compress(SAMPLES["torchrun_killed"].files["torchrun.out"].encode())
    (tmp_path / "ok.gz").write_bytes(whole)
    (tmp_path / "cut.gz").write_bytes(whole[:-9])
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(70 << 20)))
    found = diagnose(read_files([tmp_path]))
    assert judged(found) == of(SAMPLES["torchrun_killed"])
    assert len(found.problems) == 2
    assert "its end is missing" in found.problems[1]
    assert "the most that is read" in found.problems[0]


def test_zstd_is_read_or_refused_with_what_would_do(tmp_path: Path) -> None:
    path = tmp_path / "out.zst"
    # A frame with one raw block, as RFC 8878 has it.
    text = SAMPLES["open_mpi_killed"].files["out"].encode()
    head = b"\x28\xb5\x2f\xfd\x20" + bytes([len(text)])
    path.write_bytes(head + (1 | len(text) << 3).to_bytes(3, "little") + text)
    if not any(map(find_spec, ("zstandard", "pyzstd"))) and sys.version_info < (3, 14):
        with pytest.raises(MisuseError, match="needs Python 3.14 or the package zstandard"):
            read_files([tmp_path])
        return
    assert judged(diagnose(read_files([tmp_path]))) == of(SAMPLES["open_mpi_killed"])


def test_stray_files_of_a_folder_cost_one_sentence(tmp_path: Path) -> None:
    strays = {f"src/{name}.py": f"print('{name}')\n" for name in "abcdef"}
    found = examine(tmp_path, SAMPLES["torchrun_killed"].files | strays)
    assert judged(found) == of(SAMPLES["torchrun_killed"])
    [problem] = found.problems
    assert "3 more" in problem


def test_of_a_large_log_the_beginning_and_the_end_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_LOG_BYTES", 8000)
    monkeypatch.setattr(files, "_LOG_BEGIN_BYTES", 4000)
    monkeypatch.setattr(files, "_LOG_END_BYTES", 4000)
    filler = "step 17: loss 3.5\n" * 5000
    text = nccl_ranks(1, 4) + filler + traceback(1, "ValueError: in the middle") + filler
    text += xid("node0", "4e", 79, "GPU has fallen off the bus.")
    for name, contents in (("a.log", text.encode()), ("a.log.gz", gzip.compress(text.encode()))):
        (tmp_path / name).write_bytes(contents)
        found = diagnose(read_files([tmp_path / name]))
        assert judged(found) == ("GPU error", ("rank 1",))
        assert not any("in the middle" in one for one in found.evidence)


def test_flight_recorders_dumps_say_their_rank_before_their_name(tmp_path: Path) -> None:
    """A rank is in all of its groups, and is one end of its messages."""
    job = simulate(1, "skip")
    for number, path in enumerate(write(job, tmp_path / "good", "nccl")):
        document = pickle.loads(path.read_bytes())
        groups = [set(map(int, one["ranks"].strip("[]").split(",")))
                  for one in document["pg_config"].values()]  # fmt: skip
        only_one = len(set.intersection(*groups)) == 1
        name = f"dump-host{number}-2025.pkl" if only_one else f"rank{path.name[16:]}-host.pkl"
        shutil.copy2(path, tmp_path / name)
    found = diagnose(read_files(one for one in tmp_path.iterdir() if one.is_file()))
    assert (found.verdict, found.ranks) == ("never joined", [f"rank {job.victim}"])


TEXTS = [text for sample in SAMPLES.values() for text in sample.files.values()]
PIECES = sorted({line for text in TEXTS for line in text.splitlines()})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_logs_are_read_or_refused(data: st.DataObject) -> None:
    damaged = bytearray(data.draw(st.sampled_from(TEXTS)).encode())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.sampled_from(b"0a9-[](){}:<> \n\r\x1b\xff\x00"))
    read_or_refuse(bytes(damaged[: data.draw(st.integers(1, len(damaged)))]), "rank_1.log")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lines=st.lists(st.sampled_from(PIECES), max_size=40))
def test_lines_in_any_order_are_judged(lines: list[str]) -> None:
    read_or_refuse("\n".join(lines).encode(), "job.log")


def test_cards_of_another_pci_domain_are_told_apart(tmp_path: Path) -> None:
    """GPUs of one host have the same bus in different domains."""
    head = (
        "a:{0}:9 [0] NCCL INFO comm 0x1 rank {0} nranks 2 cudaDev 0 nvmlDev 0 busId {1} commId 0x2"
    )
    text = "\n".join((head.format(0, "901000"), head.format(1, "1901000"),
                      "a kernel: NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal"))  # fmt: skip
    assert judged(examine(tmp_path, {"job.log": text})) == ("GPU error", ("rank 1",))


def test_batches_have_no_size_in_which_they_could_differ(tmp_path: Path) -> None:
    most = (1 << 64) - 1
    text = timed_out([0, 1, 2], 5, elements=most) + timed_out([3], 5, elements=7)
    assert judged(examine(tmp_path, {"job.log": text})) == ("undecided", ())


def test_a_line_without_an_end_is_cut() -> None:
    line = "[rank1]: " + "NCCL WARN " * 200_000
    assert read_log(line.encode(), "job.log") == []
    [part] = parse((line + "\n" + torchrun(1, -9, KILLED)).encode(), "job.log")
    assert len(part.events) == 2
