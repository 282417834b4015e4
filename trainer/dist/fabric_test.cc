#include "trainer/dist/fabric.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

namespace imgd::trainer {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A machine's files below a folder.
struct Machine : testing::Test {
  ~Machine() override { fs::remove_all(root); }
  void AddDevice(const std::string& name, const std::string& driver) {
    const auto device = root / "sys/class/infiniband" / name / "device";
    fs::create_directories(device);
    fs::create_symlink(fs::path("/sys/bus/pci/drivers") / driver, device / "driver");
  }
  fs::path AddFile(const fs::path& path) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << "x";
    return root / path;
  }
  fs::path root = fs::path(testing::TempDir()) / fmt::format("imgd_fabric_test_{}", ::getpid());
};

TEST_F(Machine, WithoutRdmaHasNoFastFabric) {
  const auto fabric = FindFabric(root, "");
  EXPECT_FALSE(fabric.fast());
  EXPECT_EQ(fabric.ToString(), "no RDMA devices");
  EXPECT_TRUE(CheckFabric(fabric, {"Socket"}));
}

TEST_F(Machine, EfaIsToldFromInfiniband) {
  AddDevice("mlx5_1", "mlx5_core");
  AddDevice("mlx5_0", "mlx5_core");
  auto fabric = FindFabric(root, "");
  EXPECT_THAT(fabric.devices, ElementsAre("mlx5_0", "mlx5_1"));
  EXPECT_FALSE(fabric.efa);
  AddDevice("rdmap16s27", "efa");
  fabric = FindFabric(root, "");
  EXPECT_TRUE(fabric.efa);
  EXPECT_EQ(fabric.ToString(), "3 RDMA devices (mlx5_0, mlx5_1, rdmap16s27), EFA");
}

TEST_F(Machine, ThePluginIsFoundWhereTheLinkerLooksFirst) {
  EXPECT_EQ(FindFabric(root, "").plugin, "");
  const auto installed = AddFile("opt/amazon/ofi-nccl/lib/libnccl-net.so");
  EXPECT_EQ(FindFabric(root, "/nowhere:").plugin, installed);
  const auto own = AddFile("home/lib/libnccl-net.so");
  EXPECT_EQ(FindFabric(root, "/nowhere:" + own.parent_path().native()).plugin, own);
}

TEST_F(Machine, AFallBackToTcpIsAnErrorWithAWayOut) {
  AddDevice("rdmap16s27", "efa");
  const auto fabric = FindFabric(root, "");
  EXPECT_TRUE(CheckFabric(fabric, {"AWS Libfabric"}));
  EXPECT_TRUE(CheckFabric(fabric, {})) << "on one node no network is used";
  const auto checked = CheckFabric(fabric, {"Socket"});
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(checked.error().message, HasSubstr("EFA needs aws-ofi-nccl's libnccl-net.so"));
  EXPECT_THAT(checked.error().message, HasSubstr("dist.allow_tcp: true"));
}

// Lines as NCCL 2.18 to 2.27 write them.
TEST(NcclNetworks, AreReadFromItsLog) {
  EXPECT_THAT(
      NcclNetworks("gpu-1:811:811 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.4<0>\n"
                   "gpu-1:811:811 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so.\n"
                   "gpu-1:811:870 [0] NCCL INFO NET/IB : No device found.\n"
                   "gpu-1:811:870 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0>\n"
                   "gpu-1:811:870 [0] NCCL INFO Using non-device net plugin version 0\n"
                   "gpu-1:811:870 [0] NCCL INFO Using network Socket\n"
                   "gpu-1:811:870 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n"),
      ElementsAre("Socket"));
  EXPECT_THAT(
      NcclNetworks("gpu-1:9:99 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.4<0>\n"
                   "gpu-1:9:99 [1] NCCL INFO Using network IB\r\n"
                   "gpu-1:9:99 [1] NCCL INFO Channel 01/0 : 8[0] -> 1[1] [send] via NET/IB/0/GDRDMA"),
      ElementsAre("IB"));
  EXPECT_THAT(
      NcclNetworks(
          "i-0:7:8 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.9.1-aws\n"
          "i-0:7:8 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)\n"
          "i-0:7:8 [0] NCCL INFO Using network AWS Libfabric\n"
          "i-0:7:8 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA\n"),
      ElementsAre("AWS Libfabric"));
  EXPECT_THAT(NcclNetworks("Using network Socket, says somebody else\n"
                           "g:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/CUMEM\n"),
              IsEmpty());
}

}  // namespace
}  // namespace imgd::trainer
