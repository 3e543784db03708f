// Memory that ends where a page does, with nothing readable behind: one byte read too far ends the
// test, with or without a sanitizer.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace unisono::test {

class PageEnd {
 public:
  // Room for up to `most` bytes.
  explicit PageEnd(std::size_t most) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = (most + page - 1) / page * page;
    void* mapped =
        mmap(nullptr, bytes_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begin_ = mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
    mapped_bytes_ = bytes_ + page;
    if (begin_ != nullptr) mprotect(begin_ + bytes_, page, PROT_NONE);
  }
  ~PageEnd() {
    if (begin_ != nullptr) munmap(begin_, mapped_bytes_);
  }
  PageEnd(const PageEnd&) = delete;
  PageEnd& operator=(const PageEnd&) = delete;

  // A copy of `text`, at most as long as there is room, whose end is the page's. Until the next.
  std::string_view hold(std::string_view text) {
    char* const to = begin_ + bytes_ - text.size();
    std::memcpy(to, text.data(), text.size());
    return {to, text.size()};
  }

 private:
  char* begin_;
  std::size_t bytes_;
  std::size_t mapped_bytes_;
};

}  // namespace unisono::test
