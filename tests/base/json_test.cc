#include "base/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "support/page_end.h"

namespace unisono::json {
namespace {

std::string error_of(std::string_view text, const ReadLimits& limits = {}) {
  const auto value = parse(text, limits);
  if (value.ok()) return "no error";
  EXPECT_EQ(value.error().kind, ErrorKind::misuse);
  return value.error().message;
}

Value read(std::string_view text) {
  auto value = parse(text);
  EXPECT_TRUE(value.ok()) << text << ": " << (value.ok() ? "" : value.error().message);
  return value.ok() ? std::move(value).value() : Value();
}

TEST(JsonReader, ReadsEveryType) {
  const Value value = read(
      " {\"n\": null, \"t\": true, \"f\":false,\"i\":-12, \"d\": 2.5e3,\r\n\t\"s\": \"x\", \"a\": "
      "[1, []], "
      "\"o\": {}}\n");
  ASSERT_TRUE(value.is_object());
  EXPECT_EQ(value.find("n")->type(), Type::null);
  EXPECT_TRUE(value.find("t")->boolean());
  EXPECT_FALSE(value.find("f")->boolean());
  EXPECT_EQ(value.find("i")->integer(), -12);
  EXPECT_EQ(value.find("d")->number(), 2500.0);
  EXPECT_EQ(value.find("s")->string(), "x");
  EXPECT_EQ(value.find("a")->array().size(), 2U);
  EXPECT_TRUE(value.find("o")->object().empty());
  EXPECT_EQ(value.find("absent"), nullptr);
}

TEST(JsonReader, KeepsIntegersExactly) {
  for (std::int64_t integer :
       {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}, (std::int64_t{1} << 53) + 1,
        std::numeric_limits<std::int64_t>::max()}) {
    const Value value = read(std::to_string(integer));
    ASSERT_TRUE(value.is_integer());
    EXPECT_EQ(value.integer(), integer);
  }
  EXPECT_EQ(error_of("9223372036854775808"),
            "JSON, line 1, column 1: the integer 9223372036854775808 does not fit 64 bits");
  EXPECT_NE(error_of("1e999"), "no error");
}

TEST(JsonReader, DecodesEscapesAndSurrogatePairs) {
  EXPECT_EQ(read(R"("\"\\\/\b\f\n\r\t")").string(), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(read(R"("\u0041\u00e9\u20AC\ud83d\ude00")").string(), "A\u00e9\u20ac\U0001f600");
  EXPECT_EQ(read(R"("\u0000")").string(), std::string(1, '\0'));
  for (const char* text : {R"("\ud83d")", R"("\ude00")", R"("\ud83d\u0041")", R"("\ud83d\ue000")",
                           R"("\u12g4")", R"("\u12)", R"("\x41")", R"("\)"})
    EXPECT_NE(error_of(text), "no error") << text;
}

TEST(JsonReader, RefusesWhatIsNotUtf8) {
  EXPECT_EQ(read("\"\xF4\x8F\xBF\xBF\"").string(), "\xF4\x8F\xBF\xBF");
  for (const char* text :
       {"\"\x80\"", "\"\xC0\xAF\"", "\"\xE0\x80\x80\"", "\"\xED\xA0\x80\"", "\"\xF4\x90\x80\x80\"",
        "\"\xF8\x88\x80\x80\x80\"", "\"\xC3\"", "\"\xC3"})
    EXPECT_NE(error_of(text), "no error") << text;
}

TEST(JsonReader, RefusesWhatTheGrammarDoesNotHave) {
  for (const char* text :
       {"",    " ",   "{",   "[",   "[1,]",   "{\"a\":1,}", "{a:1}", "{\"a\" 1}",     "[1 2]",
        "1 2", "01",  "-",   "1.",  ".5",     "1e",         "+1",    "NaN",           "Infinity",
        "tru", "nul", "'a'", "\"a", "\"\n\"", "// c\n1",    "]",     "\xEF\xBB\xBF{}"})
    EXPECT_NE(error_of(text), "no error") << text;
}

TEST(JsonReader, SaysWhatWasExpectedInsteadOfWhatHalfFits) {
  EXPECT_EQ(error_of("trux"), "JSON, line 1, column 1: expected true, found 't'");
  EXPECT_EQ(error_of("[1.]"), "JSON, line 1, column 4: expected a digit, found ']'");
  EXPECT_EQ(error_of("[-e1]"), "JSON, line 1, column 3: expected a digit, found 'e'");
  EXPECT_EQ(error_of(R"("\u00zz")"),
            "JSON, line 1, column 4: expected four hexadecimal digits, found '0'");
}

TEST(JsonReader, NothingBehindItsEndIsRead) {
  const std::string text = R"({"a": [true, null, -1.5e3, "\u00e9\ud83d\ude00"]})";
  test::PageEnd page(text.size());
  for (std::size_t begin = 0; begin < text.size(); ++begin)
    for (std::size_t size = 0; begin + size <= text.size(); ++size) {
      const std::string_view part = page.hold(std::string_view(text).substr(begin, size));
      if (begin == 0) {
        EXPECT_EQ(parse(part).ok(), size == text.size()) << part;
      } else {
        (void)parse(part);
      }
    }
}

TEST(JsonReader, SaysLineAndColumnInCharacters) {
  EXPECT_EQ(error_of("{\n  \"\u00e9\u00e9\": x}"),
            "JSON, line 2, column 9: expected a value, found 'x'");
  EXPECT_EQ(error_of("[1, 2"),
            "JSON, line 1, column 6: expected ',' or ']', found the end of the text");
}

TEST(JsonReader, RefusesANameThatStandsTwice) {
  EXPECT_EQ(error_of("{\"a\": 1, \"b\": 2,\n \"\\u0061\": 3}"),
            "JSON, line 2, column 2: the name \"a\" occurs twice in one object");
}

TEST(JsonReader, BoundsDepthAndSize) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(error_of(nested(64)), "no error");
  EXPECT_EQ(error_of(nested(65)), "JSON, line 1, column 65: nested more than 64 deep");
  EXPECT_NE(error_of(std::string(1000000, '[')), "no error");
  EXPECT_EQ(error_of(R"({"a": {"b": {}}})", {.max_depth = 2}),
            "JSON, line 1, column 13: nested more than 2 deep");
  EXPECT_EQ(error_of("[1, 2]", {.max_values = 3}), "no error");
  EXPECT_EQ(error_of("[1, 2, 3]", {.max_values = 3}), "JSON, line 1, column 8: more than 3 values");
  EXPECT_EQ(error_of("[1, 2]", {.max_bytes = 5}), "JSON of 6 bytes; at most 5 are read");
}

TEST(JsonWriter, LaysOutLinesAndOneLineContainers) {
  std::string out;
  Writer writer(out);
  writer.begin_object().member("name", "a\"\\\n\x01").member("yes", true);
  writer.key("rows").begin_array();
  writer.begin_object(Writer::Layout::one_line).member("x", 1).key("y").begin_array();
  writer.value(2).value(2.5).null().end_array().end_object();
  writer.end_array().key("none").begin_array().end_array().end_object();
  EXPECT_EQ(out,
            "{\n"
            "  \"name\": \"a\\\"\\\\\\n\\u0001\",\n"
            "  \"yes\": true,\n"
            "  \"rows\": [\n"
            "    {\"x\": 1, \"y\": [2, 2.5, null]}\n"
            "  ],\n"
            "  \"none\": []\n"
            "}");
}

TEST(JsonWriter, WritesDoublesShortestAndKeepsThemDoubles) {
  EXPECT_EQ(write(Value(0.1)), "0.1");
  EXPECT_EQ(write(Value(3.0)), "3.0");
  EXPECT_EQ(write(Value(1e300)), "1e+300");
  EXPECT_EQ(write(Value(std::numeric_limits<double>::infinity())), "null");
  EXPECT_EQ(write(Value(std::numeric_limits<std::uint64_t>::max())), "18446744073709551616.0");
}

TEST(JsonWriter, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(write(Value("a\xFFz")), "\"a\xEF\xBF\xBDz\"");
}

class RandomValue {
 public:
  explicit RandomValue(unsigned seed) : random_(seed) {}

  Value make(int depth) {
    switch (random_() % (depth > 0 ? 7 : 5)) {
      case 0:
        return Value();
      case 1:
        return Value(random_() % 2 == 0);
      case 2:
        return Value(static_cast<std::int64_t>(random_()) >> (random_() % 64));
      case 3:
        return Value(number());
      case 4:
        return Value(text());
      case 5: {
        Array array;
        for (unsigned i = random_() % 5; i > 0; --i) array.push_back(make(depth - 1));
        return Value(std::move(array));
      }
      default: {
        Object object;
        for (unsigned i = random_() % 5; i > 0; --i)
          object.push_back({text() + std::to_string(i), make(depth - 1)});
        return Value(std::move(object));
      }
    }
  }

 private:
  double number() {
    while (true)
      if (const auto number = std::bit_cast<double>(random_()); std::isfinite(number))
        return number;
  }

  std::string text() {
    const std::vector<std::string> pieces{"a",    "\"",     "\\",         "\n",
                                          "\x01", "\u00e9", "\U0001f600", "\x7f"};
    std::string out;
    for (unsigned i = random_() % 6; i > 0; --i) out += pieces[random_() % pieces.size()];
    return out;
  }

  std::mt19937_64 random_;
};

TEST(JsonWriter, WhatIsWrittenReadsBackTheSame) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    const Value value = RandomValue(seed).make(4);
    for (auto layout : {Writer::Layout::one_line, Writer::Layout::lines}) {
      const std::string text = write(value, layout);
      const auto again = parse(text);
      ASSERT_TRUE(again.ok()) << again.error().message << "\n" << text;
      ASSERT_EQ(*again, value) << text;
    }
  }
}

struct Row {
  int rank = -1;
  std::uint64_t bytes = 7;
  double time = 0;
  std::string note = "none";
  bool done = false;
};

Status read_row(const Value& value, Row& row) {
  ObjectReader in(value, "rows[3]");
  in.required("rank", row.rank, 0, 9);
  in.optional("bytes", row.bytes);
  in.required("time", row.time);
  in.optional("note", row.note);
  in.optional("done", row.done);
  return in.finish();
}

std::string row_error(std::string_view text) {
  Row row;
  const Status status = read_row(read(text), row);
  return status.ok() ? "no error" : status.error().message;
}

TEST(JsonObjectReader, TakesAnObjectApart) {
  Row row;
  ASSERT_TRUE(read_row(read(R"({"time": 2, "done": true, "rank": 9})"), row).ok());
  EXPECT_EQ(row.rank, 9);
  EXPECT_EQ(row.bytes, 7U);
  EXPECT_EQ(row.time, 2.0);
  EXPECT_EQ(row.note, "none");
  EXPECT_TRUE(row.done);
}

TEST(JsonObjectReader, NamesThePlaceAndWhatWouldBeRight) {
  EXPECT_EQ(row_error("[]"), "rows[3]: expected an object, found an array");
  EXPECT_EQ(row_error(R"({"rank": 1})"), "rows[3].time: is missing");
  EXPECT_EQ(row_error(R"({"rank": 10, "time": 1})"),
            "rows[3].rank: 10 is out of range; it must be 0 to 9");
  EXPECT_EQ(row_error(R"({"rank": "1", "time": 1})"),
            "rows[3].rank: expected an integer, found a string");
  EXPECT_EQ(row_error(R"({"rank": 1, "time": "1"})"),
            "rows[3].time: expected a number, found a string");
  EXPECT_EQ(row_error(R"({"rank": 1, "time": 1, "note": 1})"),
            "rows[3].note: expected a string, found an integer");
  EXPECT_EQ(row_error(R"({"rank": 1, "time": 1, "bytes": -1})"),
            "rows[3].bytes: -1 is out of range; it must be 0 to 9223372036854775807");
  EXPECT_EQ(row_error(R"({"rank": 1, "time": 1, "tiem": 1})"),
            "rows[3].tiem: is not known; did you mean time?");
}

}  // namespace
}  // namespace unisono::json
