#include <algorithm>
#include <utility>

#include "base/str.h"
#include "plan/text.h"

namespace unisono::plan {
namespace {

// Operands start here, behind the longest operation in one loop.
constexpr std::size_t operand_column = 29;

std::string magnitude(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  return str(value < 0 ? std::uint64_t{0} - bits : bits);
}

// Appends " + term" or " - term", the first one without a plus.
void append_term(std::string& out, std::int64_t factor, std::string_view term) {
  if (out.empty())
    append(out, factor < 0 ? "-" : "");
  else
    append(out, factor < 0 ? " - " : " + ");
  append(out, term);
}

int linear_terms(const Index& index) {
  int terms = index.base != 0 ? 1 : 0;
  for (std::int64_t coefficient : index.coefficient) terms += coefficient != 0 ? 1 : 0;
  return terms;
}

std::string print_linear(const Index& index) {
  std::string out;
  if (index.base != 0 || linear_terms(index) == 0)
    append_term(out, index.base, magnitude(index.base));
  for (std::size_t d = 0; d < loop_variables.size(); ++d) {
    const std::int64_t factor = index.coefficient[d];
    if (factor == 0) continue;
    const std::string times = factor == 1 || factor == -1 ? std::string() : magnitude(factor);
    append_term(out, factor, str(times, loop_variables[d]));
  }
  return out;
}

std::string print_residue(const Index& index) {
  std::string linear = print_linear(index);
  if (index.modulus == 0) return linear;
  const bool is_bare = linear_terms(index) <= 1 && linear.front() != '-';
  return str(is_bare ? linear : str("(", linear, ")"), " mod ", index.modulus);
}

class Printer {
 public:
  void header(const Header& it) {
    line(str("plan ", it.name, " version ", format_version));
    std::string collective = str("collective ", name(it.collective), " ranks ", it.ranks);
    if (has_root(it.collective)) append(collective, str(" root ", it.root));
    line(collective);
    line(str("protocol ", name(it.protocol), " channels ", it.channels, " in_place ",
             it.in_place ? "yes" : "no"));
    line(str("chunks ", it.chunks_per_block, " input_blocks ", it.input_blocks, " output_blocks ",
             it.output_blocks));
    line(str("bytes ", it.min_bytes, "..", it.max_bytes == 0 ? std::string() : str(it.max_bytes)));
  }

  void program(const RankProgram& it) {
    line("");
    line(it.scratch_blocks == 0 ? str("rank ", it.rank)
                                : str("rank ", it.rank, " scratch ", it.scratch_blocks));
    indent_ += 2;
    for (std::size_t i = 0; i < it.thread_blocks.size(); ++i) block(i, it.thread_blocks[i]);
    indent_ -= 2;
  }

  std::string take() { return std::move(out_); }

 private:
  void line(std::string_view text) {
    if (!text.empty()) out_.append(indent_, ' ');
    append(out_, text);
    out_.push_back('\n');
  }

  void block(std::size_t number, const ThreadBlock& it) {
    std::string text = str("block ", number, " channel ", it.channel);
    if (it.send_peer >= 0) append(text, str(" send ", it.send_peer));
    if (it.recv_peer >= 0) append(text, str(" recv ", it.recv_peer));
    line(text);
    indent_ += 2;
    body(it.body, 0);
    indent_ -= 2;
  }

  void body(const Body& nodes, std::size_t depth) {
    for (const Node& node : nodes) {
      if (const Step* it = std::get_if<Step>(&node)) {
        step(*it);
        continue;
      }
      const Loop& loop = std::get<Loop>(node);
      line(str("loop ", loop_variables[depth], " < ", loop.count));
      indent_ += 2;
      body(loop.body, depth + 1);
      indent_ -= 2;
      line("end");
    }
  }

  void step(const Step& it);

  std::string out_;
  std::size_t indent_ = 0;
};

std::string operands(const Step& step) {
  std::string out;
  const auto add = [&](const std::string& part, std::string_view before) {
    if (!out.empty()) append(out, before);
    append(out, part);
  };
  if (reads_source(step.operation)) add(print(step.source), "");
  if (writes_destination(step.operation)) add(str("-> ", print(step.destination)), " ");
  if (step.count != 1) add(str("x", step.count), " ");
  if (!step.peers.empty()) add(str("from ", join(step.peers)), " ");
  for (std::size_t i = 0; i < step.after.size(); ++i) {
    const Dependency& it = step.after[i];
    const std::string steps = str(it.thread_block, ":", print(it.steps));
    add(i == 0 ? str("after ", steps) : steps, i == 0 ? "  " : ", ");
  }
  return out;
}

void Printer::step(const Step& it) {
  std::string text(name(it.operation));
  const std::string rest = operands(it);
  if (!rest.empty()) {
    const std::size_t width = operand_column - std::min(operand_column, indent_);
    text.append(width > text.size() + 2 ? width - text.size() : 2, ' ');
  }
  line(text + rest);
}

}  // namespace

std::string print(const Index& index) {
  std::string residue = print_residue(index);
  if (index.offset == 0 && index.scale == 1) return residue;
  std::string out;
  if (index.offset != 0) append_term(out, index.offset, magnitude(index.offset));
  const bool is_unit = index.scale == 1 || index.scale == -1;
  append_term(out, index.scale, is_unit ? "" : str(magnitude(index.scale), " * "));
  return str(out, "(", residue, ")");
}

std::string print(const Location& location) {
  return str(name(location.buffer), "[", print(location.index), "]");
}

std::string print(const Step& step) {
  const std::string rest = operands(step);
  return rest.empty() ? std::string(name(step.operation)) : str(name(step.operation), "  ", rest);
}

std::string print(const Header& header, const RankProgram& program) {
  Printer printer;
  printer.header(header);
  printer.program(program);
  return printer.take();
}

std::string print(const Plan& plan) {
  Printer printer;
  printer.header(plan.header);
  for (const RankProgram& program : plan.programs) printer.program(program);
  return printer.take();
}

}  // namespace unisono::plan
