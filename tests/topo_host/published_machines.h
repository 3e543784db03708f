// Machines as public sources describe them. Each says what its source says of places and names;
// addresses of bridges and names of cards that a source does not give are made up.
#pragma once

#include <string_view>

namespace unisono::topo::test {

struct PublishedMachine {
  std::string_view name;
  std::string_view source;
  std::string_view description;
  // A line for each GPU and NUMA node: the nearest level and the cards in order.
  std::string_view expected;
};

inline constexpr PublishedMachine published_machines[] = {
    {"DgxA100",
     "rapidsai/ucx-py#749 (nvidia-smi topo -m) and NVIDIA/nccl#1505 (addresses, NUMA nodes)",
     R"(
node 0 0-15
node 1 16-31
node 3 48-63
node 5 80-95
node 7 112-127
pci0000:60 node 0
  0000:60:03.1
    0000:61:00.0 rdma mlx5_4 net ibp97s0f0 gbit 200
    0000:61:00.1 rdma mlx5_5 net ibp97s0f1 gbit 100 down
pci0000:00 node 3
  0000:00:01.1
    0000:01:00.0
      0000:02:00.0
        0000:03:00.0
          0000:04:00.0
            0000:05:00.0
              0000:06:00.0
                0000:07:00.0 gpu
      0000:02:08.0
        0000:0a:00.0
          0000:0b:00.0
            0000:0c:00.0 rdma mlx5_0 gbit 200
          0000:0b:01.0
            0000:0d:00.0
              0000:0e:00.0
                0000:0f:00.0 gpu
      0000:02:10.0
        0000:10:00.0
          0000:11:00.0
            0000:12:00.0 rdma mlx5_1 gbit 200
pci0000:40 node 1
  0000:40:01.1
    0000:41:00.0
      0000:42:00.0
        0000:45:00.0
          0000:46:00.0
            0000:47:00.0 gpu
      0000:42:04.0
        0000:49:00.0
          0000:4a:00.0
            0000:4b:00.0 rdma mlx5_2 gbit 200
          0000:4a:01.0
            0000:4c:00.0
              0000:4d:00.0
                0000:4e:00.0 gpu
      0000:42:08.0
        0000:52:00.0
          0000:53:00.0
            0000:54:00.0 rdma mlx5_3 gbit 200
)",
     R"(GPU 0000:07:00.0: PXB mlx5_0
GPU 0000:0f:00.0: PXB mlx5_1
GPU 0000:47:00.0: PXB mlx5_2
GPU 0000:4e:00.0: PXB mlx5_3
NUMA node 0: NODE mlx5_4
NUMA node 1: NODE mlx5_2 mlx5_3
NUMA node 3: NODE mlx5_0 mlx5_1
NUMA node 5: SYS mlx5_0
NUMA node 7: SYS mlx5_1
)"},
    {"DgxH100", "NVIDIA DGX H100 user guide, table 6 (cards of GPUs), and bytedance/flux#14 (PXB)",
     R"(
node 0 0-55,112-167
node 1 56-111,168-223
pci0000:15 node 0
  0000:15:01.0
    0000:16:00.0
      0000:17:00.0
        0000:18:00.0 rdma mlx5_0 net ibp24s0 gbit 400
      0000:17:02.0
        0000:19:00.0
          0000:1a:00.0
            0000:1b:00.0 gpu
pci0000:28 node 0
  0000:28:01.0
    0000:29:00.0 rdma mlx5_1 net ibp41s0f0 gbit 400 down
    0000:29:00.1 rdma mlx5_2 net ibp41s0f1 gbit 400 down
pci0000:3d node 0
  0000:3d:01.0
    0000:3e:00.0
      0000:3f:00.0
        0000:40:00.0 rdma mlx5_3 net ibp64s0 gbit 400
      0000:3f:02.0
        0000:41:00.0
          0000:42:00.0
            0000:43:00.0 gpu
pci0000:4c node 0
  0000:4c:01.0
    0000:4d:00.0
      0000:4e:00.0
        0000:4f:00.0 rdma mlx5_4 net ibp79s0 gbit 400
      0000:4e:02.0
        0000:50:00.0
          0000:51:00.0
            0000:52:00.0 gpu
pci0000:97 node 1
  0000:97:01.0
    0000:98:00.0
      0000:99:00.0
        0000:9a:00.0 rdma mlx5_6 net ibp154s0 gbit 400
      0000:99:02.0
        0000:9b:00.0
          0000:9c:00.0
            0000:9d:00.0 gpu
)",
     R"(GPU 0000:1b:00.0: PXB mlx5_0
GPU 0000:43:00.0: PXB mlx5_3
GPU 0000:52:00.0: PXB mlx5_4
GPU 0000:9d:00.0: PXB mlx5_6
NUMA node 0: NODE mlx5_0 mlx5_3 mlx5_4
NUMA node 1: NODE mlx5_6
)"},
    {"AzureNdV4", "Azure/azhpc-images topology/ndv4-topo.xml at 8e9d055",
     R"(
node 0 0-23
node 1 24-47
node 2 48-71
node 3 72-95
pciffff:f0 node 0
  ffff:ff:01.0
    0003:00:00.0 gpu
    0103:00:00.0 rdma ib3 gbit 200
    0004:00:00.0 gpu
    0104:00:00.0 rdma ib4 gbit 200
pciffff:f1 node 1
  ffff:ff:02.0
    0001:00:00.0 gpu
    0101:00:00.0 rdma ib1 gbit 200
    0002:00:00.0 gpu
    0102:00:00.0 rdma ib2 gbit 200
pciffff:f2 node 2
  ffff:ff:03.0
    000d:00:00.0 gpu
    0107:00:00.0 rdma ib7 gbit 200
    000e:00:00.0 gpu
    0108:00:00.0 rdma ib8 gbit 200
pciffff:f3 node 3
  ffff:ff:04.0
    000b:00:00.0 gpu
    0105:00:00.0 rdma ib5 gbit 200
    000c:00:00.0 gpu
    0106:00:00.0 rdma ib6 gbit 200
)",
     R"(GPU 0001:00:00.0: PIX ib1
GPU 0002:00:00.0: PIX ib2
GPU 0003:00:00.0: PIX ib3
GPU 0004:00:00.0: PIX ib4
GPU 000b:00:00.0: PIX ib5
GPU 000c:00:00.0: PIX ib6
GPU 000d:00:00.0: PIX ib7
GPU 000e:00:00.0: PIX ib8
NUMA node 0: NODE ib3 ib4
NUMA node 1: NODE ib1 ib2
NUMA node 2: NODE ib7 ib8
NUMA node 3: NODE ib5 ib6
)"},
    {"AwsP4d", "aws/aws-ofi-nccl topology/p4d-24xl-topo.xml at 2daf7d3",
     R"(
node 0 0-23,48-71
node 1 24-47,72-95
pciffff:f0 node 0
  ffff:ff:01.0
    0000:10:1c.0 gpu
    0000:10:1d.0 gpu
    0000:10:1b.0 rdma rdmap16s27 gbit 100 class 0x020000
  ffff:ff:02.0
    0000:20:1c.0 gpu
    0000:20:1d.0 gpu
    0000:20:1b.0 rdma rdmap32s27 gbit 100 class 0x020000
pciffff:f1 node 1
  ffff:ff:03.0
    0000:90:1c.0 gpu
    0000:90:1d.0 gpu
    0000:90:1b.0 rdma rdmap144s27 gbit 100 class 0x020000
  ffff:ff:04.0
    0000:a0:1c.0 gpu
    0000:a0:1d.0 gpu
    0000:a0:1b.0 rdma rdmap160s27 gbit 100 class 0x020000
)",
     R"(GPU 0000:10:1c.0: PIX rdmap16s27
GPU 0000:10:1d.0: PIX rdmap16s27
GPU 0000:20:1c.0: PIX rdmap32s27
GPU 0000:20:1d.0: PIX rdmap32s27
GPU 0000:90:1c.0: PIX rdmap144s27
GPU 0000:90:1d.0: PIX rdmap144s27
GPU 0000:a0:1c.0: PIX rdmap160s27
GPU 0000:a0:1d.0: PIX rdmap160s27
NUMA node 0: NODE rdmap16s27 rdmap32s27
NUMA node 1: NODE rdmap144s27 rdmap160s27
)"},
    {"GoogleA3High",
     "NVIDIA/JAX-Toolbox#716: each of four cards is on a bridge with two GPUs, the first with "
     "disks",
     R"(
node 0 0-51,104-155
node 1 52-103,156-207
pci0000:00 node 0
  0000:00:0c.0 net enp0s12
  0000:00:01.0
    0000:04:00.0 gpu
    0000:05:00.0 gpu
    0000:06:00.0 net enp6s0
  0000:00:02.0
    0000:0a:00.0 gpu
    0000:0b:00.0 gpu
    0000:0c:00.0 net enp12s0
pci0000:80 node 1
  0000:80:01.0
    0000:84:00.0 gpu
    0000:85:00.0 gpu
    0000:86:00.0 net enp134s0
  0000:80:02.0
    0000:8a:00.0 gpu
    0000:8b:00.0 gpu
    0000:8c:00.0 net enp140s0
)",
     R"(GPU 0000:04:00.0: PIX enp6s0
GPU 0000:05:00.0: PIX enp6s0
GPU 0000:0a:00.0: PIX enp12s0
GPU 0000:0b:00.0: PIX enp12s0
GPU 0000:84:00.0: PIX enp134s0
GPU 0000:85:00.0: PIX enp134s0
GPU 0000:8a:00.0: PIX enp140s0
GPU 0000:8b:00.0: PIX enp140s0
NUMA node 0: NODE enp0s12 enp6s0 enp12s0
NUMA node 1: NODE enp134s0 enp140s0
)"},
};

}  // namespace unisono::topo::test
