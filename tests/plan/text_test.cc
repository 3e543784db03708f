#include "plan/text.h"

#include <gtest/gtest.h>

#include "plan/check.h"
#include "plan/lexer.h"
#include "plan/parse_index.h"
#include "support/golden.h"
#include "support/page_end.h"
#include "support/random_plan.h"
#include "support/sanitized.h"

namespace unisono::plan {
namespace {

std::string error_of(std::string_view text, const TextLimits& limits = {}) {
  const auto plan = parse(text, limits);
  if (plan.ok()) return "no error";
  EXPECT_EQ(plan.error().kind, ErrorKind::misuse);
  return plan.error().message;
}

// A plan of two ranks with the given lines as rank 0's body.
std::string with_body(std::string_view body) {
  return "plan p version 1\ncollective all_reduce ranks 2\nchunks 8\nrank 0\n"
         "block 0 channel 0 send 1 recv 1\n" +
         std::string(body) + "\nrank 1\n";
}

Result<Index> read(std::string_view text) {
  Lexer lexer(text);
  Index index;
  if (auto status = read_index(lexer, index); !status.ok()) return status.take_error();
  if (!lexer.next_is(Token::Kind::end_of_text)) return lexer.expected("the end");
  return index;
}

Index make(std::int64_t base, std::int64_t i, std::int64_t j, std::int64_t modulus,
           std::int64_t scale, std::int64_t offset) {
  Index index(base);
  index.coefficient = {i, j};
  index.modulus = modulus;
  index.scale = scale;
  index.offset = offset;
  return index;
}

TEST(IndexText, PrintsTheNormalForm) {
  EXPECT_EQ(print(Index(0)), "0");
  EXPECT_EQ(print(Index(-7)), "-7");
  EXPECT_EQ(print(make(0, 1, 0, 0, 1, 0)), "i");
  EXPECT_EQ(print(make(3, -1, 2, 0, 1, 0)), "3 - i + 2j");
  EXPECT_EQ(print(make(0, -2, 0, 0, 1, 0)), "-2i");
  EXPECT_EQ(print(make(3, -1, 0, 4, 1, 0)), "(3 - i) mod 4");
  EXPECT_EQ(print(make(0, 1, 0, 4, 1, 0)), "i mod 4");
  EXPECT_EQ(print(make(-3, 0, 0, 4, 1, 0)), "(-3) mod 4");
  EXPECT_EQ(print(make(3, -1, 0, 4, 2, 8)), "8 + 2 * ((3 - i) mod 4)");
  EXPECT_EQ(print(make(3, -1, 0, 0, -1, 8)), "8 - (3 - i)");
  EXPECT_EQ(print(make(0, 1, 0, 4, -3, 0)), "-3 * (i mod 4)");
  EXPECT_EQ(print(make(1, 1, 0, 0, 1, -8)), "-8 + (1 + i)");
  EXPECT_EQ(print(make(1, 0, 0, 0, 0, 0)), "0 * (1)");
}

TEST(IndexText, EveryCombinationOfFieldsReadsBackTheSame) {
  for (std::int64_t base : {-5, 0, 1, 7})
    for (std::int64_t i : {-2, -1, 0, 1, 3})
      for (std::int64_t j : {-1, 0, 1, 5})
        for (std::int64_t modulus : {0, 1, 6})
          for (std::int64_t scale : {-2, -1, 0, 1, 4})
            for (std::int64_t offset : {-9, 0, 2}) {
              const Index index = make(base, i, j, modulus, scale, offset);
              const auto again = read(print(index));
              ASSERT_TRUE(again.ok()) << print(index) << ": " << again.error().message;
              ASSERT_EQ(*again, index) << print(index) << " became " << print(*again);
            }
}

TEST(IndexText, ReadsTermsInAnyOrderAndSpacing) {
  EXPECT_EQ(*read("i+3"), make(3, 1, 0, 0, 1, 0));
  EXPECT_EQ(*read("2 j - i - 4"), make(-4, -1, 2, 0, 1, 0));
  EXPECT_EQ(*read("(3)"), Index(3));
  EXPECT_EQ(*read("((3 - i) mod 4)"), make(3, -1, 0, 4, 1, 0));
}

TEST(IndexText, RefusesWhatIsNoIndex) {
  for (const char* text : {"",
                           "-",
                           "+1",
                           "1 + ",
                           "i + i",
                           "1 + 2",
                           "i * 2",
                           "2 * 3",
                           "i + (3)",
                           "(i) mod 0",
                           "(i) mod -1",
                           "3 - i mod 4",
                           "2 * (i) mod 4",
                           "8 + (i) mod 4",
                           "(i mod 4) mod 2",
                           "((i))",
                           "(((i) mod 2) mod 3)",
                           "(2 * (i))",
                           "(i",
                           "k",
                           "9223372036854775808",
                           "1 mod",
                           "(1 + (i) mod 2)"})
    EXPECT_FALSE(read(text).ok()) << text;
}

TEST(IndexText, SaysWhatAnIndexMayNotHave) {
  const auto says = [](std::string_view text) { return read(text).error().message; };
  EXPECT_EQ(says("i * (j mod 2)"),
            "plan text, line 1, column 3: a variable's multiple is written without '*': 2i");
  EXPECT_EQ(says("2 * 3"), "plan text, line 1, column 5: expected '(', found '3'");
  EXPECT_EQ(says("(2 * (i))"),
            "plan text, line 1, column 6: parentheses inside of parentheses belong to a mod");
  EXPECT_EQ(says("(1 + (i) mod 2)"),
            "plan text, line 1, column 6: parentheses inside of parentheses belong to a mod");
}

TEST(PlanText, EveryValidPlanReadsBackTheSame) {
  for (std::uint64_t seed = 0; seed < (test::is_sanitized ? 200 : 1500); ++seed) {
    const Plan plan = test::random_plan(seed);
    ASSERT_TRUE(check(plan, format_limits()).ok()) << check(plan, format_limits()).error().message;
    const std::string text = print(plan);
    const auto again = parse(text);
    ASSERT_TRUE(again.ok()) << "seed " << seed << ": " << again.error().message << "\n" << text;
    ASSERT_TRUE(*again == plan) << "seed " << seed << "\n" << text << "\nbecame\n" << print(*again);
  }
}

TEST(PlanText, PrintsOneRank) {
  const Plan plan = test::random_plan(1);
  const std::string all = print(plan);
  const std::string one = print(plan.header, plan.programs[0]);
  EXPECT_EQ(all.substr(0, one.size()), one);
}

TEST(PlanText, ReadsCommentsBlankLinesAndDefaults) {
  const auto plan = parse(
      "# made by hand\n\n\nplan p version 1   # a comment\r\n\ncollective broadcast ranks 2 root "
      "1\n"
      "\nrank 0\n  # nothing\n\nrank 1");
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->header.root, 1);
  EXPECT_EQ(plan->header.protocol, Protocol::simple);
  EXPECT_EQ(plan->header.chunks_per_block, 1);
  EXPECT_EQ(plan->header.max_bytes, 0U);
  EXPECT_EQ(plan->programs.size(), 2U);
}

TEST(PlanText, SaysWhereAndWhatWasExpected) {
  EXPECT_EQ(error_of(""),
            "plan text, line 1, column 1: expected 'plan', found the end of the text");
  EXPECT_EQ(error_of("plan p version 2\n"),
            "plan text, line 1, column 16: format version 2; this library reads version 1, so use "
            "a newer version of unisono");
  EXPECT_EQ(error_of("plan p version 1\ncollective all_reduc ranks 2\n"),
            "plan text, line 2, column 12: expected a collective (near: all_reduce, all_gather, "
            "all_to_all), found "
            "'all_reduc'");
  EXPECT_EQ(
      error_of("plan p version 1\nranks 2\nchannel 1\n"),
      "plan text, line 3, column 1: expected a field of the header (near: channels, chunks), found "
      "'channel'");
  EXPECT_EQ(error_of("plan p version 1\nranks 2 ranks 3\n"),
            "plan text, line 2, column 9: ranks is given twice");
  EXPECT_EQ(error_of("plan p version 1\nranks 2\nrank 0\n"),
            "plan text, line 3, column 1: expected the field 'collective' before, found 'rank'");
  EXPECT_EQ(error_of(with_body("snd input[0]")),
            "plan text, line 6, column 1: expected an operation (near: send, signal), found 'snd'");
  EXPECT_EQ(error_of(with_body("  copy input[0] output[0]")),
            "plan text, line 6, column 17: expected '->', found 'output'");
  EXPECT_EQ(error_of(with_body("send input[0] x4 x5")),
            "plan text, line 6, column 18: expected the end of the line, found 'x5'");
  EXPECT_EQ(error_of(with_body("send in[0]")),
            "plan text, line 6, column 6: expected a buffer (near: input), found 'in'");
  EXPECT_EQ(error_of(with_body("loop i < 2\nsend input[0]")),
            "plan text, line 8, column 1: expected a step or the 'end' of loop i, found 'rank'");
  EXPECT_EQ(error_of(with_body("loop j < 2\nend")),
            "plan text, line 6, column 6: expected 'i', found 'j'");
  EXPECT_EQ(error_of(with_body("end")),
            "plan text, line 6, column 1: expected a step, 'block' or 'rank', found 'end'");
  EXPECT_EQ(
      error_of(with_body("loop i < 1\nloop j < 1\nloop k < 1\n")),
      "plan text, line 8, column 1: a loop is nested inside 2 loops, which is the deepest allowed");
  EXPECT_EQ(error_of(with_body("send input[0] \xFF")),
            "plan text, line 6, column 15: expected the end of the line, found byte 255");
  EXPECT_EQ(error_of("plan p version 1\ncollective barrier ranks 2\nrank 1\n"),
            "plan text, line 3, column 1: rank 1 where rank 0 is expected; list ranks in order");
}

TEST(PlanText, SaysWhatBelongsWhereSomethingElseStands) {
  struct Case {
    std::string text, says;
  };
  const std::string head = "plan p version 1\ncollective all_reduce ranks 2\n";
  const std::vector<Case> cases{
      {"plan p version x\n", "line 1, column 16: expected the version of the format, found 'x'"},
      {"plan p version 1\ncollective 5\n", "line 2, column 12: expected a collective, found '5'"},
      {"plan p version 1\n5 ranks\n",
       "line 2, column 1: expected a field of the header or 'rank', found '5'"},
      {head + "in_place maybe\n", "line 3, column 10: expected yes or no, found 'maybe'"},
      {head + "rank 0\nblock 1 channel 0\n",
       "line 4, column 1: block 1 where block 0 is expected; list blocks in order"},
      {with_body("send 5[0]"), "line 6, column 6: expected a buffer, found '5'"},
      {with_body("send input[0] x4294967296"),
       "line 6, column 15: expected a count such as x4, found 'x4294967296'"},
      {with_body("send input[0] x4y"),
       "line 6, column 15: expected a count such as x4, found 'x4y'"},
      {head + "ranks_ 4294967296\n",
       "line 3, column 1: expected a field of the header (near: ranks, chunks), found 'ranks_'"},
      {head + "channels 2147483648\n",
       "line 3, column 10: 2147483648 as channels; it is at most 2147483647"}};
  for (const Case& one : cases) EXPECT_EQ(error_of(one.text), "plan text, " + one.says);
}

TEST(PlanText, NothingBehindItsEndIsRead) {
  const std::string text =
      "plan p version 1\ncollective all_reduce ranks 1\nchunks 8 # c\nrank 0\nblock 0 channel 0\n"
      "loop i < 4\ncopy input[2 + ((3 - i) mod 4)] -> output[i] x2\nend\n";
  test::PageEnd page(text.size());
  for (std::size_t size = 0; size <= text.size(); ++size)
    for (std::size_t begin = 0; begin <= size; begin += begin < 20 ? 1 : 20)
      (void)parse(page.hold(std::string_view(text).substr(begin, size - begin)));
  EXPECT_EQ(error_of(page.hold(text)), "no error");
}

TEST(PlanText, LimitsBytesAndSteps) {
  const std::string text = with_body("loop i < 2\nsend input[i]\nend\nsend input[2]");
  const auto bytes = text.size();
  EXPECT_EQ(error_of(text, {.max_bytes = bytes, .max_steps = 3}), "no error");
  EXPECT_EQ(error_of(text, {.max_bytes = bytes - 1}), "plan text of " + std::to_string(bytes) +
                                                          " bytes; at most " +
                                                          std::to_string(bytes - 1) + " are read");
  EXPECT_EQ(error_of(text, {.max_steps = 2}),
            "plan text, line 9, column 1: more than 2 steps and loops");
}

TEST(PlanText, ChecksWhatItHasRead) {
  EXPECT_EQ(error_of(with_body("send input[0]")), "no error");
  EXPECT_EQ(error_of(with_body("send input[8]")),
            "plan p, rank 0: thread block 0, step 0 (send): input[8] is outside of the buffer; it "
            "has 8 chunks, 0..7");
  EXPECT_NE(error_of(with_body("signal x4")), "no error");
  EXPECT_NE(error_of(with_body("send input[0] from 1")), "no error");
  EXPECT_NE(error_of(with_body("read_reduce input[0] -> output[0]")), "no error");
  EXPECT_EQ(error_of(with_body("read_reduce input[0] -> output[0] from 1")), "no error");
}

TEST(PlanText, HostileDepthAndLengthAreRefused) {
  EXPECT_NE(error_of(with_body("send input[" + std::string(100000, '('))), "no error");
  EXPECT_NE(
      error_of("plan " + std::string(1000, 'x') + " version 1\ncollective barrier ranks 1\nrank 0"),
      "no error");
  EXPECT_LT(error_of(with_body(std::string(100000, 'y'))).size(), 400U);
}

}  // namespace
}  // namespace unisono::plan
