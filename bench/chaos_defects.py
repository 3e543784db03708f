#!/usr/bin/env python3
"""Plants defects, one at a time, and counts the seeds of chaos until one is seen.

    bench/chaos_defects.py [--most-seeds N] [--only WORD] [--output FILE]

The sources are copied to build/defects, where each defect is one edit; the program that plays seeds
is built anew and plays them until a seed goes wrong, crashes or does not end. Without an edit the
same seeds must all pass. The exit code is 1 if a defect is not seen.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "defects"
TREE = BUILD / "tree"
PROGRAM = BUILD / "build" / "chaos_bench"
_A_RUN_SECONDS = 300


@dataclass(frozen=True)
class Defect:
    """One edit: what it breaks, and where."""

    what: str
    path: str
    before: str
    after: str


FIFO = "src/transport/fifo_credits.h"
PUT = "src/transport/fifo_put.cc"
BLOCK = "src/engine/host/thread_block.cc"
RUN = "src/engine/host/execution.cc"
FAIL = "src/comm/run/scheduler_failure.cc"
TURN = "src/comm/run/scheduler.cc"
THREAD = "src/comm/run/scheduler_thread.cc"
CONNECTIONS = "src/comm/run/connections.cc"
GROUP = "src/comm/bootstrap/group.cc"
CORE = "src/comm/core.cc"
SPLIT = "src/comm/split.cc"
REST = "src/comm/suspend.cc"
JOB = "src/comm/bootstrap/job.cc"

DEFECTS = (
    Defect("one credit too many", FIFO,
           "return sent_ - consumed_ < slots_;\n  }\n\n  // Whether the receiver",
           "return sent_ - consumed_ <= slots_;\n  }\n\n  // Whether the receiver"),
    Defect("credits are never given back", FIFO, "told_ = taken_;\n", "told_ = taken_;\n    return {};\n"),
    Defect("a credit too few is told", FIFO, "{credit_signal_, taken_});", "{credit_signal_, taken_ - 1});"),
    Defect("a credit too many is told", FIFO, "{credit_signal_, taken_});", "{credit_signal_, taken_ + 1});"),
    Defect("the signal goes before the data", PUT,
           "    UNISONO_ASSIGN(const bool taken,\n                   connection_.try_put(piece.data",
           "    UNISONO_TRY(connection_.try_put(nullptr, 0, 0, signal));\n    signal = {};\n"
           "    UNISONO_ASSIGN(const bool taken,\n                   connection_.try_put(piece.data"),
    Defect("a slot's memory is not the next one's", PUT,
           "layout_.slot_offset(pushed_);", "layout_.slot_offset(0);"),
    Defect("what was refused is forgotten", PUT, "if (!taken) break;\n    ++pushed_;",
           "++pushed_;\n    if (!taken) break;"),
    Defect("the number of a message is its neighbour's", PUT,
           "{.number = number + 1, .bytes", "{.number = number, .bytes"),
    Defect("a message's sizes are not compared", PUT,
           "layout_.arrived_signal, pushed_ + 1}", "layout_.arrived_signal, pushed_ + 2}"),
    Defect("a call is over before its puts are", PUT,
           "return pushed_ == messages_.sent() && connection_.puts_completed() >= last_put_;",
           "return true;"),
    Defect("what a transport refused waits for its own thread block", RUN,
           "      UNISONO_TRY(block.push());\n", ""),
    Defect("what waits pushes nothing", BLOCK, "      UNISONO_TRY(push());\n", ""),
    Defect("dependencies are not waited for", BLOCK,
           "if (!other.has_completed(tile_, steps)) {", "if (false) {"),
    Defect("a dependency is met a step too soon", BLOCK,
           "if (!other.has_completed(tile_, steps)) {",
           "if (!other.has_completed(tile_, steps > 0 ? steps - 1 : 0)) {"),
    Defect("a slot is given back before it was read", BLOCK,
           "      UNISONO_TRY(receive_into_destination(call));\n      return recv_->release();",
           "      UNISONO_TRY(recv_->release());\n      return receive_into_destination(call);"),
    Defect("the sum is sent, not kept", BLOCK,
           "      return send_extents(call, destination_, false);\n    case Operation::recv_reduce_send",
           "      return send_extents(call, source_, false);\n    case Operation::recv_reduce_send"),
    Defect("a connection is not polled", CONNECTIONS,
           "UNISONO_TRY(entry->connection->progress());", "if (entry->peer == 1) continue;"),
    Defect("connections are made for another epoch", CONNECTIONS,
           ".key = {communicator_, epoch_, static_cast<std::uint32_t>(channel)},",
           ".key = {communicator_, epoch_ + static_cast<std::uint32_t>(rank_ == 2), "
           "static_cast<std::uint32_t>(channel)},"),
    Defect("all communicators share their connections", CONNECTIONS,
           ".key = {communicator_, epoch_,", ".key = {1, epoch_,"),
    Defect("peers hear of no failure over connections or the control plane", FAIL,
           "    group_.give_up(told);\n    status_page_.give_up(fault, error.message);\n"
           "    connections_.abort(fault);\n", ""),
    Defect("deadlines are not looked at", FAIL, "return now >= task.deadline_ns;", "return false;"),
    Defect("a queued call has no deadline, nor a running one", FAIL,
           "if (has_overdue_call(now)) {", "if (now < 0) {"),
    Defect("nobody looks for dead peers", FAIL, "  check_peers();\n  if (inquest_) return;\n", ""),
    Defect("who is seen is blamed at once, however little was seen", FAIL,
           "  if (is_of_peer)\n    begin_inquest(false, &error);\n  else if",
           "  if (is_of_peer)\n    fail(peer_error((error.peer + 1) % group_.size(), \"seen\"));\n  else if"),
    Defect("a failure is not told to those who wait", FAIL,
           "  while (!messages_.empty()) finish(*messages_.back(), error);\n", ""),
    Defect("queued collectives run in any order", TURN,
           "next = queued_in_order_.front();\n        queued_in_order_.pop_front();",
           "next = queued_in_order_.back();\n        queued_in_order_.pop_back();"),
    Defect("queued messages are lost", TURN,
           "    messages_.insert(messages_.end(), queued_messages_.begin(), queued_messages_.end());\n", ""),
    Defect("the progress thread is not woken, and nobody drives", TURN,
           "    advance(backoff);\n    if (interrupts", "    if (interrupts"),
    Defect("two threads drive at once", "src/comm/run/scheduler.h",
           "return !progress_lock_.exchange(true, std::memory_order_acquire);", "return true;"),
    Defect("the progress thread does not end", THREAD,
           "    stopping_ = true;\n  }\n  thread_wake_->notify_all();\n  if (thread_) thread_->join();",
           "  }\n  if (thread_) thread_.release();"),
    Defect("children have one identity", SPLIT,
           "comm::child_communicator(id, sequence, color)", "comm::child_communicator(id, 0, 0)"),
    Defect("a split's order is not its keys'", SPLIT,
           "    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;",
           "    return rank == 0 ? a < b : a > b;"),
    Defect("communicators go without closing connections", REST, "    host->close();\n", ""),
    Defect("a group's failure is not spread", GROUP,
           "  if (node_->fail(id_, error)) node_->spread_failure(id_, members_);\n",
           "  static_cast<void>(error);\n"),
    Defect("the second round's tables are the first's", GROUP,
           "(*table)[(member + p - static_cast<std::size_t>(me_)) % p];", "(*table)[member];"),
)  # fmt: skip


def build() -> None:
    subprocess.run(
        ["cmake", "--build", BUILD / "build", "--target", "chaos_bench", "--parallel"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def seeds_until_seen(most: int) -> tuple[int | None, str]:
    """Plays seeds until one goes wrong: its number, and how it did."""
    try:
        ended = subprocess.run(
            [PROGRAM, "1", str(most)], capture_output=True, text=True, timeout=_A_RUN_SECONDS
        )
    except subprocess.TimeoutExpired:
        return most, "does not end"
    found = re.search(r"^seed (\d+): (.*)$", ended.stdout, re.MULTILINE)
    if found:
        return int(found[1]), found[2][:90]
    return (None, "") if ended.returncode == 0 else (most, f"ended with {ended.returncode}")


def prepare() -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    shutil.copytree(
        ROOT, TREE, ignore=shutil.ignore_patterns("build", ".venv", ".git", "site", "node_modules")
    )
    ninja = shutil.which("ninja") or "ninja"
    subprocess.run(
        ["cmake", "-S", TREE, "-B", BUILD / "build", "-G", "Ninja",
         f"-DCMAKE_MAKE_PROGRAM={ninja}", "-DUNISONO_CUDA=OFF", "-DUNISONO_BUILD_TESTS=OFF"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most-seeds", type=int, default=1000)
    parser.add_argument("--only", default="", help="defects whose words contain this")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    prepare()
    build()
    seen_without, how = seeds_until_seen(min(options.most_seeds, 200))
    if seen_without is not None:
        print(f"without a defect seed {seen_without} goes wrong: {how}")
        return 1
    lines = ["seeds  what was planted, and how it was seen"]
    missed = 0
    for defect in DEFECTS:
        if options.only not in defect.what:
            continue
        file = TREE / defect.path
        text = file.read_text()
        if text.count(defect.before) != 1:
            raise SystemExit(f"{defect.path}: '{defect.what}' is to edit what is there "
                             f"{text.count(defect.before)} times")  # fmt: skip
        file.write_text(text.replace(defect.before, defect.after))
        try:
            build()
            seed, how = seeds_until_seen(options.most_seeds)
        finally:
            file.write_text(text)
        missed += seed is None
        lines.append(f"{seed or 'never':>5}  {defect.what}: {how}")
        print(lines[-1], flush=True)
    lines.append(f"{len(lines) - 1 - missed} of {len(lines) - 1} seen")
    print(lines[-1])
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
