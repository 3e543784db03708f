// Trees of device files as the kernel shows them (sysfs), made from short descriptions of machines.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace unisono::topo::test {

/// A folder that stands for /sys, with what a description says; removed at the end.
///
/// A line is a NUMA node, a host bridge, or a device; what is indented under another line is
/// behind it:
///
///     node 0 0-15
///     pci0000:00 node 0
///       0000:00:01.0
///         0000:01:00.0 gpu
///         0000:02:00.0 net eth0 rdma mlx5_0 gbit 200
///
/// Words of a device: gpu; net NAME and rdma NAME; gbit N; down; of ADDRESS, the physical function
/// of a virtual one; class 0xCCSSPP and numa N in place of what the others imply. A line
/// "device NAME net NAME" is one that has no PCI address.
class MachineFiles {
 public:
  explicit MachineFiles(std::string_view description);
  ~MachineFiles();
  MachineFiles(const MachineFiles&) = delete;
  MachineFiles& operator=(const MachineFiles&) = delete;

  const std::filesystem::path& root() const { return root_; }
  /// Writes a file, with the folders above it, in place of what is there.
  void write(const std::filesystem::path& path, std::string_view text) const;
  void link(const std::filesystem::path& path, const std::filesystem::path& target) const;

 private:
  void add_device(const std::filesystem::path& folder, std::string_view line, int node) const;

  std::filesystem::path root_;
};

}  // namespace unisono::topo::test
