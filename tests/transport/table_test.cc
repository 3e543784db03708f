// Which transport two ranks use, and which pairs are refused with what sentence.

#include "transport/table.h"

#include <gtest/gtest.h>

#include "base/key.h"
#include "base/str.h"
#include "base/wire.h"

namespace unisono {
namespace {

using transport::Contact;
using transport::Nearness;
using transport::TransportSet;

constexpr Nearness same_node{.is_same_host = true, .is_same_node = true};
constexpr Nearness same_host{.is_same_host = true, .is_same_node = false};
constexpr Nearness apart{.is_same_host = false, .is_same_node = false};

TransportSet must_make(std::string_view named) {
  auto made = TransportSet::make({.key = derive_key(as_bytes_of("secret"), "test")}, named);
  EXPECT_TRUE(made.ok()) << made.error().describe();
  return std::move(*made);
}

std::string name_of(const Result<transport::Route>& route) {
  return route.ok() ? std::string(route->transport->name()) : route.error().describe();
}

TEST(Table, TheBestThatReachesIsTaken) {
  const TransportSet mine = must_make("");
  const Contact theirs = must_make("").contact();
  EXPECT_EQ(name_of(mine.route_to(1, theirs, same_node)), "shm");
  EXPECT_EQ(name_of(mine.route_to(1, theirs, same_host)), "socket");
  EXPECT_EQ(name_of(mine.route_to(1, theirs, apart)), "socket");
  // One name for two hosts makes no memory that they share.
  EXPECT_EQ(name_of(mine.route_to(1, theirs, {.is_same_host = false, .is_same_node = true})),
            "socket");
  EXPECT_EQ(transport::usual_transport("", true), "shm");
  EXPECT_EQ(transport::usual_transport("", false), "socket");
}

TEST(Table, BothEndsTakeWhatOneOfThemNames) {
  for (const auto& [mine, theirs] : {std::pair{"socket", ""}, {"", "socket"}, {"socket", "socket"}})
    EXPECT_EQ(name_of(must_make(mine).route_to(1, must_make(theirs).contact(), same_node)),
              "socket");
  EXPECT_EQ(name_of(must_make("shm").route_to(1, must_make("").contact(), same_host)), "shm");
}

TEST(Table, TheBestThatBothHaveIsTaken) {
  Contact theirs = must_make("").contact();
  std::erase_if(theirs.entries, [](const auto& entry) { return entry.transport == "shm"; });
  EXPECT_EQ(name_of(must_make("").route_to(1, theirs, same_node)), "socket");
}

TEST(Table, NoTransportIsMadeThatProtectsLessThanIsAskedFor) {
  using enum sys::Protection;
  for (const transport::TransportRow& row : transport::transport_table()) {
    if (row.reach == transport::Reach::host) continue;
    for (const sys::Protection asked : {authenticate, encrypt}) {
      if (asked <= row.protects) continue;
      const auto made = TransportSet::make(
          {.key = derive_key(as_bytes_of("secret"), "test"), .protection = asked}, row.name);
      ASSERT_FALSE(made.ok()) << row.name;
      EXPECT_EQ(made.error().kind, ErrorKind::misuse);
      EXPECT_EQ(made.error().message,
                str("UNISONO_WIRE=", sys::name(asked), " and the transport ", row.name,
                    " exclude each other: the most that it does for data between hosts is ",
                    sys::name(row.protects), "; use UNISONO_TRANSPORT=socket, or UNISONO_WIRE=",
                    sys::name(row.protects), " where the network is trusted"));
    }
  }
  for (const sys::Protection asked : {none, authenticate, encrypt})
    EXPECT_TRUE(TransportSet::make(
                    {.key = derive_key(as_bytes_of("secret"), "test"), .protection = asked}, "")
                    .ok());
}

TEST(Table, OnlyRanksThatUseMemoryOfTheHostReadEachOther) {
  EXPECT_TRUE(transport::reads_peers(""));
  EXPECT_TRUE(transport::reads_peers("shm"));
  EXPECT_FALSE(transport::reads_peers("socket"));
  EXPECT_FALSE(transport::reads_peers("ofi"));
}

TEST(Table, WhatCannotBeIsRefusedWithWhatCan) {
  const auto refused = [](const TransportSet& mine, const Contact& theirs, Nearness near) {
    const auto route = mine.route_to(3, theirs, near);
    EXPECT_FALSE(route.ok());
    return route.ok() ? std::string() : route.error().message;
  };
  const auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  const std::string differ = refused(must_make("shm"), must_make("socket").contact(), same_node);
  EXPECT_TRUE(has(differ, "'shm' and rank 3 'socket'")) << differ;

  Contact strange = must_make("").contact();
  strange.named = "pigeon";
  const std::string lacks = refused(must_make(""), strange, same_node);
  EXPECT_TRUE(has(lacks, "rank 3 was told to use the transport 'pigeon', which this rank"))
      << lacks;

  Contact without = must_make("").contact();
  std::erase_if(without.entries, [](const auto& entry) { return entry.transport == "socket"; });
  const std::string missing = refused(must_make("socket"), without, same_node);
  EXPECT_TRUE(has(missing, "which rank 3 does not have")) << missing;

  const std::string far = refused(must_make("shm"), must_make("").contact(), apart);
  EXPECT_TRUE(has(far, "rank 3 is on another host")) << far;

  const std::string nothing = refused(must_make(""), {}, same_node);
  EXPECT_TRUE(has(nothing, "no transport joins this rank and rank 3")) << nothing;

  const Status unknown = transport::check_transport_name("pigeon");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().kind, ErrorKind::misuse);
  EXPECT_TRUE(has(unknown.error().message, "shm")) << unknown.error().message;
}

TEST(Table, AContactComesBackAsItWasWritten) {
  const Contact sent = must_make("socket").contact();
  WireWriter writer;
  sent.write(writer);
  WireReader reader(writer.bytes());
  const Contact got = Contact::read(reader);
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(got.named, "socket");
  ASSERT_EQ(got.entries.size(), sent.entries.size());
  for (std::size_t i = 0; i < got.entries.size(); ++i) {
    EXPECT_EQ(got.entries[i].transport, sent.entries[i].transport);
    EXPECT_EQ(got.entries[i].address, sent.entries[i].address);
  }
  // A part of it, and what promises more than there is, are nothing.
  for (std::size_t bytes = 0; bytes < writer.bytes().size(); ++bytes) {
    WireReader part(writer.bytes().first(bytes));
    EXPECT_TRUE(Contact::read(part).entries.empty());
    EXPECT_FALSE(part.ok());
  }
  WireWriter many;
  many.text("");
  many.number(~std::uint32_t{0});
  WireReader promises(many.bytes());
  EXPECT_TRUE(Contact::read(promises).entries.empty());
  EXPECT_FALSE(promises.ok());
}

}  // namespace
}  // namespace unisono
