// docs/reference/algorithms.md lists what the registry has, and its formulas give the costs stated
// there.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "algorithm/algorithm.h"
#include "base/str.h"
#include "support/folders.h"

namespace unisono::algorithm {
namespace {

// Sums and products of numbers, names and log2 or log4 of one of them: "2 n (p - 1) / p". What
// stands beside each other is multiplied, from left to right.
class Formula {
 public:
  Formula(std::string_view text, const std::map<std::string, double>& names)
      : text_(text), names_(names) {}

  double value() {
    const double result = sum();
    EXPECT_EQ(peek(), 0) << "'" << text_ << "' from " << at_;
    return result;
  }

 private:
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : 0;
  }
  bool take(char wanted) {
    const bool found = peek() == wanted;
    at_ += found ? 1 : 0;
    return found;
  }
  double sum() {
    double result = product();
    while (peek() == '+' || peek() == '-') result += take('+') ? product() : (++at_, -product());
    return result;
  }
  double product() {
    double result = factor();
    while (peek() == '/' || peek() == '(' || std::isalnum(static_cast<unsigned char>(peek())))
      result = take('/') ? result / factor() : result * factor();
    return result;
  }
  double factor() {
    if (take('(')) {
      const double result = sum();
      EXPECT_TRUE(take(')')) << text_;
      return result;
    }
    std::string word;
    while (peek() != 0 && std::isalnum(static_cast<unsigned char>(text_[at_]))) {
      word += text_[at_++];
      if (at_ == text_.size() || text_[at_] == ' ') break;
    }
    if (word == "log2") return std::log2(factor());
    if (word == "log4") return std::log2(factor()) / 2;
    if (names_.contains(word)) return names_.at(word);
    EXPECT_FALSE(word.empty() || !std::isdigit(static_cast<unsigned char>(word[0])))
        << "'" << word << "' in '" << text_ << "'";
    return std::atof(word.c_str());
  }

  std::string_view text_;
  const std::map<std::string, double>& names_;
  std::size_t at_ = 0;
};

struct Row {
  std::string name, collective, steps, bytes_sent, needs, source;
};

std::vector<Row> rows_of_the_page() {
  std::ifstream page(test::source_folder() + "/docs/reference/algorithms.md");
  std::vector<Row> rows;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `")) continue;
    std::vector<std::string> cells;
    for (std::size_t from = 2, to; (to = line.find(" |", from)) != std::string::npos; from = to + 3)
      cells.push_back(line.substr(from, to - from));
    EXPECT_EQ(cells.size(), 6U) << line;
    if (cells.size() == 6)
      rows.push_back({cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]});
  }
  return rows;
}

void expect_formula(std::string_view text, const std::map<std::string, double>& names,
                    double stated) {
  constexpr std::string_view at_most = "≤ ";
  if (text.starts_with(at_most))
    EXPECT_GE(Formula(text.substr(at_most.size()), names).value(), stated) << text;
  else
    EXPECT_DOUBLE_EQ(Formula(text, names).value(), stated) << text;
}

TEST(AlgorithmsPage, ListsTheRegistry) {
  const std::vector<Row> rows = rows_of_the_page();
  ASSERT_EQ(rows.size(), entries().size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Entry& entry = entries()[i];
    EXPECT_EQ(rows[i].name, str("`", entry.name, "`"));
    EXPECT_EQ(rows[i].collective, name(entry.collective)) << rows[i].name;
    EXPECT_EQ(rows[i].needs, entry.constraint) << rows[i].name;
    EXPECT_EQ(rows[i].source, entry.source) << rows[i].name;
  }
}

TEST(AlgorithmsPage, ItsFormulasGiveTheStatedCosts) {
  const std::vector<Row> rows = rows_of_the_page();
  ASSERT_EQ(rows.size(), entries().size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const auto& [nodes, ranks_each] : {std::pair{1, 4}, {1, 64}, {4, 4}, {4, 16}, {16, 4}}) {
      const Entry& entry = entries()[i];
      SCOPED_TRACE(str(entry.plan_name(), ", ", nodes, " nodes of ", ranks_each));
      const Request request{.collective = entry.collective,
                            .placement = topo::Placement::uniform(nodes, ranks_each)};
      const double bytes = 4096;
      const std::map<std::string, double> names{
          {"p", nodes * ranks_each}, {"N", nodes}, {"M", ranks_each}, {"n", bytes}, {"b", bytes}};
      const Cost stated = entry.cost(request, bytes);
      expect_formula(rows[i].steps, names, static_cast<double>(stated.steps));
      if (entry.collective != Collective::barrier)
        expect_formula(rows[i].bytes_sent, names, stated.bytes_sent);
    }
}

}  // namespace
}  // namespace unisono::algorithm
