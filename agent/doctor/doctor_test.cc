#include <gmock/gmock.h>

#include <functional>
#include <set>

#include "agent/doctor/facts.h"
#include "agent/testing/temp_dir.h"
#include "common/files.h"

namespace imgd::doctor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint64_t kTestGiB = 1ULL << 30;

/// A node with two GPUs that lacks nothing.
NodeFacts WellNode() {
  NodeFacts facts;
  facts.pci_gpus = 2;
  facts.driver = "580.65.06";
  facts.gpus = {{"GPU 0, NVIDIA H100", ""}, {"GPU 1, NVIDIA H100", ""}};
  facts.has_uvm = true;
  facts.has_nvswitch = facts.fabric_manager = true;
  facts.agent_version = "0.1.0";
  facts.trainer = "/usr/bin/imgtrain";
  facts.trainer_version = "imgtrain 0.1.0";
  facts.open_files = 1 << 20;
  facts.has_rdma = true;
  facts.shm_bytes = 64 * kTestGiB;
  facts.memory_free_bytes = 200 * kTestGiB;
  facts.state_dir = "/var/lib/imgagent";
  facts.file_system = "ext4";
  facts.disk_free_bytes = 300 * kTestGiB;
  facts.inodes_free = 10'000'000;
  facts.disk_bytes_per_second = 900e6;
  facts.shared_folders = {{"/shared", ""}};
  facts.clock = {.is_kept = true, .ahead = std::chrono::milliseconds(3)};
  facts.libraries = {.torch = "2.13.0", .cuda = "13.0", .nccl = "2.29.7"};
  facts.imgd = {.server = "head:7650", .addresses = {"10.0.0.1"}, .outcome = Reach::Outcome::kAnswers};
  facts.tls = true;
  facts.is_loopback = false;
  facts.certificate_left_seconds = 3600;
  facts.own_address = "10.0.0.2";
  return facts;
}

Verdict Of(const NodeFacts& facts, std::string_view check) {
  for (const auto& line : ExamineNode(facts)) {
    if (line.check == check) return line.verdict;
  }
  return Unknown("no such check");
}

TEST(NodeDoctor, AWellNodeHasNothingToMend) {
  for (const auto& [check, verdict] : ExamineNode(WellNode())) {
    EXPECT_EQ(verdict.grade, Grade::kGood) << check << ": " << verdict.what;
    EXPECT_THAT(verdict.advice, IsEmpty()) << check;
    EXPECT_THAT(verdict.what, Not(IsEmpty())) << check;
  }
}

TEST(NodeDoctor, EachCauseIsNamedWithWhatToDo) {
  struct Case {
    const char* check;
    std::function<void(NodeFacts&)> cause;
    Grade grade;
    const char* what;
    const char* advice;
  };
  const auto lose_driver = [](NodeFacts& f) {
    f.driver = "", f.gpus = {}, f.nvml_error = "no libnvidia-ml.so.1";
  };
  const std::vector<Case> cases = {
      {"settings", [](NodeFacts& f) { f.config_error = "agent.yaml:3:1: unknown key"; }, Grade::kFault,
       "agent.yaml:3:1", "deploy/agent.yaml"},
      {"certificate", [](NodeFacts& f) { f.certificate_left_seconds.reset(); }, Grade::kFault,
       "no certificate and no join token", "join-token"},
      {"certificate",
       [](NodeFacts& f) {
         f.certificate_left_seconds.reset();
         f.is_instance = true;
         f.ec2_error = "cannot ask EC2 which instance this is";
       },
       Grade::kFault, "cannot ask EC2", "IMDSv2"},
      {"certificate", [](NodeFacts& f) { f.certificate_left_seconds = -60; }, Grade::kWarning, "ran out",
       "start the agent"},
      {"certificate",
       [](NodeFacts& f) {
         f.certificate_left_seconds = -60;
         f.renewal_error = "imgd at head:7650 does not let this node join: node a was revoked";
       },
       Grade::kFault, "was revoked", "joins anew"},
      {"certificate",
       [](NodeFacts& f) {
         f.certificate_left_seconds = -60, f.has_join_token = true;
         f.renewal_error = "imgd at head:7650 does not let this node join: node a was revoked";
       },
       Grade::kWarning, "was revoked", "start the agent: it joins anew"},
      {"certificate", [](NodeFacts& f) { f.certificate_left_seconds = -8 * 24 * 3600; }, Grade::kFault,
       "more than 7 days", "join-token"},
      {"certificate", [](NodeFacts& f) { f.tls_error = "was not signed by the CA"; }, Grade::kFault,
       "not signed", "Who may talk"},
      {"certificate", [](NodeFacts& f) { f.tls = false; }, Grade::kWarning, "in plain text", "http://"},
      {"devices", [](NodeFacts& f) { f.gpus = {}, f.pci_gpus = 0; }, Grade::kFault, "neither a GPU nor a CPU",
       "cpu_slots"},
      {"devices", lose_driver, Grade::kFault, "neither", "NVML"},
      {"driver", lose_driver, Grade::kFault, "2 NVIDIA GPUs, and NVIDIA's driver is not loaded", "dmesg"},
      {"driver", [&](NodeFacts& f) { lose_driver(f), f.nouveau = true; }, Grade::kFault, "nouveau",
       "blacklist"},
      {"cuda", [](NodeFacts& f) { f.driver = "535.183.01"; }, Grade::kFault, "too old for CUDA 13", "580"},
      {"nvml", lose_driver, Grade::kFault, "libnvidia-ml", "loaded first"},
      {"nvml", [](NodeFacts& f) { f.nvml_error = "Driver/library version mismatch"; }, Grade::kFault,
       "different versions", "restart the machine"},
      {"nvml", [](NodeFacts& f) { f.nvml_error = "no libnvidia-ml.so.1"; }, Grade::kFault, "no libnvidia-ml",
       "install the driver's library"},
      {"gpus", [](NodeFacts& f) { f.gpus.pop_back(); }, Grade::kFault, "1 of 2 GPUs", "Xid"},
      {"gpu-health", [](NodeFacts& f) { f.gpus[1].ill = "has 3 uncorrected memory errors"; }, Grade::kFault,
       "GPU 1, NVIDIA H100 has 3 uncorrected", "--gpu-reset"},
      {"uvm", [](NodeFacts& f) { f.has_uvm = false; }, Grade::kFault, "/dev/nvidia-uvm", "modprobe"},
      {"device-rights", [](NodeFacts& f) { f.closed = {"/dev/nvidia0"}; }, Grade::kFault, "/dev/nvidia0",
       "group"},
      {"fabric", [](NodeFacts& f) { f.fabric_manager = false; }, Grade::kFault, "NVSwitches",
       "systemctl enable --now nvidia-fabricmanager"},
      {"trainer", [](NodeFacts& f) { f.trainer = ""; }, Grade::kFault, "no imgtrain", "install the package"},
      {"trainer",
       [](NodeFacts& f) {
         f.trainer_version = "";
         f.trainer_error = "error while loading shared libraries: libtorch_cpu.so";
       },
       Grade::kFault, "libtorch_cpu.so", "imgtrain-runtime-cu13"},
      {"trainer", [](NodeFacts& f) { f.trainer_version = "", f.trainer_error = "Illegal instruction"; },
       Grade::kFault, "Illegal instruction", "by hand"},
      {"versions", [](NodeFacts& f) { f.trainer_version = "imgtrain 0.0.9"; }, Grade::kWarning,
       "the agent is 0.1.0, and the trainer 0.0.9", "together"},
      {"libraries", [](NodeFacts& f) { f.shadowing = {"/opt/nccl/libnccl.so.2"}; }, Grade::kWarning,
       "/opt/nccl/libnccl.so.2", "LD_LIBRARY_PATH"},
      {"open-files", [](NodeFacts& f) { f.open_files = 1024; }, Grade::kWarning, "1024", "LimitNOFILE"},
      {"locked-memory", [](NodeFacts& f) { f.locked_bytes = 64 << 10; }, Grade::kFault, "64 KiB",
       "LimitMEMLOCK"},
      {"shm", [](NodeFacts& f) { f.shm_bytes = 64 << 20; }, Grade::kWarning, "64 MiB", "--shm-size"},
      {"shm", [](NodeFacts& f) { f.shm_bytes = 0; }, Grade::kFault, "not mounted", "mount -t tmpfs"},
      {"memory", [](NodeFacts& f) { f.memory_free_bytes = kTestGiB; }, Grade::kWarning, "1.0 GiB", "end"},
      {"cgroup", [](NodeFacts& f) { f.cgroup_error = "read-only"; }, Grade::kWarning, "read-only",
       "Delegate"},
      {"state-folder", [](NodeFacts& f) { f.state_dir_error = "cannot write to /x: Permission denied"; },
       Grade::kFault, "Permission denied", "install -d"},
      {"file-system", [](NodeFacts& f) { f.file_system = "nfs"; }, Grade::kWarning,
       "network file system (nfs)", "state_dir"},
      {"disk-space", [](NodeFacts& f) { f.disk_free_bytes = kTestGiB; }, Grade::kWarning, "1.0 GiB free",
       "make room"},
      {"inodes", [](NodeFacts& f) { f.inodes_free = 12; }, Grade::kWarning, "12 more files", "inodes"},
      {"disk-speed", [](NodeFacts& f) { f.disk_bytes_per_second = 11e6; }, Grade::kWarning, "11 MB/s",
       "faster one"},
      {"shared-folders", [](NodeFacts& f) { f.shared_folders["/b"] = "is no folder here"; }, Grade::kFault,
       "/b: is no folder", "mount it"},
      {"clock", [](NodeFacts& f) { f.clock.is_kept = false; }, Grade::kWarning, "no NTP", "chrony"},
      {"clock", [](NodeFacts& f) { f.clock.ahead = -std::chrono::minutes(2); }, Grade::kFault,
       "120.0 s behind imgd's clock", "no node that is 10 s off"},
      {"clock",
       [](NodeFacts& f) {
         f.clock.ahead.reset();
         f.clock.doubt = "imgd's certificate is good from one day to another, and by this machine's clock";
       },
       Grade::kFault, "by this machine's clock", "set the clock"},
      {"clock", [](NodeFacts& f) { f.clock.ahead = std::chrono::seconds(4); }, Grade::kWarning,
       "4.0 s ahead of imgd's clock", "chrony"},
      {"nccl", [](NodeFacts& f) { f.libraries->nccl = f.libraries->cuda = "none"; }, Grade::kFault,
       "built for CPUs (LibTorch 2.13.0, CUDA none)", "install the package imgtrain"},
      {"nccl", [](NodeFacts& f) { f.libraries->error = "libnccl.so.2: cannot open shared object file"; },
       Grade::kFault, "libnccl.so.2", "imgtrain-runtime-cu13"},
      {"cuda", [](NodeFacts& f) { f.driver = "520.1", f.libraries->cuda = "12.6"; }, Grade::kFault,
       "too old for CUDA 12", "525"},
      {"name", [](NodeFacts& f) { f.imgd.outcome = Reach::Outcome::kNoName; }, Grade::kFault,
       "can't be resolved", "resolv.conf"},
      {"port", [](NodeFacts& f) { f.imgd.outcome = Reach::Outcome::kRefused; }, Grade::kFault,
       "nobody listens", "imgd.yaml"},
      {"port", [](NodeFacts& f) { f.imgd.outcome = Reach::Outcome::kNoAnswer; }, Grade::kFault,
       "does not answer", "firewalls"},
      {"certificate",
       [](NodeFacts& f) {
         f.tls = false, f.is_loopback = true;
         f.imgd.outcome = Reach::Outcome::kAnswersTls;
       },
       Grade::kFault, "imgd at head:7650 wants TLS", "https://"},
      {"certificate",
       [](NodeFacts& f) {
         f.certificate_left_seconds = {}, f.has_join_token = true;
         f.join_token_error = "/etc/imgd/join: this node has used it already";
       },
       Grade::kFault, "used it already", "join-token"},
      {"own-address", [](NodeFacts& f) { f.own_address = "127.0.0.1"; }, Grade::kWarning, "this machine only",
       "loopback"},
      {"own-address", [](NodeFacts& f) { f.own_address_error = "10.0.0.9 is not this machine's"; },
       Grade::kFault, "10.0.0.9", "address in agent.yaml"},
      {"metrics-port", [](NodeFacts& f) { f.metrics_error = "127.0.0.1:7651 is taken"; }, Grade::kFault,
       "7651 is taken", "metrics_listen"},
  };
  std::set<std::string_view> told;
  for (const auto& [check, cause, grade, what, advice] : cases) {
    told.insert(check);
    auto facts = WellNode();
    cause(facts);
    const auto verdict = Of(facts, check);
    EXPECT_EQ(verdict.grade, grade) << check << ": " << verdict.what;
    EXPECT_THAT(verdict.what, HasSubstr(what)) << check;
    EXPECT_THAT(verdict.advice, HasSubstr(advice)) << check;
  }
  const std::string page = ReadFile(IMGD_INSTALL_PAGE).value();
  for (const auto& line : ExamineNode(WellNode())) {
    EXPECT_TRUE(told.contains(line.check)) << line.check << " has no cause that is tried";
    EXPECT_THAT(page, HasSubstr(fmt::format("`{}`", line.check))) << "in the list of docs/install.md";
  }
  EXPECT_EQ(cases.size(), 54U) << "docs/install.md says how many there are, of both doctors";
}

TEST(NodeDoctor, WhatANodeDoesNotHaveIsNoFault) {
  NodeFacts facts = WellNode();
  facts.pci_gpus = 0;
  facts.gpus = {};
  facts.driver = "";
  facts.nvml_error = "no libnvidia-ml.so.1";
  facts.has_uvm = facts.has_nvswitch = facts.fabric_manager = facts.has_rdma = false;
  facts.locked_bytes = 64 << 10;
  facts.cpu_slots = 2;
  facts.shared_folders = {};
  facts.clock = {};
  facts.libraries->nccl = facts.libraries->cuda = "none";
  facts.disk_free_bytes = {};
  facts.inodes_free = {};
  facts.memory_free_bytes = {};
  facts.file_system = "";
  facts.disk_bytes_per_second = 0;
  for (const auto& [check, verdict] : ExamineNode(facts)) {
    EXPECT_LE(verdict.grade, Grade::kUnknown) << check << ": " << verdict.what;
  }
}

TEST(NodeDoctor, WhatTheTrainerSaysOfItsLibrariesIsRead) {
  const auto gpu = ParseLibraries("LibTorch 2.13.0\nCUDA 13.0\nNCCL 2.29.7\n");
  ASSERT_TRUE(gpu.has_value());
  auto facts = WellNode();
  facts.libraries = gpu;
  EXPECT_EQ(Of(facts, "nccl").what, "NCCL 2.29.7, with LibTorch 2.13.0, CUDA 13.0");
  const auto broken = ParseLibraries("LibTorch 2.13.0\nerror: libnccl.so.2: not found");
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->error, "libnccl.so.2: not found");
  facts.libraries = ParseLibraries("imgtrain: The following argument was not expected: --libraries");
  EXPECT_FALSE(facts.libraries.has_value());
  EXPECT_EQ(Of(facts, "nccl").grade, Grade::kUnknown) << "an older trainer";
}

TEST(NodeDoctor, AMachineIsLookedAt) {
  const TempDir dir;
  Config config;
  config.nvml = "none";
  config.cpu_slots = 1;
  config.state_dir = dir.path();
  config.trainer = "/bin/true";
  config.server = "127.0.0.1:1";
  config.shared_folders = {dir.path(), "/nowhere/at/all"};
  const auto facts = GatherNodeFacts(config, "");
  EXPECT_GT(facts.disk_bytes_per_second, 0);
  EXPECT_EQ(facts.imgd.outcome, Reach::Outcome::kRefused);
  EXPECT_EQ(facts.own_address, "127.0.0.1");
  EXPECT_GT(facts.open_files, 0u);
  EXPECT_EQ(facts.shared_folders.at(dir.path()), "");
  EXPECT_THAT(facts.shared_folders.at("/nowhere/at/all"), Not(IsEmpty()));
  EXPECT_EQ(Of(facts, "devices").grade, Grade::kGood);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "what was written to try the disk is still there";
}

TEST(NodeDoctor, BrokenGpusAreFound) {
  const TempDir dir;
  const auto script = dir.path() / "script";
  ASSERT_TRUE(WriteFileAtomically(
      script, "count 2\nname * Fake A100\necc * 0\npending * 0\nfailed 0 0\nfailed 1 1\n"));
  ::setenv("IMGD_FAKE_NVML_SCRIPT", script.c_str(), 1);
  Config config;
  config.nvml = IMGD_FAKE_NVML;
  NodeFacts facts;
  GatherGpus(config, facts);
  ASSERT_EQ(facts.gpus.size(), 2u) << facts.nvml_error;
  EXPECT_THAT(facts.gpus[0].ill, IsEmpty());
  EXPECT_THAT(Of(facts, "gpu-health").what, HasSubstr("GPU 1, Fake A100"));
}

}  // namespace
}  // namespace imgd::doctor
