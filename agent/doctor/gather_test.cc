// What the node's doctor finds: on a made machine, and beside an agent that runs.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "agent/doctor/facts.h"
#include "agent/network.h"
#include "agent/testing/agent_process.h"
#include "agent/testing/temp_dir.h"
#include "common/files.h"

namespace imgd::doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

/// A folder with a machine's /proc, /sys and /dev, as far as they are put there.
struct MadeMachine {
  MadeMachine() { fs::permissions(dir.path(), fs::perms(0755)); }
  void Put(const std::string& path, std::string_view text = "") const {
    fs::create_directories((dir / path).parent_path());
    dir.Write(path, text);
  }
  void PutPciDevice(const std::string& name, const char* vendor, const char* device_class) const {
    Put("sys/bus/pci/devices/" + name + "/vendor", std::string(vendor) + "\n");
    Put("sys/bus/pci/devices/" + name + "/class", std::string(device_class) + "\n");
  }
  NodeFacts Gpus() const {
    Config config;
    config.nvml = "none";
    NodeFacts facts{.wants_gpus = false};
    GatherGpus(config, facts, dir.path());
    return facts;
  }
  NodeFacts Limits(const std::string& agent = "") const {
    Config config;
    config.use_cgroup = false;
    NodeFacts facts{.agent = agent};
    GatherLimits(config, facts, dir.path());
    return facts;
  }
  TempDir dir;
};

std::string LimitsText(const char* open_files, const char* locked) {
  return fmt::format(
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max locked memory         {1:<20} {1:<20} bytes     \n"
      "Max open files            1024                 {0:<20} files     \n",
      open_files, locked);
}

TEST(Gather, GpusOnThePciBusAreCountedAndNothingElse) {
  const MadeMachine machine;
  EXPECT_EQ(machine.Gpus().pci_gpus, 0);
  machine.PutPciDevice("0000:01:00.0", "0x10de", "0x030200");  // a compute card
  machine.PutPciDevice("0000:02:00.0", "0x10de", "0x030000");  // one with an output
  machine.PutPciDevice("0000:02:00.1", "0x10de", "0x040300");  // its sound
  machine.PutPciDevice("0000:03:00.0", "0x1002", "0x030000");  // another maker's
  EXPECT_EQ(machine.Gpus().pci_gpus, 2);
}

TEST(Gather, TheDriverItsVersionAndWhatItNeedsAreFound) {
  const MadeMachine machine;
  auto facts = machine.Gpus();
  EXPECT_THAT(facts.driver, IsEmpty());
  EXPECT_FALSE(facts.nouveau || facts.has_uvm || facts.has_nvswitch || facts.fabric_manager);
  machine.Put("proc/driver/nvidia/version",
              "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (root)\n"
              "GCC version:  gcc version 12.2.0\n");
  machine.Put("sys/module/nouveau/refcnt");
  machine.Put("dev/nvidia-uvm");
  machine.Put("proc/driver/nvidia-nvswitch/devices/0000:04:00.0");
  machine.Put("run/nvidia-fabricmanager/nv-fabricmanager.pid");
  facts = machine.Gpus();
  EXPECT_EQ(facts.driver, "580.65.06");
  EXPECT_TRUE(facts.nouveau && facts.has_uvm && facts.has_nvswitch && facts.fabric_manager);
}

TEST(Gather, DevicesThatThisUserMayNotOpenAreNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes devices";
  const MadeMachine machine;
  fs::create_directories(machine.dir / "dev");
  for (const auto& [name, mode] : {std::pair("nvidia0", 0666), {"nvidia1", 0660}, {"sda", 0600}}) {
    const auto path = machine.dir / "dev" / name;
    if (::mknod(path.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0)
      GTEST_SKIP() << "no devices can be made here";
    ::chmod(path.c_str(), static_cast<mode_t>(mode));
  }
  machine.Put("dev/nvidia-caps");  // no device
  EXPECT_THAT(machine.Gpus().closed, IsEmpty());
  const pid_t nobody = ::fork();
  if (nobody == 0) {
    constexpr uid_t kNobody = 65534;
    if (::setresgid(kNobody, kNobody, kNobody) != 0 || ::setresuid(kNobody, kNobody, kNobody) != 0)
      ::_exit(2);
    ::_exit(machine.Gpus().closed == std::vector<std::string>{machine.dir / "dev/nvidia1"} ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(nobody, &status, 0), nobody);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Gather, LimitsAreThoseOfTheAgentThatRuns) {
  const MadeMachine machine;
  machine.Put("proc/self/limits", LimitsText("4096", "65536"));
  machine.Put("proc/77/limits", LimitsText("1048576", "unlimited"));
  EXPECT_EQ(machine.Limits().open_files, 4096U);
  EXPECT_EQ(machine.Limits().locked_bytes, 65536U);
  EXPECT_EQ(machine.Limits("77").open_files, 1048576U);
  EXPECT_EQ(machine.Limits("77").locked_bytes, std::nullopt);
}

TEST(Gather, RdmaAndSharedMemoryAreSeen) {
  const MadeMachine machine;
  EXPECT_FALSE(machine.Limits().has_rdma);
  EXPECT_EQ(machine.Limits().shm_bytes, 0U) << "there is no /dev/shm";
  fs::create_directories(machine.dir / "sys/class/infiniband");
  EXPECT_FALSE(machine.Limits().has_rdma) << "the module without an adapter";
  machine.Put("sys/class/infiniband/mlx5_0/node_type");
  fs::create_directories(machine.dir / "dev/shm");
  EXPECT_TRUE(machine.Limits().has_rdma);
  EXPECT_GT(machine.Limits().shm_bytes, 0U);
}

TEST(Gather, LibrariesInTheAgentsOwnEnvironmentAreNamed) {
  const MadeMachine machine;
  const std::string cuda12 = machine.dir / "cuda12", nccl = machine.dir / "nccl";
  machine.Put("cuda12/libcudart.so.12");
  machine.Put("nccl/libnccl.so.2");
  machine.Put("nccl/libm.so.6");
  machine.Put("proc/77/environ",
              fmt::format("HOME=/x{0}LD_LIBRARY_PATH={1}::{2}:/none{0}A=b", '\0', cuda12, nccl));
  NodeFacts facts{.agent = "77"};
  GatherLibraries(facts, machine.dir.path());
  EXPECT_THAT(facts.shadowing, ElementsAre(cuda12 + "/libcudart.so.12", nccl + "/libnccl.so.2"));
  machine.Put("proc/77/environ", "HOME=/x");
  GatherLibraries(facts, machine.dir.path());
  EXPECT_THAT(facts.shadowing, IsEmpty());
}

TEST(Gather, AnAgentsPortIsToldFromThatOfAnotherProgram) {
  const MadeMachine machine;
  machine.Put(
      "proc/77/net/tcp",
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:1DE4 00000000:0000 0A 00000000:00000000 00:00000000 00000000   998        0 4711 1\n"
      "   1: 0100007F:1DE3 00000000:0000 0A 00000000:00000000 00:00000000 00000000   997        0 4712 1\n"
      "   2: 0100007F:1DE5 0100007F:0001 01 00000000:00000000 00:00000000 00000000   998        0 4713 1\n");
  EXPECT_TRUE(ListensOn("77", 7652, machine.dir.path())) << "its files may not be read: it is believed";
  fs::create_directories(machine.dir / "proc/77/fd");
  for (const auto& [file, target] : {std::pair("3", "socket:[4711]"), {"4", "socket:[4713]"}, {"5", "/x"}})
    fs::create_symlink(target, machine.dir / "proc/77/fd" / file);
  EXPECT_TRUE(ListensOn("77", 7652, machine.dir.path()));
  EXPECT_FALSE(ListensOn("77", 7651, machine.dir.path())) << "another program's";
  EXPECT_FALSE(ListensOn("77", 7653, machine.dir.path())) << "a connection";
}

TEST(Gather, InodesAreThoseOfTheStateFoldersFileSystem) {
  const TempDir dir;
  Config config;
  config.state_dir = dir.path();
  NodeFacts facts;
  GatherStateFolder(config, facts);
  struct statvfs room {};
  ASSERT_EQ(::statvfs(dir.path().c_str(), &room), 0);
  ASSERT_EQ(facts.inodes_free.has_value(), room.f_files > 0);
  if (!facts.inodes_free) GTEST_SKIP() << "a file system without a limit";
  EXPECT_LT(*facts.inodes_free, room.f_files);
  EXPECT_GT(*facts.inodes_free, 0U);
}

/// As docs/install.md has it: the agent runs, and then its doctor is asked, by a shell with limits of its
/// own.
TEST(Gather, AnAgentThatRunsIsNoFaultOfItsOwn) {
  const TempDir dir;
  const auto port = ListenOn("127.0.0.1").value().port;  // free again by now
  Config config;
  config.nvml = "none";
  config.cpu_slots = 1;
  config.state_dir = dir / "state";
  config.trainer = "/bin/true";
  config.server = "127.0.0.1:1";
  config.metrics_listen = fmt::format("127.0.0.1:{}", port);
  EXPECT_THAT(AgentOn(config.state_dir), IsEmpty());
  AgentProcess agent(dir / "log",
                     {"--server", config.server, "--state-dir", config.state_dir, "--trainer", "/bin/true",
                      "--nvml", "none", "--cpu-slots", "1", "--metrics-listen", config.metrics_listen});
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (agent.Output().find("imgagent 0") == std::string::npos && std::chrono::steady_clock::now() < give_up)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const rlimit few{.rlim_cur = 99, .rlim_max = 99};
  ASSERT_EQ(::prlimit(agent.pid(), RLIMIT_NOFILE, &few, nullptr), 0);
  auto facts = GatherNodeFacts(config, "");
  EXPECT_EQ(facts.agent, std::to_string(agent.pid())) << agent.Output();
  EXPECT_EQ(facts.open_files, 99U);
  const auto port_line = [&facts] {
    for (const auto& line : ExamineNode(facts)) {
      if (line.check == "metrics-port") return line.verdict;
    }
    return Unknown("no such check");
  };
  EXPECT_EQ(port_line().grade, Grade::kGood) << port_line().what;
  EXPECT_THAT(port_line().what, HasSubstr("the agent that runs here"));

  // The next agent would not get this one.
  const auto other = ListenOn("127.0.0.1");
  config.metrics_listen = fmt::format("127.0.0.1:{}", other->port);
  facts = GatherNodeFacts(config, "");
  EXPECT_EQ(port_line().grade, Grade::kFault);
  agent.End(SIGTERM);
  EXPECT_THAT(AgentOn(config.state_dir), IsEmpty());
}

}  // namespace
}  // namespace imgd::doctor
