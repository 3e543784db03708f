#include "support/folders.h"

namespace unisono::test {

// In this file alone: what else is compiled is the same in every checkout, and found by ccache.
std::string source_folder() { return UNISONO_SOURCE_DIR; }
std::string build_folder() { return UNISONO_BINARY_DIR; }

}  // namespace unisono::test
