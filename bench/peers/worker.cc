#include "worker.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <utility>

namespace unisono::peers {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::pair<const char*, Kind> kinds[] = {
    {"all_reduce", Kind::all_reduce},         {"all_gather", Kind::all_gather},
    {"reduce_scatter", Kind::reduce_scatter}, {"broadcast", Kind::broadcast},
    {"all_to_all", Kind::all_to_all},         {"send_recv", Kind::send_recv}};

// A driver that asks for more has gone wrong.
constexpr std::size_t max_count = std::size_t{1} << 32;
constexpr int max_repeats = 10000;
constexpr std::size_t max_line = 4096;

// Whole pages from the kernel, without advice about huge ones: what a program's large malloc gets.
class Pages {
 public:
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { release(); }

  bool resize(std::size_t count) {
    const std::size_t bytes = std::max(count * sizeof(float), std::size_t{1});
    if (bytes <= bytes_) return true;
    release();
    void* mapped =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return false;
    data_ = static_cast<float*>(mapped);
    bytes_ = bytes;
    return true;
  }
  float* data() const { return data_; }

 private:
  void release() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
  float* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class Channel {
 public:
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  std::string connect(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) return "the socket's path is too long: " + path;
    std::memcpy(address.sun_path, path.data(), path.size());
    descriptor_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor_ < 0 ||
        ::connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      return "cannot connect to " + path + ": " + std::strerror(errno);
    return {};
  }

  bool write_line(std::string line) {
    line += '\n';
    std::size_t done = 0;
    while (done < line.size()) {
      const ssize_t n = ::send(descriptor_, line.data() + done, line.size() - done, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      done += static_cast<std::size_t>(n);
    }
    return true;
  }

  // False at the end of the stream, or when a line is longer than any command.
  bool read_line(std::string& line) {
    for (;;) {
      if (const auto end = rest_.find('\n'); end != std::string::npos) {
        line = rest_.substr(0, end);
        rest_.erase(0, end + 1);
        return true;
      }
      if (rest_.size() > max_line) return false;
      char piece[512];
      const ssize_t n = ::read(descriptor_, piece, sizeof(piece));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      rest_.append(piece, static_cast<std::size_t>(n));
    }
  }

 private:
  int descriptor_ = -1;
  std::string rest_;
};

struct Command {
  Kind kind = Kind::all_reduce;
  std::size_t count = 0;
  bool in_place = false;
  int warm_up = 0, repeats = 0, calls = 0;
};

bool parse(const std::string& line, Command& command) {
  std::istringstream words(line);
  std::string verb, collective;
  if (!(words >> verb >> collective >> command.count >> command.in_place >> command.warm_up >>
        command.repeats >> command.calls) ||
      verb != "measure")
    return false;
  const auto* found = std::find_if(std::begin(kinds), std::end(kinds),
                                   [&](const auto& kind) { return collective == kind.first; });
  if (found == std::end(kinds)) return false;
  command.kind = found->second;
  return command.count > 0 && command.count <= max_count && command.warm_up >= 0 &&
         command.repeats > 0 && command.repeats <= max_repeats && command.calls > 0;
}

// Element `index` of rank 0's input; rank r's is larger by r. Whole numbers of 14 bits, so that
// sums over a thousand ranks are exact in any order, spread so that no two pieces are alike; every
// repeat has another salt below 64.
float input_value(std::size_t index, std::uint32_t salt) {
  const std::uint32_t spread = static_cast<std::uint32_t>(index) * 2654435761U >> 19;
  return static_cast<float>(static_cast<int>(spread + salt));
}

class Worker {
 public:
  Worker(Library& library, const Command& command, Pages& input, Pages& output)
      : library_(library),
        command_(command),
        ranks_(static_cast<std::size_t>(library.size())),
        own_(static_cast<std::size_t>(library.rank())),
        input_pages_(input),
        output_pages_(output) {}

  std::string measure(std::vector<double>& times_ns, std::size_t& wrong) {
    if (std::string why = place(); !why.empty()) return why;
    fill();
    if (std::string why = library_.barrier(); !why.empty()) return why;
    for (int i = 0; i < command_.warm_up; ++i) {
      if (std::string why = library_.run(operation_); !why.empty()) return why;
      if (i == 0) wrong += count_wrong();
    }
    for (int repeat = 0; repeat < command_.repeats; ++repeat) {
      fill();
      if (std::string why = library_.barrier(); !why.empty()) return why;
      const auto begin = Clock::now();
      for (int i = 0; i < command_.calls; ++i)
        if (std::string why = library_.run(operation_); !why.empty()) return why;
      const std::chrono::duration<double, std::nano> passed = Clock::now() - begin;
      const double trips = command_.kind == Kind::send_recv ? 2 : 1;
      times_ns.push_back(passed.count() / command_.calls / trips);
    }
    // A reduction in place goes on from its own results; there only the first call is checked.
    if (!reduces_in_place()) wrong += count_wrong();
    return library_.barrier();
  }

 private:
  std::size_t input_count() const {
    const bool blocks = command_.kind == Kind::reduce_scatter || command_.kind == Kind::all_to_all;
    return command_.count * (blocks ? ranks_ : 1);
  }
  std::size_t output_count() const {
    const bool blocks = command_.kind == Kind::all_gather || command_.kind == Kind::all_to_all;
    return command_.count * (blocks ? ranks_ : 1);
  }
  bool reduces_in_place() const { return command_.in_place && command_.kind == Kind::all_reduce; }

  std::string place() {
    if (!input_pages_.resize(std::max(input_count(), output_count())) ||
        !output_pages_.resize(output_count()))
      return "no memory for " + std::to_string(input_count()) + " elements";
    input_ = input_pages_.data();
    output_ = output_pages_.data();
    const bool whole = command_.kind == Kind::broadcast ||
                       (command_.in_place && command_.kind == Kind::all_reduce);
    if (whole) {
      output_ = input_;
    } else if (command_.in_place && command_.kind == Kind::all_gather) {
      output_ = input_pages_.data();
      input_ = output_ + own_ * command_.count;
    }
    const bool aliased = command_.in_place &&
                         (command_.kind == Kind::all_reduce || command_.kind == Kind::all_gather);
    operation_ = {command_.kind, command_.count, aliased, input_, output_};
    return {};
  }

  // Poisons the output, then writes new inputs; both are then in this processor's reach.
  void fill() {
    salt_ = (salt_ + 17) % 64;
    std::fill_n(output_, output_count(), -1.0F);
    if (command_.kind == Kind::broadcast && own_ != 0) return;
    const std::size_t count = input_count();
    for (std::size_t i = 0; i < count; ++i)
      input_[i] = input_value(i, salt_) + static_cast<float>(own_);
  }

  // A piece of the output must be `factor` times rank 0's input from `first` on, plus `more`.
  std::size_t wrong_in(std::size_t block, std::size_t first, std::size_t factor,
                       std::size_t more) const {
    const float* piece = output_ + block * command_.count;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < command_.count; ++i)
      wrong += piece[i] != static_cast<float>(factor) * input_value(first + i, salt_) +
                               static_cast<float>(more);
    return wrong;
  }

  std::size_t count_wrong() const {
    const std::size_t own_block = own_ * command_.count;
    const std::size_t sum_of_ranks = ranks_ * (ranks_ - 1) / 2;
    std::size_t wrong = 0;
    switch (command_.kind) {
      case Kind::all_reduce:
        return wrong_in(0, 0, ranks_, sum_of_ranks);
      case Kind::reduce_scatter:
        return wrong_in(0, own_block, ranks_, sum_of_ranks);
      case Kind::broadcast:
        return wrong_in(0, 0, 1, 0);
      case Kind::send_recv:
        return (own_ ^ 1) < ranks_ ? wrong_in(0, 0, 1, own_ ^ 1) : 0;
      case Kind::all_gather:
        for (std::size_t from = 0; from < ranks_; ++from) wrong += wrong_in(from, 0, 1, from);
        return wrong;
      case Kind::all_to_all:
        for (std::size_t from = 0; from < ranks_; ++from)
          wrong += wrong_in(from, own_block, 1, from);
        return wrong;
    }
    return wrong;
  }

  Library& library_;
  const Command& command_;
  std::size_t ranks_, own_;
  Pages& input_pages_;
  Pages& output_pages_;
  float* input_ = nullptr;
  float* output_ = nullptr;
  Operation operation_;
  std::uint32_t salt_ = 0;
};

}  // namespace

std::string serve(Library& library, const std::string& path) {
  Channel channel;
  if (std::string why = channel.connect(path); !why.empty()) return why;
  channel.write_line("hello " + std::to_string(library.rank()) + " " + library.describe());
  Pages input, output;
  for (std::string line; channel.read_line(line) && line != "quit";) {
    Command command;
    std::string why;
    std::vector<double> times_ns;
    std::size_t wrong = 0;
    if (parse(line, command))
      why = Worker(library, command, input, output).measure(times_ns, wrong);
    else
      why = "cannot read the command: " + line;
    if (!why.empty()) {
      std::replace(why.begin(), why.end(), '\n', ' ');
      channel.write_line("fail " + why);
      return why;
    }
    std::ostringstream answer;
    answer << "times " << wrong;
    for (const double time_ns : times_ns) answer << ' ' << time_ns;
    channel.write_line(answer.str());
  }
  return {};
}

}  // namespace unisono::peers
