#include "support/machine_files.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/str.h"

namespace unisono::topo::test {
namespace {

namespace fs = std::filesystem;

struct Level {
  std::size_t indent = 0;
  fs::path folder;
  int node = -1;
};

}  // namespace

MachineFiles::MachineFiles(std::string_view description) {
  std::string pattern = fs::temp_directory_path() / "unisono-machine-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  root_ = pattern;
  std::vector<Level> above;
  std::istringstream lines{std::string(description)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t indent = line.find_first_not_of(' ');
    if (indent == std::string::npos) continue;
    std::istringstream words(line);
    std::string first;
    std::string second;
    words >> first >> second;
    if (first == "node") {
      std::string processors;
      words >> processors;
      write(fs::path("devices/system/node") / (first + second) / "cpulist", processors + "\n");
      continue;
    }
    while (!above.empty() && above.back().indent >= indent) above.pop_back();
    Level level{indent, (above.empty() ? fs::path("devices") : above.back().folder) / first,
                above.empty() ? -1 : above.back().node};
    if (first == "device") level.folder = fs::path("devices") / second;
    if (first.starts_with("pci")) {
      words >> level.node;
    } else {
      add_device(level.folder, line.substr(indent), level.node);
    }
    above.push_back(level);
  }
}

MachineFiles::~MachineFiles() { fs::remove_all(root_); }

void MachineFiles::write(const fs::path& path, std::string_view text) const {
  fs::create_directories((root_ / path).parent_path());
  std::ofstream(root_ / path) << text;
}

void MachineFiles::link(const fs::path& path, const fs::path& target) const {
  fs::create_directories((root_ / path).parent_path());
  fs::create_symlink(target, root_ / path);
}

void MachineFiles::add_device(const fs::path& folder, std::string_view line, int node) const {
  std::istringstream words{std::string(line)};
  std::string address;
  words >> address;
  const bool is_pci = address != "device";
  std::string kind = "0x060400";
  std::string vendor = "0x1000";
  std::string interface;
  std::string rdma;
  std::string physical;
  std::string numa = str(node);
  int gbit = 0;
  bool is_up = true;
  for (std::string word; words >> word;) {
    if (word == "gpu") {
      kind = "0x030200";
      vendor = "0x10de";
    } else if (word == "net") {
      words >> interface;
      kind = "0x020000";
    } else if (word == "rdma") {
      words >> rdma;
      kind = "0x020700";
    } else if (word == "gbit") {
      words >> gbit;
    } else if (word == "down") {
      is_up = false;
    } else if (word == "of") {
      words >> physical;
    } else if (word == "class") {
      words >> kind;
    } else if (word == "numa") {
      words >> numa;
    }
  }
  if (is_pci) {
    write(folder / "class", kind + "\n");
    write(folder / "vendor", vendor + "\n");
    write(folder / "numa_node", numa + "\n");
    link(fs::path("bus/pci/devices") / address, root_ / folder);
  }
  if (!physical.empty()) link(folder / "physfn", fs::path("../" + physical));
  if (!interface.empty()) {
    const fs::path files = folder / "net" / interface;
    write(files / "operstate", is_up ? "up\n" : "down\n");
    write(files / "speed", str(gbit > 0 ? gbit * 1000 : -1, "\n"));
    link(fs::path("class/net") / interface, root_ / files);
  }
  if (!rdma.empty()) {
    const fs::path files = folder / "infiniband" / rdma;
    write(files / "ports/1/state", is_up ? "4: ACTIVE\n" : "1: DOWN\n");
    write(files / "ports/1/rate", str(gbit, " Gb/sec (4X HDR)\n"));
    link(fs::path("class/infiniband") / rdma, root_ / files);
  }
}

}  // namespace unisono::topo::test
