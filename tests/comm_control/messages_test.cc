// What the decoders of the control plane refuse: less than a message, more than one, and each field
// that is out of its range.

#include "comm/control/messages.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/wire.h"

namespace unisono::comm {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int ranks = 5;
const Rank one = *Rank::among(1, ranks);
const Rank four = *Rank::among(4, ranks);

struct Decoder {
  const char* name;
  Bytes right;
  std::function<Status(const Bytes&)> decode;
};

template <typename T>
Status status_of(Result<T> result) {
  return result.ok() ? Status() : Status(result.take_error());
}

Census census_of_two() {
  Census census({.host = "one", .cores = 4, .common = Bytes(5)}, Key{});
  census.append(
      Census({.host = "one", .node = "another", .cores = 2, .least = 3, .cache_kib = 512}, Key{}));
  census.addresses = {"host:1", "host:2"};
  return census;
}

std::vector<Decoder> decoders() {
  Bytes frame = encode_frame(FrameKind::message, {1, 2, 3, 4}, Bytes(100));
  frame.resize(frame_header_bytes);
  return {
      {"frame", frame,
       [](const Bytes& bytes) { return status_of(decode_frame_header(bytes, 100)); }},
      {"enrolment", encode(Enrolment{1, 5, "host:1"}),
       [](const Bytes& bytes) { return status_of(decode_enrolment(bytes)); }},
      {"introduction", encode(Introduction{7, {}}),
       [](const Bytes& bytes) { return status_of(decode_introduction(bytes)); }},
      {"greeting", encode(Greeting{7, one, four}),
       [](const Bytes& bytes) { return status_of(decode_greeting(bytes, ranks)); }},
      {"failure", encode_failure(peer_error(4, "it ended")),
       [](const Bytes& bytes) { return status_of(decode_failure(bytes, ranks)); }},
      {"redirect", encode_redirect("host:1"),
       [](const Bytes& bytes) { return status_of(decode_redirect(bytes)); }},
      {"progress", encode(Progress{{{1, 2}, {3, 5}}, {{2, 3}}}),
       [](const Bytes& bytes) { return status_of(decode_progress(bytes, {0, ranks})); }},
      {"look-up", encode(LookUp{one, four, true}),
       [](const Bytes& bytes) { return status_of(decode_look_up(bytes, ranks)); }},
      {"found", encode(Found{{one, four, false}, "host:1", Bytes(9)}),
       [](const Bytes& bytes) { return status_of(decode_found(bytes, ranks)); }},
      {"census", encode(census_of_two()),
       [](const Bytes& bytes) { return status_of(decode_census(bytes, 2, true)); }},
      {"roster", Roster(census_of_two()).encode(),
       [](const Bytes& bytes) { return status_of(Roster::decode(bytes, 2)); }},
      {"table", encode_table(std::vector<Bytes>(2, Bytes(3))),
       [](const Bytes& bytes) { return status_of(decode_table(bytes, 2, 3)); }},
  };
}

TEST(ControlMessages, AreWhole) {
  for (const Decoder& decoder : decoders()) {
    EXPECT_TRUE(decoder.decode(decoder.right).ok()) << decoder.name;
    for (std::size_t bytes = 0; bytes < decoder.right.size(); ++bytes) {
      const Bytes less(decoder.right.begin(),
                       decoder.right.begin() + static_cast<std::ptrdiff_t>(bytes));
      EXPECT_FALSE(decoder.decode(less).ok()) << decoder.name << " of " << bytes << " bytes";
    }
    Bytes more = decoder.right;
    more.push_back(std::byte{});
    EXPECT_FALSE(decoder.decode(more).ok()) << decoder.name;
  }
}

TEST(ControlMessages, HaveOurMagicAKnownKindAndAsMuchAsTheirKindMayHave) {
  const auto header = [](FrameKind kind, std::size_t payload_bytes) {
    Bytes frame = encode_frame(kind, {1, 2, 3, 4}, Bytes(payload_bytes));
    frame.resize(frame_header_bytes);
    return frame;
  };
  const auto refusal = [](const Bytes& frame) {
    auto decoded = decode_frame_header(frame, 10'000);
    return decoded.ok() ? std::string("none") : decoded.error().message;
  };
  EXPECT_EQ(refusal(header(FrameKind::message, 10'000)), "none");
  EXPECT_EQ(refusal(header(FrameKind::message, 10'001)),
            "received a frame of 10001 bytes; frames of its kind have at most 10000");
  EXPECT_EQ(refusal(header(FrameKind::greet, 4096)), "none");
  EXPECT_EQ(refusal(header(FrameKind::greet, 4097)),
            "received a frame of 4097 bytes; frames of its kind have at most 4096");
  EXPECT_EQ(refusal(header(FrameKind::answer, 1)), "none");
  const int unknown = static_cast<int>(FrameKind::surveying) + 1;
  EXPECT_EQ(refusal(header(static_cast<FrameKind>(unknown), 1)),
            "received a frame of the unknown kind " + std::to_string(unknown));
  Bytes foreign = header(FrameKind::message, 1);
  foreign[0] ^= std::byte{1};
  EXPECT_NE(refusal(foreign), "none");
}

TEST(ControlMessages, NameRanksThatThereAre) {
  const auto greeting = [](std::uint32_t from, std::uint32_t to) {
    WireWriter out;
    out.number(std::uint64_t{7});
    out.number(from);
    out.number(to);
    return decode_greeting(out.take(), ranks).ok();
  };
  EXPECT_TRUE(greeting(0, 4));
  for (const std::uint32_t wrong : {5U, 0x7fffffffU, 0x80000000U, 0xffffffffU}) {
    EXPECT_FALSE(greeting(wrong, 0)) << wrong;
    EXPECT_FALSE(greeting(0, wrong)) << wrong;
  }
}

TEST(ControlMessages, TellFailuresOfKindsAndRanksThatThereAre) {
  const auto is_taken = [](int kind, int timed_out, int aborted, std::uint32_t peer,
                           std::uint32_t settles_ms = 0, int reason = 0, std::uint32_t finder = 0,
                           std::uint64_t call = 0) {
    WireWriter out;
    for (const int number : {kind, timed_out, aborted, reason})
      out.number(static_cast<std::uint8_t>(number));
    out.number(peer);
    out.number(finder);
    out.number(call);
    out.number(settles_ms);
    out.text("so it is");
    return decode_failure(out.take(), ranks).ok();
  };
  const int last_kind = static_cast<int>(ErrorKind::peer);
  EXPECT_TRUE(is_taken(last_kind, 1, 1, 4));
  EXPECT_TRUE(is_taken(0, 0, 0, 0xffffffff)) << "nobody";
  EXPECT_TRUE(is_taken(0, 1, 0, 0, most_settling_ms));
  EXPECT_FALSE(is_taken(0, 1, 0, 0, most_settling_ms + 1));
  EXPECT_FALSE(is_taken(last_kind + 1, 0, 0, 0));
  EXPECT_FALSE(is_taken(0, 2, 0, 0));
  EXPECT_FALSE(is_taken(0, 0, 2, 0));
  for (const std::uint32_t wrong : {5U, 0x7fffffffU, 0x80000000U, 0xfffffffeU})
    EXPECT_FALSE(is_taken(0, 0, 0, wrong)) << wrong;
  EXPECT_TRUE(is_taken(0, 0, 0, 0, 0, failure_reason_count - 1, 0xffffffff, UINT64_MAX));
  EXPECT_FALSE(is_taken(0, 0, 0, 0, 0, failure_reason_count));
  EXPECT_FALSE(is_taken(0, 0, 0, 0, 0, 0, 5)) << "a finder that there is not";
  EXPECT_FALSE(is_taken(0, 0, 0, 0, 0, 0, 0, UINT64_MAX - 1)) << "a call before the first";
}

TEST(ControlMessages, HaveNoMoreThanWhatIsDue) {
  const std::string longest(max_address_bytes, 'a');
  const LookUp asked{one, four, false};
  const Bytes most(max_record_bytes);
  const Bytes too_many(max_record_bytes + 1);
  EXPECT_TRUE(decode_found(encode(Found{asked, longest, most}), ranks).ok());
  EXPECT_LE(encode(Found{asked, longest, most}).size(), max_small_payload_bytes);
  EXPECT_FALSE(decode_found(encode(Found{asked, longest + "a", {}}), ranks).ok());
  EXPECT_FALSE(decode_found(encode(Found{asked, "", too_many}), ranks).ok());
  EXPECT_TRUE(decode_redirect(encode_redirect(longest)).ok());
  EXPECT_FALSE(decode_redirect(encode_redirect(longest + "a")).ok());
  const std::vector<Bytes> two(2, Bytes(3));
  EXPECT_TRUE(decode_table(encode_table(two), 2, 3).ok());
  EXPECT_FALSE(decode_table(encode_table(two), 1, 3).ok());
  EXPECT_FALSE(decode_table(encode_table(two), 3, 3).ok());
  EXPECT_FALSE(decode_table(encode_table(two), 2, 2).ok());
}

TEST(ControlMessages, ReportProgressOfTheirSubtreeInOrder) {
  const auto is_taken = [](std::vector<RankRange> missing) {
    return decode_progress(encode(Progress{std::move(missing), {}}), {10, 20}).ok();
  };
  EXPECT_TRUE(is_taken({{10, 12}, {19, 20}}));
  EXPECT_FALSE(is_taken({{9, 12}}));
  EXPECT_FALSE(is_taken({{19, 21}}));
  EXPECT_FALSE(is_taken({{14, 12}}));
  EXPECT_FALSE(is_taken({{14, 14}, {13, 15}}));
  std::vector<RankRange> many;
  for (int rank = 0; rank < 1000; rank += 2) many.push_back({rank, rank + 1});
  EXPECT_LE(encode(Progress{many, many}).size(), max_small_payload_bytes);
}

TEST(ControlMessages, InAFileAreOfThisJob) {
  const std::string right = encode_rendezvous_file("host:1", "the secret");
  const auto refusal = [](const std::string& content) {
    auto decoded = decode_rendezvous_file(content, "the secret");
    return decoded.ok() ? std::string("none") : decoded.error().message;
  };
  EXPECT_EQ(refusal(right), "none");
  const std::string no_file = "the file is not a rendezvous file";
  EXPECT_EQ(refusal("x" + right), no_file);
  EXPECT_EQ(refusal(right + "x"), no_file);
  EXPECT_EQ(refusal(encode_rendezvous_file(std::string(max_address_bytes + 1, 'a'), "the secret")),
            no_file);
  const std::string other_job = "the file was written by a job with another secret";
  EXPECT_EQ(refusal(encode_rendezvous_file("host:1", "another")), other_job);
  std::string other_host = right;
  other_host[other_host.find("host")] = 'H';
  EXPECT_EQ(refusal(other_host), other_job);
}

}  // namespace
}  // namespace unisono::comm
