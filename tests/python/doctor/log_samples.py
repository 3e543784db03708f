"""Logs in the forms of public ones, written for these tests, each with a person's verdict.

A sample's source is where its form can be read; numbers, hosts and programs are made up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ISSUES = "https://github.com/{}/issues/{}"


@dataclass(frozen=True)
class Sample:
    """What a person says of some files; `ranks` may name hosts where the files name no rank."""

    source: str
    verdict: str
    ranks: tuple[str, ...]
    files: dict[str, str]


def timed_out(
    ranks: Iterable[int], number: int, call: str = "ALLREDUCE", elements: int = 1024,
    group: str = "0 (default_pg)", enqueued: int = 0,
) -> str:  # fmt: skip
    """The watchdog's lines of ranks whose call did not end."""
    return "".join(
        f"[rank{rank}]:[E816 01:45:40.183009389 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog "
        f"caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType={call}, "
        f"NumelIn={elements}, NumelOut={elements}, Timeout(ms)=600000) ran for 600026 milliseconds "
        f"before timing out.\n"
        f"[rank{rank}]:[E816 01:45:40.184373931 ProcessGroupNCCL.cpp:1664] [PG {group} Rank "
        f"{rank}] Exception (either an error or timeout) detected by watchdog at work: "
        f"{number}, last enqueued NCCL work: {enqueued or number}, last completed NCCL work: "
        f"{number - 1}.\n"
        for rank in ranks
    )


def told_to_dump(rank: int, enqueued: int) -> str:
    return (
        f"[rank{rank}]:[E901 05:20:03.118859045 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID "
        f"0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout from  rank "
        f"6 and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, "
        f"last completed NCCL work: {enqueued}.This is most likely caused by incorrect usages of "
        "collectives, e.g., wrong sizes used across ranks\n"
    )


def nccl_ranks(nodes: int, each: int) -> str:
    """What NCCL logs of a communicator of all ranks when it is made."""
    lines = []
    for rank in range(nodes * each):
        node, device = divmod(rank, each)
        head = f"node{node}:{1000 + rank}:{2000 + rank} [{device}] NCCL INFO "
        lines += [
            f"{head}Bootstrap : Using eth0:10.0.0.{node + 1}<0>",
            f"{head}ncclCommInitRank comm 0x55d9607ee240 rank {rank} nranks {nodes * each} "
            f"cudaDev {device} nvmlDev {device} busId {0x4D + device:x}000 "
            "commId 0xa1ffb74daef8a940 - Init COMPLETE",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def gave_up(rank: int, each: int, peer_node: int, status: int = 12) -> str:
    """NCCL's warning of a message that a network card gave up."""
    node, device = divmod(rank, each)
    return (
        f"node{node}:{1000 + rank}:{3000 + rank} [{device}] transport/net_ib.cc:1295 NCCL WARN "
        f"NET/IB : Got completion from peer 10.0.0.{peer_node + 1}<54862> with status={status} "
        f"opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:10.0.0.{node + 1} "
        f"remoteGids::ffff:10.0.0.{peer_node + 1}\n"
    )


def closed(rank: int, each: int, peer: str) -> str:
    node, device = divmod(rank, each)
    return (f"node{node}:{1000 + rank}:{3000 + rank} [{device}] misc/socket.cc:49 NCCL WARN "
            f"socketProgress: Connection closed by remote peer {peer}<55693>\n")  # fmt: skip


def torchrun(rank: int, code: int, reason: str, process: int = 14750, others: str = "") -> str:
    """The end of torchrun's output."""
    return f"""\
E1121 15:43:05.620000 2606 torch/distributed/elastic/multiprocessing/api.py:869] \
failed (exitcode: {code}) local_rank: {rank} (pid: {process}) of binary: /usr/bin/python3
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
{others or "  <NO_OTHER_FAILURES>"}
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-05-21_15:43:03
  host      : node0
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: {process})
  error_file: <N/A>
  traceback : {reason}
============================================================
"""


def traceback(rank: int, error: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in (
        "Traceback (most recent call last):", '  File "train.py", line 225, in <module>',
        "    train(step)", error))  # fmt: skip


KILLED = "Signal 9 (SIGKILL) received by PID 14750"
OOM = ("[Wed May 21 15:43:01 2025] Out of memory: Killed process 14750 (python3) "
       "total-vm:99123456kB, anon-rss:65012345kB, file-rss:0kB\n")  # fmt: skip
REMOTE = ("torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, remote process "
          "exited or there was a network error, NCCL version 2.21.5")  # fmt: skip


def xid(host: str, card: str, number: int, said: str, process: int = 0) -> str:
    by = f"pid={process}, name=python3, " if process else ""
    return f"Feb 14 05:03:41 {host} kernel: NVRM: Xid (PCI:0000:{card}:00): {number}, {by}{said}\n"


def fingerprint(
    rank: int, call: str, shape: str, other: int, other_call: str, other_shape: str
) -> str:
    def printed(of: str, size: str) -> str:
        return (f"CollectiveFingerPrint(SequenceNumber=21, OpType={of}, TensorShape=[{size}], "
                "TensorDtypes=Long, TensorDeviceTypes=TensorOptions(dtype=float (default), "
                "device=cuda))")  # fmt: skip

    return traceback(
        rank, f"RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is "
        f"running collective: {printed(call, shape)}, but Rank {other} is running collective: "
        f"{printed(other_call, other_shape)}.Collectives differ in the following aspects",
    )  # fmt: skip


SAMPLES = {
    "watchdog_other_call": Sample(
        ISSUES.format("NVIDIA/nccl", 1409), "other call", ("rank 7",),
        {"job.log": timed_out([7], 78, "BROADCAST", 5056)
         + timed_out([3, 9, 0, 1, 2, 4, 5, 6, 8], 78)},
    ),
    "watchdog_other_size": Sample(
        ISSUES.format("hiyouga/LlamaFactory", 6269), "other call", ("rank 2",),
        {"job.log": timed_out([0, 1, 3], 7753) + timed_out([2], 7753, elements=1025)},
    ),
    "watchdog_rank_behind": Sample(
        ISSUES.format("OpenRLHF/OpenRLHF", 1126), "stuck outside communication", ("rank 3",),
        {"job.log": timed_out([0, 1, 2], 22, enqueued=25) + told_to_dump(3, 21)},
    ),
    "watchdog_silent_rank": Sample(
        ISSUES.format("huggingface/accelerate", 3861), "never joined", ("rank 3",),
        {"job.log": timed_out([0, 1, 2, 4, 5, 6, 7], 22)},
    ),
    "watchdog_silent_last_rank": Sample(
        ISSUES.format("huggingface/accelerate", 3861), "never joined", ("rank 7",),
        {"job.log": nccl_ranks(1, 8) + timed_out(range(7), 22)},
    ),
    "watchdog_a_file_a_rank": Sample(
        ISSUES.format("huggingface/accelerate", 3861), "never joined", ("rank 2",),
        {f"attempt_0/{rank}/stderr.log": timed_out([rank], 22) for rank in (0, 1, 3, 4, 5)},
    ),
    "watchdog_all_ranks": Sample(
        ISSUES.format("hiyouga/LlamaFactory", 7396), "undecided", (),
        {"job.log": timed_out(range(8), 1580, enqueued=1582)},
    ),
    "watchdog_old_form": Sample(
        ISSUES.format("OFA-Sys/OFA", 271), "undecided", (),
        {"job.log": "".join(
            f"[E ProcessGroupNCCL.cpp:737] [Rank {rank}] Watchdog caught collective operation "
            f"timeout: WorkNCCL(SeqNum=469508, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for "
            f"1802212 milliseconds before timing out.\n" for rank in range(8))},
    ),
    "watchdog_of_one_node": Sample(
        ISSUES.format("NVIDIA/nccl", 1730), "undecided", (),
        {"node1.log": timed_out(range(8, 16), 2398, enqueued=2500)},
    ),
    # It waits in another group, which may be what the others wait for.
    "a_rank_in_another_group": Sample(
        ISSUES.format("NVIDIA/nccl", 1409), "undecided", (),
        {"job.log": nccl_ranks(1, 8) + timed_out([0, 1, 2, 4, 5, 6, 7], 90)
         + timed_out([3], 12, group="1 (tp)")},
    ),
    "two_groups": Sample(
        ISSUES.format("hiyouga/LlamaFactory", 7396), "undecided", (),
        {"job.log": timed_out([0, 1], 90, group="1 (tp)") + timed_out([2, 3], 12, group="2 (dp)")},
    ),
    "torchrun_killed": Sample(
        ISSUES.format("lzhxmu/CPPO", 6), "died", ("rank 5",),
        {"torchrun.out": timed_out([0, 1, 2, 3], 40) + torchrun(5, -9, KILLED)},
    ),
    "torchrun_killed_for_memory": Sample(
        ISSUES.format("apple/ml-recurrent-drafter", 5), "died", ("rank 7",),
        {"torchrun.out": torchrun(7, -9, KILLED), "dmesg.txt": OOM},
    ),
    "torchrun_segfault": Sample(
        "https://github.com/pytorch/pytorch/pull/175254", "died", ("rank 1",),
        {"torchrun.out": torchrun(1, -11, "Signal 11 (SIGSEGV) received by PID 14750")},
    ),
    "torchrun_own_exception": Sample(
        ISSUES.format("pytorch/pytorch", 148976), "died", ("rank 1",),
        {"torchrun.out": traceback(0, REMOTE) + torchrun(
            1, 1, 'Traceback (most recent call last):\n    File "train.py", line 16, in main\n'
                  "      load()\n  ValueError: cannot reshape array")},
    ),
    # The watchdog aborts its process: that this one did so first says nothing of the cause.
    "torchrun_abort_of_a_victim": Sample(
        ISSUES.format("NVIDIA/Megatron-LM", 1207), "undecided", (),
        {"torchrun.out": timed_out(range(4), 5) + torchrun(
            2, -6, "Signal 6 (SIGABRT) received by PID 14750")},
    ),
    "torchrun_follows": Sample(
        ISSUES.format("NVIDIA/nccl", 2076), "undecided", (),
        {"torchrun.out": traceback(0, REMOTE) + traceback(1, REMOTE) + torchrun(
            1, 1, "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html")},
    ),
    "exception_and_timeouts": Sample(
        ISSUES.format("bghira/SimpleTuner", 2712), "died", ("rank 2",),
        {"job.log": traceback(2, "FileNotFoundError: [Errno 2] No such file: 'shard-12'")
         + timed_out([0, 1, 3], 100)},
    ),
    "exception_that_was_caught": Sample(
        ISSUES.format("bghira/SimpleTuner", 2712), "undecided", (),
        {"job.log": traceback(2, "ImportError: no module named flash_attn")
         + timed_out(range(4), 100)},
    ),
    "cuda_error": Sample(
        ISSUES.format("vllm-project/vllm", 4108), "GPU error", ("rank 2",),
        {"job.log": "[rank2]:[E504 23:32:59.338859795 ProcessGroupNCCL.cpp:1896] [PG ID 0 PG GUID "
         "0(default_pg) Rank 2] Process group watchdog thread terminated with exception: CUDA "
         "error: an illegal memory access was encountered\n" + timed_out([0, 1, 3], 100)},
    ),
    "xid_79": Sample(
        ISSUES.format("NVIDIA/NVSentinel", 155), "GPU error", ("rank 9",),
        {"job.log": nccl_ranks(2, 8) + timed_out(range(9), 100),
         "node1.kern": xid("node1", "4e", 79, "GPU has fallen off the bus.")
         + xid("node1", "50", 45, "Ch 00000001 caused by previous Xid 79")},
    ),
    "xid_94_by_process": Sample(
        "https://github.com/leptonai/gpud/pull/1174", "GPU error", ("rank 3",),
        {"job.log": nccl_ranks(1, 4), "kern": xid("", "9b", 94, "Contained ECC error", 1003)},
    ),
    "xid_of_an_unknown_rank": Sample(
        ISSUES.format("NVIDIA/NVSentinel", 155), "GPU error",
        ("the rank on GPU 0000:b3:00 of host gpu7",),
        {"kern.log": xid("gpu7", "b3", 79, "GPU has fallen off the bus.")},
    ),
    "xid_45_alone": Sample(
        ISSUES.format("NVIDIA/NVSentinel", 1748), "undecided", (),
        {"job.log": timed_out(range(4), 9), "kern": xid("a", "9b", 45, "Ch 00000001", 7)},
    ),
    "ib_one_host_is_cut_off": Sample(
        ISSUES.format("NVIDIA/nccl", 1405), "network", ("host node1",),
        {"job.log": nccl_ranks(4, 4) + gave_up(0, 4, 1) + gave_up(9, 4, 1) + gave_up(14, 4, 1)
         + gave_up(5, 4, 0)},
    ),
    "ib_one_connection": Sample(
        ISSUES.format("NVIDIA/nccl", 1814), "network", ("host node1", "rank 0"),
        {"job.log": nccl_ranks(2, 4) + gave_up(0, 4, 1)},
    ),
    # Flushed messages follow another error.
    "ib_flushed": Sample(
        ISSUES.format("NVIDIA/nccl", 1405), "undecided", (),
        {"job.log": nccl_ranks(2, 4) + gave_up(0, 4, 1, status=5)},
    ),
    "closed_by_the_only_rank_of_a_host": Sample(
        ISSUES.format("NVIDIA/nccl", 1232), "died", ("rank 2",),
        {"job.log": nccl_ranks(3, 1) + closed(0, 1, "node2.cluster")
         + closed(1, 1, "node2.cluster")},
    ),
    "closed_by_one_of_several": Sample(
        ISSUES.format("NVIDIA/nccl-tests", 166), "undecided", (),
        {"job.log": nccl_ranks(2, 4) + closed(0, 4, "node1.cluster")},
    ),
    "closed_by_several": Sample(
        ISSUES.format("NVIDIA/nccl-tests", 252), "undecided", (),
        {"job.log": nccl_ranks(3, 1) + closed(0, 1, "node2") + closed(1, 1, "node0")},
    ),
    # What CUDA says while a process ends follows from another failure.
    "cuda_while_ending": Sample(
        ISSUES.format("NVIDIA/nccl-tests", 166), "undecided", (),
        {"job.log": nccl_ranks(1, 4) + "node0:1000:3000 [0] init.cc:88 NCCL WARN Cuda failure "
         "'driver shutting down'\n"},
    ),
    "network_errors_follow_a_call_that_differs": Sample(
        ISSUES.format("NVIDIA/nccl", 1409), "other call", ("rank 7",),
        {"job.log": timed_out([7], 78, "BROADCAST") + timed_out([0, 1, 2, 3, 4, 5, 6], 78)
         + nccl_ranks(2, 4) + gave_up(0, 4, 1)},
    ),
    # The communicator of four ranks is not the job's, which has a rank 6.
    "xid_where_only_a_subgroup_is_known": Sample(
        ISSUES.format("NVIDIA/NVSentinel", 155), "GPU error",
        ("the rank on GPU 0000:4e:00 of host node0",),
        {"job.log": nccl_ranks(1, 4) + timed_out([4, 5, 6], 9),
         "kern.log": xid("node0", "4e", 79, "GPU has fallen off the bus.")},
    ),
    "port_error": Sample(
        ISSUES.format("Lightning-AI/lit-llama", 380), "network", ("host node1",),
        {"job.log": nccl_ranks(2, 4) + "".join(
            f"node1:{1004 + rank}:{3004 + rank} [{rank}] transport/net_ib.cc:93 NCCL WARN NET/IB : "
            "Got async event : port error\n" for rank in range(4)) + gave_up(0, 4, 1)},
    ),
    # It is no error.
    "port_event": Sample(
        ISSUES.format("Lightning-AI/lit-llama", 380), "undecided", (),
        {"job.log": nccl_ranks(2, 4) + "node1:1004:3004 [0] transport/net_ib.cc:93 NCCL WARN "
         "NET/IB : Got async event : GID table change\n" + timed_out(range(8), 7)},
    ),
    "port_down": Sample(
        "https://github.com/leptonai/gpud/pull/1209", "network", ("host node1",),
        {"job.log": nccl_ranks(2, 4) + gave_up(0, 4, 1), "kern.log":
         "Feb 14 05:03:41 node1 kernel: mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN\n"},
    ),
    "monitored_barrier": Sample(
        ISSUES.format("NVIDIA/nccl", 849), "never joined",
        ("rank 4", "rank 5", "rank 6", "rank 7"),
        {"job.log": traceback(0, "RuntimeError: [Rank 0]: Ranks 4, 5, 6, 7 failed to pass "
                                 "monitoredBarrier in 2000000 ms")},
    ),
    "fingerprints": Sample(
        ISSUES.format("aurekaresearch/OpenDDE", 23), "other call", ("rank 2",),
        {"job.log": fingerprint(0, "ALLGATHER", "16", 2, "BROADCAST", "1")
         + fingerprint(1, "ALLGATHER", "16", 2, "BROADCAST", "1")},
    ),
    "fingerprint_sizes": Sample(
        ISSUES.format("aurekaresearch/OpenDDE", 23), "other call", ("rank 1", "rank 2"),
        {"job.log": fingerprint(
            1, "_ALLGATHER_BASE", "1435, 16", 2, "_ALLGATHER_BASE", "1436, 16")},
    ),
    "store_closed": Sample(
        ISSUES.format("xorbitsai/inference", 4421), "undecided", (),
        {"job.log": "[rank1]:[W514 18:33:36.536327028 TCPStore.cpp:125] [c10d] recvValue failed on "
         "SocketImpl(fd=6, addr=[localhost]:34658, remote=[localhost]:1234): Failed to recv, got 0 "
         "bytes. Connection was likely closed. Did the remote server shutdown or crash?\n"},
    ),
    "slurm_out_of_memory": Sample(
        ISSUES.format("nextflow-io/nextflow", 5932), "died", ("rank 12",),
        {"slurm-113.out": "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some "
         "of the step tasks have been OOM Killed.\nsrun: error: node3: task 12: Out Of Memory\n"},
    ),
    "slurm_cancelled": Sample(
        ISSUES.format("nextflow-io/nextflow", 5932), "undecided", (),
        {"slurm-113.out": "srun: error: node3: tasks 0-7: Killed\nsrun: error: node4: tasks 8-15: "
         "Killed\n"},
    ),
    # All ranks end alike, which says nothing of the one that was seen first.
    "torchrun_all_ranks": Sample(
        ISSUES.format("pytorch/pytorch", 121209), "undecided", (),
        {"out": torchrun(0, 1, "To enable traceback see: https://pytorch.org/docs/", others="".join(
            f"[{rank}]:\n  time      : 2025-05-21_15:43:03\n  host      : node0\n  rank      : "
            f"{rank} (local_rank: {rank})\n  exitcode  : 1 (pid: {9 + rank})\n"
            for rank in (1, 2, 3)))},
    ),
    # DeepSpeed names the rank on its host alone.
    "deepspeed_killed": Sample(
        ISSUES.format("deepspeedai/DeepSpeed", 3232), "died", ("local rank 3",),
        {"out": "[2023-07-05 10:12:01,004] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/"
         "python3', '-u', 'train.py', '--local_rank=3', '--bf16'] exits with return code = -9\n"},
    ),
    "exception_after_the_timeouts": Sample(
        ISSUES.format("NVIDIA/nccl", 1284), "undecided", (),
        {"out": timed_out([0, 1, 2, 3], 15734)
         + traceback(2, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more "
                        "than 1EB memory")},
    ),
    "out_of_gpu_memory": Sample(
        ISSUES.format("modelscope/FunASR", 2006), "died", ("rank 2",),
        {"out": traceback(2, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate "
                             "336.00 MiB.") + timed_out([0, 1, 3], 15734)},
    ),
    "slurm_first_exit": Sample(
        ISSUES.format("nextflow-io/nextflow", 5932), "died", ("rank 12",),
        {"slurm-113.out": "srun: error: node3: task 12: Exited with exit code 2\nsrun: error: "
         "node4: tasks 8-11,13-15: Killed\n"},
    ),
    "open_mpi_killed": Sample(
        ISSUES.format("mfem/mfem", 3424), "died", ("rank 10",),
        {"out": "mpirun noticed that process rank 10 with PID 0 on node yosibash-pc exited on "
         "signal 9 (Killed).\n"},
    ),
}  # fmt: skip
