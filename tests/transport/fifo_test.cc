// The fifos of every protocol over every transport: each byte of each message, slots that go round
// many times, slow ends, offers, and messages that do not match.

#include "transport/fifo.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/fingerprint.h"
#include "conformance/harness.h"
#include "transport/fifo_layout.h"
#include "transport/fifo_mapped.h"

namespace unisono::test {
namespace {

using transport::FifoOptions;
using transport::make_recv_fifo;
using transport::make_send_fifo;
using transport::Piece;
using transport::RecvFifo;
using transport::SendFifo;

// Small slots, so that they go round often.
FifoOptions small_options() {
  return {.slots = 4,
          .simple_slot_bytes = 4096,
          .ll_slot_bytes = 2048,
          .ll128_slot_bytes = 1280,
          .zero_copy = true,
          .zero_copy_min_bytes = 1000};
}

using Parameters = std::tuple<Factory, Protocol>;
class Fifo : public testing::TestWithParam<Parameters> {
 protected:
  const Factory& factory() const { return std::get<0>(GetParam()); }
  Protocol protocol() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(All, Fifo,
                         testing::Combine(testing::ValuesIn(factories_inside_a_process()),
                                          testing::Values(Protocol::simple, Protocol::ll,
                                                          Protocol::ll128)),
                         [](const testing::TestParamInfo<Parameters>& parameters) {
                           return std::get<0>(parameters.param).name + "_" +
                                  std::string(name(std::get<1>(parameters.param)));
                         });

// One direction, from a to b.
struct Line {
  Line(const Factory& factory, Protocol protocol, const FifoOptions& options = small_options())
      : job(factory, 2),
        pair(job, transport::fifo_geometry(options)),
        send(make_send_fifo(*pair.a, protocol, options)),
        recv(std::move(*make_recv_fifo(*pair.b, protocol, options))) {}

  Job job;
  Pair pair;
  std::unique_ptr<SendFifo> send;
  std::unique_ptr<RecvFifo> recv;
};

template <class Poll>
void wait_for(Connection& connection, Poll poll) {
  EXPECT_TRUE(eventually([&] {
    const auto moved = connection.progress();
    EXPECT_TRUE(moved.ok()) << moved.error().describe();
    Result<bool> done = poll();
    EXPECT_TRUE(done.ok()) << done.error().describe();
    return !moved.ok() || !done.ok() || *done;
  }));
}

// Of short puts, before any is told.
std::uint64_t credits_held(const Line& line, const FifoOptions& options) {
  if (line.pair.a->host_link() != nullptr) return 0;
  return transport::credits_together(static_cast<std::uint64_t>(options.slots)) - 1;
}

void wait_to_send(Line& line) {
  wait_for(*line.pair.a, [&] { return line.send->can_send(); });
}
void wait_flushed(Line& line) {
  wait_for(*line.pair.a, [&] { return line.send->flush(); });
}

std::vector<std::byte> message(std::uint64_t number, std::size_t bytes) {
  std::mt19937_64 random(number * 1'000'003 + bytes);
  return random_bytes(random, bytes);
}

// Takes the next message, which must be message(number, bytes), in one of the two ways.
void take(Line& line, std::uint64_t number, std::size_t bytes) {
  wait_for(*line.pair.b, [&] { return line.recv->arrived(bytes); });
  const auto expected = message(number, bytes);
  ASSERT_EQ(line.recv->received(), number);
  const void* data = line.recv->data();
  if (data != nullptr && number % 2 == 0) {
    ASSERT_TRUE(equal_bytes(data, expected.data(), bytes)) << "message " << number;
  } else {
    // In three parts, the last one first.
    std::vector<std::byte> got(bytes + 1, std::byte{0xcd});
    const std::size_t third = bytes / 3;
    ASSERT_TRUE(line.recv->copy_to(got.data() + 2 * third, 2 * third, bytes - 2 * third).ok());
    ASSERT_TRUE(line.recv->copy_to(got.data(), 0, third).ok());
    ASSERT_TRUE(line.recv->copy_to(got.data() + third, third, third).ok());
    ASSERT_TRUE(equal_bytes(got.data(), expected.data(), bytes)) << "message " << number;
    ASSERT_EQ(got[bytes], std::byte{0xcd});
  }
  const auto released = line.recv->release();
  ASSERT_TRUE(released.ok()) << released.error().describe();
  ASSERT_EQ(line.recv->received(), number + 1);
}

void send_message(Line& line, std::uint64_t number, std::size_t bytes) {
  const auto content = message(number, bytes);
  ASSERT_EQ(line.send->sent(), number);
  if (number % 3 == 0) {
    void* to = *line.send->begin(bytes);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(to) % (bytes < 64 ? 8 : 64), 0u);
    std::memcpy(to, content.data(), bytes);
    ASSERT_TRUE(line.send->commit().ok());
    return;
  }
  // Pieces at odd places, with an empty one between.
  const std::size_t cut = bytes / (number % 5 + 1);
  const std::vector<Piece> pieces{
      {content.data(), cut}, {nullptr, 0}, {content.data() + cut, bytes - cut}};
  const auto status = number % 3 == 1
                          ? line.send->send(pieces)
                          : line.send->send(std::vector<Piece>{{content.data(), bytes}});
  ASSERT_TRUE(status.ok()) << status.error().describe();
}

std::vector<std::size_t> sizes_for(Protocol protocol, const FifoOptions& options) {
  const std::size_t most = transport::slot_payload_bytes(options, protocol);
  std::vector<std::size_t> sizes{1,  2,  3,   4,   5,   7,   8,   9,   39,  40,       41,  63,
                                 64, 65, 119, 120, 121, 127, 128, 129, 240, most - 1, most};
  std::erase_if(sizes, [&](std::size_t bytes) { return bytes > most; });
  return sizes;
}

TEST_P(Fifo, EverySizeArrivesOneByOne) {
  Line line(factory(), protocol());
  std::uint64_t number = 0;
  for (int round = 0; round < 4; ++round)
    for (const std::size_t bytes : sizes_for(protocol(), small_options())) {
      wait_to_send(line);
      send_message(line, number, bytes);
      wait_flushed(line);
      ASSERT_NO_FATAL_FAILURE(take(line, number, bytes));
      wait_for(*line.pair.b, [&] { return line.recv->flush(); });
      ++number;
    }
}

TEST_P(Fifo, SlotsGoRoundManyTimesWithTwoThreads) {
  Line line(factory(), protocol());
  // What is not mapped may have an interposer under it, and each message its delay.
  const std::uint64_t messages = line.pair.a->host_link() != nullptr ? 3000 : 300;
  const auto sizes = sizes_for(protocol(), small_options());
  const auto size_of = [&](std::uint64_t number) {
    std::mt19937_64 random(number);
    return number % 4 == 0 ? 1 + random_below(random, sizes.back())
                           : sizes[random_below(random, sizes.size())];
  };
  std::thread receiver([&] {
    for (std::uint64_t number = 0; number < messages; ++number)
      ASSERT_NO_FATAL_FAILURE(take(line, number, size_of(number)));
    wait_for(*line.pair.b, [&] { return line.recv->flush(); });
  });
  for (std::uint64_t number = 0; number < messages && !HasFatalFailure(); ++number) {
    wait_to_send(line);
    ASSERT_NO_FATAL_FAILURE(send_message(line, number, size_of(number)));
  }
  wait_flushed(line);
  receiver.join();
  // The last credits of short puts may be held back.
  const std::uint64_t held = credits_held(line, small_options());
  wait_for(*line.pair.a,
           [&]() -> Result<bool> { return line.send->consumed() + held >= messages; });
}

TEST_P(Fifo, ASlowReceiverStopsTheSenderAtTheLastSlot) {
  const FifoOptions options = small_options();
  Line line(factory(), protocol());
  for (std::uint64_t number = 0; number < 4; ++number) {
    wait_to_send(line);
    send_message(line, number, 700);
  }
  wait_flushed(line);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(progress_all({line.pair.a.get(), line.pair.b.get()}).ok());
    const auto free = line.send->can_send();
    ASSERT_TRUE(free.ok() && !*free);
  }
  EXPECT_EQ(line.send->consumed(), 0u);
  const std::uint64_t told_at = credits_held(line, options) + 1;
  for (std::uint64_t number = 0; number < told_at; ++number)
    ASSERT_NO_FATAL_FAILURE(take(line, number, 700));
  wait_for(*line.pair.b, [&] { return line.recv->flush(); });
  wait_to_send(line);
  EXPECT_EQ(line.send->consumed(), told_at);
  EXPECT_EQ(options.slots, 4);
}

TEST_P(Fifo, ShortMessagesGoFarAheadOfTheReceiver) {
  Line line(factory(), protocol());
  if (protocol() != Protocol::simple || line.pair.a->host_link() == nullptr)
    GTEST_SKIP() << "messages have heads in mapped memory, in Simple";
  // Every third in its header, the others behind it; none in one of the four slots.
  const auto bytes_of = [](std::uint64_t number) { return number % 3 == 0 ? 8u : 300u; };
  std::uint64_t sent = 0;
  transport::MappedSender& sender = *line.send->mapped();
  const auto send_while_there_is_room = [&] {
    for (; sent < 200; ++sent) {
      const auto room = sender.look_for_room(bytes_of(sent));
      ASSERT_TRUE(room.ok());
      if (!*room) return;
      send_message(line, sent, bytes_of(sent));
    }
  };
  ASSERT_NO_FATAL_FAILURE(send_while_there_is_room());
  EXPECT_EQ(sent, static_cast<std::uint64_t>(transport::least_heads));
  std::uint64_t taken = 0;
  for (; taken + 1 < transport::heads_per_credit; ++taken)
    ASSERT_NO_FATAL_FAILURE(take(line, taken, bytes_of(taken)));
  EXPECT_FALSE(sender.look_for_room(8).value());
  for (; taken < sent; ++taken) {
    ASSERT_NO_FATAL_FAILURE(take(line, taken, bytes_of(taken)));
    ASSERT_NO_FATAL_FAILURE(send_while_there_is_room());
  }
  EXPECT_EQ(taken, 200u);
}

// Messages that the receiver keeps up with lie in one slot, and those that it does not in more.
TEST_P(Fifo, ASlotIsUsedAgainWhereTheReceiverHasGivenBackAll) {
  FifoOptions options = small_options();
  options.reuses_slots = true;
  options.zero_copy = false;
  options.simple_slot_bytes = 8192;
  Line line(factory(), protocol(), options);
  if (protocol() != Protocol::simple || line.pair.a->host_link() == nullptr)
    GTEST_SKIP() << "slots are used again in mapped memory, in Simple";
  constexpr std::size_t bytes = 5000;
  std::set<const void*> places;
  const auto send_and_note = [&](std::uint64_t number) {
    wait_to_send(line);
    const auto content = message(number, bytes);
    void* const place = *line.send->begin(bytes);
    std::copy(content.begin(), content.end(), static_cast<std::byte*>(place));
    ASSERT_TRUE(line.send->commit().ok());
    places.insert(place);
  };
  std::uint64_t number = 0;
  for (; number < 11; ++number) {
    ASSERT_NO_FATAL_FAILURE(send_and_note(number));
    ASSERT_NO_FATAL_FAILURE(take(line, number, bytes));
  }
  EXPECT_EQ(places.size(), 1U);
  // One behind, then short ones between, which take no slot.
  ASSERT_NO_FATAL_FAILURE(send_and_note(number));
  for (; number < 20; ++number) {
    ASSERT_NO_FATAL_FAILURE(send_and_note(number + 1));
    ASSERT_NO_FATAL_FAILURE(take(line, number, bytes));
  }
  EXPECT_EQ(places.size(), 4U);
  ASSERT_NO_FATAL_FAILURE(take(line, number, bytes));
  send_message(line, number + 1, 300);
  ASSERT_NO_FATAL_FAILURE(send_and_note(number + 2));
  ASSERT_NO_FATAL_FAILURE(take(line, number + 1, 300));
  ASSERT_NO_FATAL_FAILURE(take(line, number + 2, bytes));
  EXPECT_EQ(places.size(), 4U);
}

TEST_P(Fifo, NothingArrivesBeforeItIsSent) {
  Line line(factory(), protocol());
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(progress_all({line.pair.a.get(), line.pair.b.get()}).ok());
    const auto arrived = line.recv->arrived(8);
    ASSERT_TRUE(arrived.ok() && !*arrived);
  }
  EXPECT_FALSE(line.recv->release().ok());
}

TEST_P(Fifo, AnotherSizeIsAPeerErrorWithBothSizes) {
  for (const auto& [sent, expected] :
       {std::pair{std::size_t{24}, std::size_t{40}}, std::pair{std::size_t{500}, std::size_t{12}},
        std::pair{std::size_t{101}, std::size_t{100}}}) {
    Line line(factory(), protocol());
    wait_to_send(line);
    send_message(line, 0, sent);
    const std::size_t wanted = expected;
    const Error told = until_error([&]() -> Status {
      EXPECT_TRUE(progress_all({line.pair.a.get(), line.pair.b.get()}).ok());
      EXPECT_TRUE(line.send->flush().ok());
      auto arrived = line.recv->arrived(wanted);
      if (arrived.ok()) {
        EXPECT_FALSE(*arrived);
        return {};
      }
      return arrived.take_error();
    });
    EXPECT_EQ(told.kind, ErrorKind::peer);
    EXPECT_EQ(told.peer, 0);
    EXPECT_NE(told.message.find(str(sent, " bytes")), std::string::npos) << told.message;
    EXPECT_NE(told.message.find(str("expects ", expected)), std::string::npos) << told.message;
  }
}

// Short, in a slot, and offered; of the size that is expected, and of another.
TEST_P(Fifo, AMessageOfAnotherCallIsAnErrorThatNamesBoth) {
  const std::uint64_t of_ints =
      pack({.collective = Collective::all_reduce, .type = DataType::int32, .count = 5});
  const std::uint64_t of_floats =
      pack({.collective = Collective::all_reduce, .type = DataType::float32, .count = 5});
  const std::uint32_t ring = plan_id("ring", 0, Protocol::simple, 1);
  const std::uint32_t star = plan_id("star", 0, Protocol::simple, 2);
  struct Case {
    CallId sent;
    std::string_view described;
    std::string_view expected;
  };
  const CallId ours{.what = of_ints, .number = 7, .plan = ring};
  const Case cases[] = {
      {{of_floats, 7, ring}, "all_reduce of 5 float32, sum", "all_reduce of 5 int32, sum"},
      {{of_ints, 8, ring},
       "all_reduce of 5 int32, sum, as call 8",
       "all_reduce of 5 int32, sum, as call 7"},
      {{of_ints, 7, star},
       "all_reduce of 5 int32, sum, by plan star, simple, 2 channels",
       "all_reduce of 5 int32, sum, by plan ring, simple, 1 channel"}};
  for (const std::size_t bytes : {std::size_t{20}, std::size_t{700}, std::size_t{1000}})
    for (const std::size_t wanted : {bytes, bytes + 8}) {
      const Case& one = cases[(bytes + wanted) / 4 % std::size(cases)];
      Line line(factory(), protocol());
      line.send->set_call(one.sent);
      line.recv->set_call(ours);
      wait_to_send(line);
      const std::vector<std::byte> content = message(0, bytes);
      const std::vector<Piece> piece{{content.data(), bytes}};
      ASSERT_TRUE(
          (line.send->offers_zero_copy(piece) ? line.send->offer(piece) : line.send->send(piece))
              .ok());
      const Error told = until_error([&]() -> Status {
        EXPECT_TRUE(progress_all({line.pair.a.get(), line.pair.b.get()}).ok());
        EXPECT_TRUE(line.send->flush().ok());
        auto arrived = line.recv->arrived(wanted);
        if (!arrived.ok()) return arrived.take_error();
        EXPECT_FALSE(*arrived);
        return {};
      });
      EXPECT_EQ(told.kind, ErrorKind::peer);
      EXPECT_EQ(told.peer, -1);
      EXPECT_EQ(told.message, str("ranks disagree on a call: rank 1 calls ", one.expected,
                                  "; rank 0 calls ", one.described));
    }
}

TEST_P(Fifo, RefusesMessagesThatFitNoSlot) {
  Line line(factory(), protocol());
  const std::size_t most = line.pair.a->host_link() != nullptr
                               ? transport::slot_payload_bytes(small_options(), protocol())
                               : transport::put_layout(small_options()).payload_bytes;
  const std::vector<std::byte> content(most + 1);
  const std::vector<Piece> too_long{{content.data(), most + 1}};
  const std::vector<Piece> empty{{content.data(), 0}};
  wait_to_send(line);
  EXPECT_EQ(line.send->send(too_long).error().kind, ErrorKind::bug);
  EXPECT_EQ(line.send->send(empty).error().kind, ErrorKind::bug);
  EXPECT_EQ(line.send->sent(), 0u);
}

TEST_P(Fifo, OffersArriveFromManyPieces) {
  constexpr std::uint64_t messages = 200;
  Line line(factory(), protocol());
  const std::size_t slot = transport::slot_payload_bytes(small_options(), protocol());
  // A receiver that reads the sender's memory is not bound to what a slot takes.
  const bool longer = line.pair.b->can_read_peer();
  const auto size_of = [&](std::uint64_t number) {
    const std::size_t most = longer && number % 4 != 3 ? 3 * slot : slot;
    return 1000 + number * 13 % (most - 999);
  };
  {
    const auto small = message(0, 999);
    EXPECT_FALSE(line.send->offers_zero_copy(std::vector<Piece>{{small.data(), 999}}));
  }
  const auto probe = message(0, 1000);
  if (!line.send->offers_zero_copy(std::vector<Piece>{{probe.data(), 1000}})) {
    EXPECT_FALSE(line.send->offer(std::vector<Piece>{{probe.data(), 1000}}).ok());
    GTEST_SKIP() << "no offers by this protocol over this transport";
  }
  std::thread receiver([&] {
    for (std::uint64_t number = 0; number < messages; ++number)
      ASSERT_NO_FATAL_FAILURE(take(line, number, size_of(number)));
    wait_for(*line.pair.b, [&] { return line.recv->flush(); });
  });
  std::vector<std::vector<std::byte>> contents(messages);
  std::uint64_t freed = 0;
  for (std::uint64_t number = 0; number < messages; ++number) {
    wait_to_send(line);
    const std::size_t bytes = size_of(number);
    contents[number] = message(number, bytes);
    if (number % 4 == 3) {  // between offers, bytes in the slot
      send_message(line, number, bytes);
    } else {
      std::vector<Piece> pieces;
      std::mt19937_64 random(number);
      std::size_t at = 0;
      while (at < bytes && pieces.size() < 7) {
        const std::size_t part = std::min(bytes - at, random_below(random, 900));
        pieces.push_back({contents[number].data() + at, part});
        at += part;
      }
      pieces.push_back({contents[number].data() + at, bytes - at});
      ASSERT_TRUE(line.send->offers_zero_copy(pieces));
      const auto offered = line.send->offer(pieces);
      ASSERT_TRUE(offered.ok()) << offered.error().describe();
    }
    // What has been read may change: a reader that still needs it would fail.
    for (; freed < line.send->sources_read(); ++freed)
      std::fill(contents[freed].begin(), contents[freed].end(), std::byte{0xee});
  }
  wait_flushed(line);
  receiver.join();
}

TEST_P(Fifo, BothDirectionsAndAllProtocolsShareAConnection) {
  const FifoOptions options = small_options();
  Job job(factory(), 2);
  Pair pair(job, transport::fifo_geometry(options));
  constexpr std::uint64_t messages = 60;
  const auto run = [&](Connection& connection, std::uint64_t own, std::uint64_t other) {
    std::vector<std::unique_ptr<SendFifo>> send;
    std::vector<std::unique_ptr<RecvFifo>> recv;
    for (const Protocol each : {Protocol::simple, Protocol::ll, Protocol::ll128}) {
      if (carrier(connection, each) != each) continue;
      send.push_back(make_send_fifo(connection, each, options));
      recv.push_back(std::move(*make_recv_fifo(connection, each, options)));
    }
    for (std::uint64_t number = 0; number < messages; ++number)
      for (std::size_t i = 0; i < send.size(); ++i) {
        const std::size_t bytes = 1 + (number * 37 + i * 11) % 900;
        wait_for(connection, [&] { return send[i]->can_send(); });
        const auto sent = message(number * 10 + i + own * 100'000, bytes);
        ASSERT_TRUE(send[i]->send(std::vector<Piece>{{sent.data(), bytes}}).ok());
        wait_for(connection, [&] { return recv[i]->arrived(bytes); });
        const auto expected = message(number * 10 + i + other * 100'000, bytes);
        ASSERT_TRUE(equal_bytes(recv[i]->data(), expected.data(), bytes)) << number;
        ASSERT_TRUE(recv[i]->release().ok());
      }
    for (auto& fifo : send) wait_for(connection, [&] { return fifo->flush(); });
    for (auto& fifo : recv) wait_for(connection, [&] { return fifo->flush(); });
  };
  std::thread other([&] { run(*pair.b, 2, 1); });
  run(*pair.a, 1, 2);
  other.join();
}

TEST_P(Fifo, FullSlotsOfTheDefaultSizesArrive) {
  const FifoOptions options;
  Line line(factory(), protocol(), options);
  const std::size_t most = transport::slot_payload_bytes(options, protocol());
  std::thread receiver([&] {
    for (std::uint64_t number = 0; number < 20; ++number)
      ASSERT_NO_FATAL_FAILURE(take(line, number, most - number % 3));
    wait_for(*line.pair.b, [&] { return line.recv->flush(); });
  });
  for (std::uint64_t number = 0; number < 20; ++number) {
    wait_to_send(line);
    send_message(line, number, most - number % 3);
  }
  wait_flushed(line);
  receiver.join();
}

}  // namespace
}  // namespace unisono::test
