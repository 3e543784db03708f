// What rank 0 and the others say to each other through a store, whatever the store holds.

#include "comm/join/meet.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "comm/join/join.h"

namespace unisono::comm {
namespace {

class MapStore final : public Store {
 public:
  std::string_view name() const override { return "the map"; }
  Status set(const std::string& key, const std::string& value) override {
    values[key] = value;
    return {};
  }
  Status wait(const std::string& key) override {
    if (!values.contains(key)) return timeout_error(0, "nothing was set for ", key);
    return {};
  }
  Result<std::string> get(const std::string& key) override { return values[key]; }

  std::map<std::string, std::string> values;
};

Meeting of_rank(int rank, bool has_secret = false, std::string interface = "127.0.0.1") {
  return {.key = "job", .rank = rank, .interface = std::move(interface), .has_secret = has_secret};
}

TEST(Meet, RanksLearnWhereRankZeroListensAndItsSecret) {
  std::set<std::string> secrets;
  for (int job = 0; job < 3; ++job) {
    MapStore store;
    const auto zero = meet(store, of_rank(0));
    const auto one = meet(store, of_rank(1));
    ASSERT_TRUE(zero.ok() && one.ok());
    ASSERT_TRUE(zero->listener);
    EXPECT_FALSE(one->listener);
    EXPECT_EQ(zero->rendezvous, zero->listener->rendezvous());
    EXPECT_EQ(one->rendezvous, zero->rendezvous);
    EXPECT_EQ(one->secret, zero->secret);
    EXPECT_EQ(one->secret.size(), 64U);
    secrets.insert(one->secret);
  }
  EXPECT_EQ(secrets.size(), 3U);
}

TEST(Meet, ASecretOfTheSettingsIsKeptOutOfTheStore) {
  MapStore store;
  const auto zero = meet(store, of_rank(0, true));
  const auto one = meet(store, of_rank(1, true));
  ASSERT_TRUE(zero.ok() && one.ok());
  EXPECT_EQ(zero->secret + one->secret, "");
  EXPECT_EQ(store.values["job"], zero->rendezvous + ",-");
  const auto without = meet(store, of_rank(2));
  ASSERT_FALSE(without.ok());
  EXPECT_EQ(without.error().message,
            "rank 0 has a secret of its own (UNISONO_SECRET or UNISONO_SECRET_FILE) and rank 2 has "
            "none; set the same on every rank, or on none");
}

TEST(Meet, ASecretOfTheSettingsPrecedesOneThatRankZeroMade) {
  MapStore store;
  ASSERT_TRUE(meet(store, of_rank(0)).ok());
  const auto one = meet(store, of_rank(1, true));
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->secret, "");
}

TEST(Meet, ARankZeroThatCannotListenTellsTheOthersWhy) {
  MapStore store;
  const auto zero = meet(store, of_rank(0, false, "192.0.2.1"));
  const auto one = meet(store, of_rank(1));
  ASSERT_FALSE(zero.ok() || one.ok());
  EXPECT_EQ(one.error().kind, ErrorKind::peer);
  EXPECT_EQ(one.error().peer, 0);
  const std::string why = "rank 0 could not listen for the other ranks: ";
  ASSERT_TRUE(one.error().message.starts_with(why)) << one.error().message;
  // A launcher may take no more than 256 bytes.
  EXPECT_LT(store.values["job"].size(), 250U);
  EXPECT_EQ(store.values["job"].find(' '), std::string::npos);
  EXPECT_TRUE(zero.error().message.starts_with(one.error().message.substr(why.size(), 60)))
      << one.error().message;
}

TEST(Meet, ARankZeroThatCannotJoinTellsTheOthersWhy) {
  MapStore store;
  Meeting absent = of_rank(0);
  absent.failure = environment_error("its disk is full, 100%");
  const auto zero = meet(store, absent);
  const auto one = meet(store, of_rank(1));
  ASSERT_FALSE(zero.ok() || one.ok());
  EXPECT_EQ(zero.error().message, "its disk is full, 100%");
  EXPECT_EQ(one.error().kind, ErrorKind::peer);
  EXPECT_EQ(one.error().peer, 0);
  EXPECT_EQ(one.error().message, "rank 0 cannot join: its disk is full, 100%");
}

TEST(Meet, OnlyAnAbsentRanksWordSaysWhoIsAbsent) {
  EXPECT_FALSE(read_absent_rank("tcp://127.0.0.1:1,-"));
  EXPECT_EQ(read_absent_rank(absent_rank(12, "no device"))->peer, 12);
  for (const auto* const word : {"absent,", "absent,x,y", "absent,,"})
    EXPECT_EQ(read_absent_rank(word)->peer, -1) << word;
}

TEST(Meet, WhatIsNotRankZerosWordIsAnError) {
  for (const char* const value :
       {"", ",", "x,y", "file:///x,s", "tcp://127.0.0.1:1,", "tcp://127.0.0.1:1", "\xff[]"}) {
    MapStore store;
    store.values["job"] = value;
    const auto one = meet(store, of_rank(1));
    ASSERT_FALSE(one.ok()) << value;
    EXPECT_EQ(one.error().kind, ErrorKind::peer) << value;
    EXPECT_EQ(one.error().message,
              "the rendezvous that rank 0 published through the map cannot be read; is rank 0 of "
              "another version of unisono?");
  }
}

TEST(Meet, AReasonThatIsCutOrDamagedIsShownAsItIs) {
  for (const auto& [value, reason] : std::map<std::string, std::string>{{"failed,", ""},
                                                                        {"failed,a%20b%25", "a b%"},
                                                                        {"failed,a%2", "a%2"},
                                                                        {"failed,%zz%", "%zz%"},
                                                                        {"failed,%2", "%2"},
                                                                        {"failed,%", "%"}}) {
    MapStore store;
    store.values["job"] = value;
    const auto one = meet(store, of_rank(1));
    ASSERT_FALSE(one.ok());
    EXPECT_EQ(one.error().message, "rank 0 could not listen for the other ranks: " + reason);
  }
}

TEST(Meet, WhatTheStoreSaysIsSaid) {
  MapStore store;
  const auto one = meet(store, of_rank(1));
  ASSERT_FALSE(one.ok());
  EXPECT_TRUE(one.error().timed_out);
  EXPECT_EQ(one.error().message, "nothing was set for job");
}

TEST(Meet, ARankThatComesWhenTheMeetingIsForgottenIsToldSo) {
  MapStore store;
  store.values["job"] = forgotten_meeting();
  const auto one = meet(store, of_rank(1));
  ASSERT_FALSE(one.ok());
  EXPECT_EQ(one.error().message,
            "rank 0 could not listen for the other ranks: the job has started without this rank");
}

}  // namespace
}  // namespace unisono::comm
