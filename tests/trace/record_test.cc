#include "trace/record.h"
#include "trace/packed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "base/json.h"

namespace unisono::trace {
namespace {

Entry entry_of(std::uint64_t sequence) {
  Entry entry;
  entry.sequence = sequence;
  entry.bytes = sequence * 3;
  entry.scheduled_ns = static_cast<std::int64_t>(sequence * 4 + 1);
  entry.started_ns = static_cast<std::int64_t>(sequence * 5);
  entry.waiting.expected = sequence * 7;
  entry.set_plan("plan");
  return entry;
}

TEST(Ring, KeepsTheNewestInOrder) {
  Ring ring(4);
  EXPECT_TRUE(ring.read().empty());
  for (std::uint64_t sequence = 0; sequence < 10; ++sequence)
    ring.write(sequence, entry_of(sequence));
  const auto entries = ring.read();
  ASSERT_EQ(entries.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(entries[i].sequence, 6 + i);
    EXPECT_EQ(entries[i].bytes, 3 * (6 + i));
  }
}

TEST(Ring, ALaterWriteOfACallReplacesTheEarlier) {
  Ring ring(4);
  Entry entry = entry_of(2);
  ring.write(2, entry);
  entry.state = State::ended;
  ring.write(2, entry);
  const auto entries = ring.read();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].state, State::ended);
}

// Only numbers and times of entries of one kind differ; those of two kinds take each other's
// places.
TEST(Ring, AnEntryOfOneKindIsWholeAfterAnotherKindsAndAfterItsOwn) {
  Ring ring(2);
  const auto entry = [](std::uint64_t sequence, std::uint32_t kind) {
    Entry out;
    out.sequence = sequence;
    out.scheduled_ns = static_cast<std::int64_t>(sequence * 4 + 1);
    out.started_ns = static_cast<std::int64_t>(sequence * 5);
    out.ended_ns = static_cast<std::int64_t>(sequence * 6);
    out.bytes = 100 * kind;
    out.set_plan("plan " + std::to_string(kind));
    return out;
  };
  std::uint64_t sequence = 0;
  for (const std::uint32_t kind : {1, 1, 1, 2, 1, 2, 2, 2, 2, 0, 2, 2, 0, 0, 1, 1, 1}) {
    ring.write(sequence, entry(sequence, kind), kind);
    const auto entries = ring.read();
    const Entry& last = entries.back();
    ASSERT_EQ(last.sequence, sequence);
    EXPECT_EQ(last.started_ns, static_cast<std::int64_t>(sequence * 5));
    EXPECT_EQ(last.ended_ns, static_cast<std::int64_t>(sequence * 6));
    EXPECT_EQ(last.bytes, 100 * kind) << sequence;
    EXPECT_STREQ(last.plan.data(), ("plan " + std::to_string(kind)).c_str());
    ++sequence;
  }
}

// Entries whose fields are derived from one number: a torn one would not fit together.
TEST(Ring, AReaderNeverSeesATornEntry) {
  Ring ring(3);
  std::atomic<bool> stop{false};
  std::atomic<int> seen{0};
  std::thread reader([&] {
    while (!stop.load() || seen.load() == 0)
      for (const Entry& entry : ring.read()) {
        ++seen;
        ASSERT_EQ(entry.bytes, 3 * entry.sequence);
        ASSERT_EQ(entry.started_ns, static_cast<std::int64_t>(5 * entry.sequence));
        ASSERT_EQ(entry.waiting.expected, 7 * entry.sequence);
      }
  });
  for (std::uint64_t sequence = 0; sequence < 100'000; ++sequence)
    ring.write(sequence, entry_of(sequence));
  stop = true;
  reader.join();
}

TEST(Entry, CutsALongPlanNameToFit) {
  Entry entry;
  entry.set_plan(std::string(100, 'x'));
  EXPECT_EQ(std::string(entry.plan.data()), std::string(43, 'x'));
}

TEST(Waiting, IsDescribedWithItsNumbers) {
  const Waiting waiting{.kind = Waiting::Kind::message,
                        .peer = 3,
                        .channel = 1,
                        .thread_block = 2,
                        .step = 4,
                        .tile = 0,
                        .expected = 6,
                        .got = 5};
  EXPECT_EQ(describe(waiting),
            "message 6 from rank 3 (5 have arrived) on channel 1, at step 4 of thread block 2, "
            "tile 0");
  EXPECT_EQ(describe(Waiting{}), "nothing");
  for (int kind = 1; kind <= 5; ++kind) {
    Waiting other = waiting;
    other.kind = static_cast<Waiting::Kind>(kind);
    EXPECT_NE(describe(other).find("step 4 of thread block 2"), std::string::npos);
  }
}

TEST(Ring, HoldsTheLaterEntryOfASlot) {
  Ring ring(4);
  EXPECT_TRUE(ring.read().empty());
  ring.write(1, entry_of(1));
  ring.write(5, entry_of(5));
  ASSERT_EQ(ring.read().size(), 1U);
  EXPECT_EQ(ring.read().front().sequence, 5U);
}

json::Value parsed(const Record& record, const Owner& owner = {}) {
  auto document = json::parse(to_json(owner, record, "request", {.monotonic_ns = 5, .wall_ns = 9}));
  EXPECT_TRUE(document.ok()) << document.error().describe();
  return *document;
}

// What Python unpacks is compared with the words in tests/trace/test_record.py.
TEST(Json, PacksOldCallsThatHaveEnded) {
  Record record;
  for (int i = 0; i < 200; ++i) {
    Entry entry = entry_of(static_cast<std::uint64_t>(i));
    entry.state = i % 10 == 3 ? State::scheduled : State::ended;
    entry.scheduled_ns = 1000 + i;
    entry.ended_ns = 2000 + i;
    if (i == 2) {
      entry.fallback = Fallback::overlap;
      entry.chosen = Path::zero_copy;
    }
    record.collectives.push_back(entry);
  }
  const auto document =
      json::parse(to_json({}, record, "request", {.monotonic_ns = 5, .wall_ns = 9}, Form::packed));
  ASSERT_TRUE(document.ok()) << document.error().describe();
  // The newest, and what had not ended.
  const auto in_words = document->find("collectives")->array().size();
  EXPECT_EQ(in_words, newest_in_words + 14);
  const json::Value* packed = document->find("packed_collectives");
  ASSERT_NE(packed, nullptr);
  EXPECT_EQ(packed->find("entries")->integer(), 200 - static_cast<std::int64_t>(in_words));
  const json::Value* sequence = packed->find("columns")->find("sequence");
  EXPECT_EQ(sequence->find("least")->integer(), 0);
  EXPECT_EQ(sequence->find("width")->integer(), 1);
  // 0, 1, 2, 4: number 3 has not ended.
  EXPECT_EQ(sequence->find("data")->string().substr(0, 5), "AAECB");
  EXPECT_EQ(document->find("packed_messages"), nullptr);
  for (const auto& [column, text] :
       {std::pair{"fallback", "overlap"}, std::pair{"chosen_path", "zero_copy"}}) {
    EXPECT_NE(packed->find("columns")->find(column), nullptr) << column;
    const auto& names = packed->find("names")->array();
    EXPECT_EQ(std::ranges::count(names, std::string_view(text), &json::Value::string), 1) << text;
  }
}

TEST(Json, HoldsEveryField) {
  Entry entry = entry_of(9);
  entry.collective = Collective::broadcast;
  entry.state = State::failed;
  entry.tag = UINT64_MAX;
  entry.waiting = {.kind = Waiting::Kind::credit, .peer = 4, .expected = 8, .got = 7};
  Error error = {.kind = ErrorKind::peer, .timed_out = true, .peer = 1, .message = "it is late"};
  const json::Value document = parsed(
      {.collectives = {entry, entry_of(10)}, .failure = Failure{error, 77}}, {.communicator = 77,
                                                                              .group = "world/0.1",
                                                                              .rank = 1,
                                                                              .ranks = 2,
                                                                              .world_ranks = {4, 2},
                                                                              .node = "a\"b"});
  EXPECT_EQ(document.find("version")->integer(), 2);
  EXPECT_EQ(document.find("node")->string(), "a\"b");
  EXPECT_EQ(document.find("communicator")->string(), "77");
  EXPECT_EQ(document.find("group")->string(), "world/0.1");
  EXPECT_EQ(document.find("ranks")->integer(), 2);
  EXPECT_EQ(document.find("world_ranks")->array()[0].integer(), 4);
  EXPECT_EQ(document.find("clock")->find("wall_ns")->integer(), 9);
  EXPECT_EQ(document.find("failure")->find("kind")->string(), "timeout");
  EXPECT_EQ(document.find("failure")->find("rank")->integer(), 1);
  EXPECT_EQ(document.find("failure")->find("time_ns")->integer(), 77);
  const auto& entries = document.find("collectives")->array();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].find("collective")->string(), "broadcast");
  EXPECT_EQ(entries[0].find("state")->string(), "failed");
  EXPECT_EQ(entries[0].find("waiting")->find("kind")->string(), "credit");
  EXPECT_EQ(entries[0].find("tag")->string(), "18446744073709551615");
  EXPECT_EQ(entries[1].find("bytes")->integer(), 30);
  EXPECT_EQ(entries[1].find("waiting"), nullptr);  // waits for nothing
  EXPECT_EQ(entries[1].find("tag"), nullptr);      // has none
  EXPECT_EQ(entries[1].find("ended_ns"), nullptr) << "a time that was not seen";
  EXPECT_EQ(parsed({}).find("failure"), nullptr);
}

TEST(Json, NamesThePathThatACallTook) {
  for (const auto& [path, name] : {std::pair{Path::host, "host"},
                                   {Path::interpreter, "interpreter"},
                                   {Path::tma_bulk, "tma_bulk"},
                                   {Path::copy_engine, "copy_engine"},
                                   {Path::staged, "staged"},
                                   {Path::mixed, "mixed"}}) {
    Entry entry = entry_of(1);
    entry.path = {path, 16, 7, 4096};
    const json::Value document = parsed({.collectives = {entry}});
    const json::Value& written = document.find("collectives")->array().front();
    EXPECT_EQ(written.find("path")->string(), name);
    EXPECT_EQ(written.find("thread_blocks")->integer(), 16);
    EXPECT_EQ(written.find("slots")->integer(), 7);
    EXPECT_EQ(written.find("chunk_bytes")->integer(), 4096);
  }
  // Where another path ran than the chosen one.
  Entry fallen = entry_of(1);
  fallen.path = {Path::ll128_all_pairs, 128, 2, 960};
  fallen.fallback = Fallback::not_mapped;
  fallen.chosen = Path::tma_bulk;
  const json::Value told = parsed({.collectives = {fallen}});
  const json::Value& reasoned = told.find("collectives")->array().front();
  EXPECT_EQ(reasoned.find("path")->string(), "ll128_all_pairs");
  EXPECT_EQ(reasoned.find("fallback")->string(), "not_mapped");
  EXPECT_EQ(reasoned.find("chosen_path")->string(), "tma_bulk");
  // What a path does not have is left out.
  const json::Value document = parsed({.collectives = {entry_of(1)}});
  const json::Value& written = document.find("collectives")->array().front();
  for (const char* member : {"thread_blocks", "slots", "chunk_bytes", "fallback", "chosen_path"})
    EXPECT_EQ(written.find(member), nullptr) << member;
}

TEST(Json, MessagesHaveTheirPeerAndDirection) {
  Entry entry = entry_of(3);
  entry.collective = Collective::point_to_point;
  entry.is_send = true;
  entry.peer = 2;
  entry.messages = 5;
  Entry unknown = entry;
  unknown.peer = -1;
  const json::Value document = parsed({.messages = {entry, unknown}});
  const auto& messages = document.find("messages")->array();
  EXPECT_EQ(messages[0].find("direction")->string(), "send");
  EXPECT_EQ(messages[0].find("peer")->integer(), 2);
  EXPECT_EQ(messages[0].find("messages")->integer(), 5);
  EXPECT_EQ(messages[0].find("sequence")->integer(), 3);
  EXPECT_EQ(messages[1].find("sequence"), nullptr) << "nobody knows its number before it arrives";
}

}  // namespace
}  // namespace unisono::trace
