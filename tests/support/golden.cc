#include "support/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "support/folders.h"

namespace unisono::test {
namespace {

std::string path_of(std::string_view name) {
  return source_folder() + "/tests/golden/" + std::string(name);
}

bool is_updating() {
  const char* value = std::getenv("UNISONO_UPDATE_GOLDEN");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace

std::string read_golden(std::string_view name) {
  std::ifstream file(path_of(name), std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path_of(name)
                              << " cannot be read; UNISONO_UPDATE_GOLDEN=1 writes it";
  return {std::istreambuf_iterator<char>(file), {}};
}

void expect_golden(std::string_view name, std::string_view text) {
  if (is_updating()) {
    std::ofstream file(path_of(name), std::ios::binary);
    file << text;
    ASSERT_TRUE(file.good()) << path_of(name) << " cannot be written";
  }
  EXPECT_EQ(read_golden(name), text) << "if the change is meant, run with UNISONO_UPDATE_GOLDEN=1";
}

}  // namespace unisono::test
