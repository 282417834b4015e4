#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <set>

#include "agent/doctor/facts.h"
#include "agent/network.h"
#include "common/tls/pem.h"

namespace imgd::doctor {
namespace {

constexpr int kOldestDriverForCuda13 = 580;
constexpr int kOldestDriverForCuda12 = 525;
constexpr uint64_t kFewOpenFiles = 65'536;
constexpr uint64_t kMiB = 1ULL << 20;
constexpr uint64_t kGiB = 1ULL << 30;
constexpr uint64_t kSmallSharedMemory = kGiB;
constexpr uint64_t kLittleDisk = 10 * kGiB;
constexpr uint64_t kLittleMemory = 2 * kGiB;
constexpr uint64_t kFewInodes = 100'000;
constexpr double kSlowDisk = 50e6;

bool NoGpuIsMeant(const NodeFacts& facts) { return !facts.wants_gpus || facts.pci_gpus == 0; }

std::string GibText(uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
}

int MajorOf(const std::string& version) {
  int major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  return major;
}

Verdict CheckSettings(const NodeFacts& facts) {
  if (facts.config_error.empty()) return Good("can be read");
  return Fault(facts.config_error, "mend it; deploy/agent.yaml tells of each key");
}

Verdict CheckDevices(const NodeFacts& facts) {
  if (!facts.gpus.empty()) return Good(fmt::format("{} GPUs", facts.gpus.size()));
  if (facts.cpu_slots > 0) return Good(fmt::format("no GPU, {} CPU slots", facts.cpu_slots));
  return Fault("neither a GPU nor a CPU slot to offer",
               facts.pci_gpus > 0 ? "see what is said about the driver and NVML"
                                  : "set cpu_slots in agent.yaml, where jobs are to run on the CPU");
}

Verdict CheckDriver(const NodeFacts& facts) {
  if (NoGpuIsMeant(facts)) return Unknown("no NVIDIA GPU on the PCI bus, or none wanted");
  if (!facts.driver.empty()) return Good("driver " + facts.driver);
  if (facts.nouveau) {
    return Fault(fmt::format("{} NVIDIA GPUs, and the driver nouveau has them", facts.pci_gpus),
                 "put nouveau on the kernel's blacklist, install NVIDIA's driver, and restart the machine");
  }
  return Fault(
      fmt::format("{} NVIDIA GPUs, and NVIDIA's driver is not loaded", facts.pci_gpus),
      "install the driver (Debian: nvidia-driver; a data centre's: cuda-drivers), and see dmesg where it is");
}

Verdict CheckDriverForCuda(const NodeFacts& facts) {
  const int major = MajorOf(facts.driver);
  if (major == 0) return Unknown("no driver");
  // Of one that does not say: packages have CUDA 13.
  const bool is_12 = facts.libraries && MajorOf(facts.libraries->cuda) == 12;
  const int oldest = is_12 ? kOldestDriverForCuda12 : kOldestDriverForCuda13;
  const char* cuda = is_12 ? "CUDA 12" : "CUDA 13";
  if (major >= oldest) return Good(fmt::format("driver {} knows {}", facts.driver, cuda));
  return Fault(fmt::format("driver {} is too old for {}", facts.driver, cuda),
               fmt::format("install driver {} or newer{}", oldest,
                           is_12 ? "" : ", or a trainer that is built with CUDA 12"));
}

Verdict CheckNccl(const NodeFacts& facts) {
  if (!facts.libraries) return Unknown("the trainer does not say");
  const auto& [torch, cuda, nccl, error] = *facts.libraries;
  if (!error.empty()) {
    return Fault("the trainer's part for GPUs can't be loaded: " + error,
                 "install imgtrain-runtime-cu13 in the version that imgtrain depends on");
  }
  const auto rest = fmt::format("LibTorch {}, CUDA {}", torch, cuda);
  if (nccl != "none") return Good(fmt::format("NCCL {}, with {}", nccl, rest));
  if (NoGpuIsMeant(facts)) return Good(fmt::format("none, as none is needed ({})", rest));
  return Fault(fmt::format("imgtrain has none: it was built for CPUs ({})", rest),
               "install the package imgtrain, or build without --cpu, on nodes with GPUs");
}

Verdict CheckNvml(const NodeFacts& facts) {
  if (NoGpuIsMeant(facts)) return Unknown("not needed");
  const auto& error = facts.nvml_error;
  if (error.empty()) return Good("answers");
  if (error.find("mismatch") != std::string::npos) {
    return Fault("the driver in the kernel and its library are of different versions: " + error,
                 "the driver was upgraded while loaded: restart the machine, or unload and load its modules");
  }
  if (facts.driver.empty()) return Fault(error, "NVML comes with the driver, which is to be loaded first");
  return Fault(error,
               "install the driver's library libnvidia-ml.so.1 in the kernel driver's version, or set nvml");
}

Verdict CheckGpusSeen(const NodeFacts& facts) {
  if (NoGpuIsMeant(facts) || !facts.nvml_error.empty()) return Unknown("not looked at");
  const int seen = static_cast<int>(facts.gpus.size());
  if (seen >= facts.pci_gpus) return Good(fmt::format("{} of {}", seen, facts.pci_gpus));
  return Fault(fmt::format("{} of {} GPUs can be opened", seen, facts.pci_gpus),
               "see dmesg for 'NVRM: Xid', and whether a virtual machine or MIG has the others");
}

Verdict CheckGpuHealth(const NodeFacts& facts) {
  if (facts.gpus.empty()) return Unknown("no GPU");
  std::vector<std::string> ill;
  for (const auto& gpu : facts.gpus) {
    if (!gpu.ill.empty()) ill.push_back(gpu.name + " " + gpu.ill);
  }
  if (ill.empty()) return Good("no broken memory; what the driver reported before is in dmesg");
  return Fault(
      fmt::format("{}", fmt::join(ill, "; ")),
      "reset the GPU (nvidia-smi --gpu-reset) with no job on it; if it comes back, have it replaced");
}

Verdict CheckUvm(const NodeFacts& facts) {
  if (NoGpuIsMeant(facts) || facts.driver.empty()) return Unknown("not needed");
  if (facts.has_uvm) return Good("/dev/nvidia-uvm is there");
  return Fault("there is no /dev/nvidia-uvm, without which CUDA finds no GPU",
               "modprobe nvidia-uvm && nvidia-modprobe -u; let nvidia-persistenced do it at each start");
}

Verdict CheckDeviceRights(const NodeFacts& facts) {
  if (facts.closed.empty()) return Good("all device files can be opened");
  return Fault(fmt::format("may not be opened by this user: {}", fmt::join(facts.closed, ", ")),
               "add the agent's user to the group that they belong to (video, render), as ls -l shows it");
}

Verdict CheckFabric(const NodeFacts& facts) {
  if (!facts.has_nvswitch) return Unknown("no NVSwitch");
  if (facts.fabric_manager) return Good("nvidia-fabricmanager runs");
  return Fault("the GPUs are joined by NVSwitches, and nvidia-fabricmanager does not run",
               "install nvidia-fabricmanager in the driver's version, and systemctl enable --now "
               "nvidia-fabricmanager");
}

Verdict CheckTrainer(const NodeFacts& facts) {
  if (facts.trainer.empty()) {
    return Fault("there is no imgtrain",
                 "install the package imgtrain, or name one by trainer in agent.yaml");
  }
  if (!facts.trainer_version.empty()) return Good(facts.trainer + ", " + facts.trainer_version);
  if (facts.trainer_error.find("shared libraries") != std::string::npos) {
    return Fault(fmt::format("{} lacks a library: {}", facts.trainer, facts.trainer_error),
                 "install imgtrain-runtime-cu13 in the version that imgtrain depends on");
  }
  return Fault(fmt::format("{} does not start: {}", facts.trainer, facts.trainer_error),
               "try it by hand, as the agent's user: imgtrain --version");
}

Verdict CheckVersions(const NodeFacts& facts) {
  if (facts.trainer_version.empty()) return Unknown("the trainer did not say its own");
  const auto blank = facts.trainer_version.rfind(' ');
  const auto trainer = facts.trainer_version.substr(blank == std::string::npos ? 0 : blank + 1);
  if (trainer == facts.agent_version) return Good("agent and trainer are " + trainer);
  return Warning(fmt::format("the agent is {}, and the trainer {}", facts.agent_version, trainer),
                 "upgrade imgagent and imgtrain together");
}

Verdict CheckLibraries(const NodeFacts& facts) {
  if (facts.shadowing.empty()) return Good("none of NCCL, CUDA, cuDNN or LibTorch in LD_LIBRARY_PATH");
  return Warning(fmt::format("ranks would load these for their own: {}", fmt::join(facts.shadowing, ", ")),
                 "unset LD_LIBRARY_PATH for the agent: two versions of NCCL or CUDA in a gang fail or hang");
}

Verdict CheckOpenFiles(const NodeFacts& facts) {
  if (facts.open_files >= kFewOpenFiles) return Good(fmt::format("{} at once", facts.open_files));
  return Warning(fmt::format("only {} files may be open at once", facts.open_files),
                 "LimitNOFILE=1048576 in the unit, or ulimit -n in /etc/security/limits.conf");
}

Verdict CheckLockedMemory(const NodeFacts& facts) {
  if (!facts.locked_bytes) return Good("without a limit");
  if (!facts.has_rdma) return Good("limited, and there is no RDMA network that minds");
  return Fault(
      fmt::format("only {} KiB may be locked, and NCCL locks more for RDMA", *facts.locked_bytes / 1024),
      "LimitMEMLOCK=infinity in the unit, or memlock unlimited in /etc/security/limits.conf");
}

Verdict CheckSharedMemory(const NodeFacts& facts) {
  if (facts.shm_bytes == 0) {
    return Fault("/dev/shm is not mounted, which NCCL and data loaders need",
                 "mount -t tmpfs tmpfs /dev/shm");
  }
  if (facts.shm_bytes >= kSmallSharedMemory) return Good(GibText(facts.shm_bytes));
  return Warning(fmt::format("/dev/shm has {} MiB only", facts.shm_bytes / kMiB),
                 "1 GiB a GPU is enough; containers: --shm-size, or an emptyDir with medium: Memory");
}

Verdict CheckMemory(const NodeFacts& facts) {
  if (!facts.memory_free_bytes) return Unknown("can't be read");
  if (*facts.memory_free_bytes >= kLittleMemory) return Good(GibText(*facts.memory_free_bytes) + " free");
  return Warning(GibText(*facts.memory_free_bytes) + " of memory are free", "end what else runs here");
}

Verdict CheckCgroup(const NodeFacts& facts) {
  if (facts.cgroup_error.empty()) return Good("runs get one of their own, or none is wanted");
  return Warning(
      "runs get no cgroup of their own: " + facts.cgroup_error,
      "start the agent by its unit (Delegate=yes); else what a rank leaves behind is harder to end");
}

Verdict CheckStateFolder(const NodeFacts& facts) {
  if (facts.state_dir_error.empty()) return Good(facts.state_dir + " can be written to");
  return Fault(facts.state_dir_error,
               "let the agent's user have it: install -d -o imgagent -g imgagent " + facts.state_dir);
}

Verdict CheckFileSystem(const NodeFacts& facts) {
  static const std::set<std::string> kNetwork = {"nfs",  "smb",  "cifs", "lustre", "fuse",
                                                 "ceph", "gpfs", "afs",  "9p"};
  if (facts.file_system.empty()) return Unknown("of no known kind");
  if (!kNetwork.contains(facts.file_system)) return Good(facts.file_system);
  return Warning(
      fmt::format("{} is on a network file system ({})", facts.state_dir, facts.file_system),
      "set state_dir to a folder on a disk of this machine: runs must go on when the server is away");
}

Verdict CheckDiskSpace(const NodeFacts& facts) {
  if (!facts.disk_free_bytes) return Unknown("can't be read");
  const auto text = fmt::format("{} free in {}", GibText(*facts.disk_free_bytes), facts.state_dir);
  if (*facts.disk_free_bytes < kLittleDisk) return Warning(text, "make room, or move state_dir");
  return Good(text);
}

Verdict CheckInodes(const NodeFacts& facts) {
  if (!facts.inodes_free) return Good("without a limit");
  if (*facts.inodes_free >= kFewInodes) return Good(fmt::format("{} free", *facts.inodes_free));
  return Warning(fmt::format("room for {} more files only in {}", *facts.inodes_free, facts.state_dir),
                 "remove small files, or make the file system anew with more inodes");
}

Verdict CheckDiskSpeed(const NodeFacts& facts) {
  if (facts.disk_bytes_per_second <= 0) return Unknown("not tried");
  const auto text = fmt::format("{:.0f} MB/s written and synced", facts.disk_bytes_per_second / 1e6);
  if (facts.disk_bytes_per_second >= kSlowDisk) return Good(text);
  return Warning(text, "logs and local checkpoints wait for that disk: take a faster one for state_dir");
}

Verdict CheckSharedFolders(const NodeFacts& facts) {
  if (facts.shared_folders.empty())
    return Unknown("none named: checkpoints must be in S3 for jobs of several nodes");
  std::vector<std::string> bad;
  for (const auto& [path, error] : facts.shared_folders) {
    if (!error.empty()) bad.push_back(fmt::format("{}: {}", path, error));
  }
  if (bad.empty()) return Good(fmt::format("{} can be used", facts.shared_folders.size()));
  return Fault(fmt::format("{}", fmt::join(bad, "; ")), "mount it, and let the agent's user write there");
}

Verdict CheckClock(const NodeFacts& facts) {
  return JudgeClock(facts.clock, Grade::kFault,
                    "certificates and the order of logs go by it, and imgd uses no node that is 10 s off");
}

Verdict CheckCertificate(const NodeFacts& facts) {
  constexpr int64_t kRenewableSeconds =
      std::chrono::duration_cast<std::chrono::seconds>(tls::kRenewable).count();
  if (!facts.tls) {
    if (facts.imgd.outcome == Reach::Outcome::kAnswersTls) {
      const Error why = WantsTls(facts.imgd.server);
      return Fault(why.message, why.hint);
    }
    if (facts.is_loopback) return Good("plain text, on this machine");
    return Warning("imgd is spoken to in plain text: whoever is on the way can read and change it",
                   "take http:// off server in agent.yaml, and imgd's plain_text_and_anyone_may_do_anything");
  }
  if (!facts.tls_error.empty())
    return Fault(facts.tls_error, "docs/operations.md, Who may talk, has each case");
  if (!facts.certificate_left_seconds) {
    if (!facts.join_token_error.empty())
      return Fault(facts.join_token_error, "imgcli node join-token makes another");
    if (facts.has_join_token) return Good("none yet: the agent joins by its token");
    if (facts.is_instance && facts.ec2_error.empty())
      return Good("none yet: the agent joins as the EC2 instance that it is");
    if (facts.is_instance)
      return Fault(facts.ec2_error,
                   "the instance's metadata options have to allow the service (IMDSv2), with a "
                   "hop limit of 2 from within a container");
    return Fault("has no certificate and no join token that can be read",
                 "imgcli node join-token makes one; token_file in agent.yaml names it");
  }
  if (!facts.renewal_error.empty()) {
    if (facts.has_join_token && facts.join_token_error.empty())
      return Warning(facts.renewal_error, "start the agent: it joins anew by its join token");
    return Fault(
        facts.renewal_error,
        "where this node is to be used again: imgcli node join-token makes a token by which it joins anew");
  }
  const int64_t left = *facts.certificate_left_seconds;
  if (left > 0) return Good(fmt::format("good for {} more minutes", left / 60));
  if (-left < kRenewableSeconds)
    return Warning("ran out, while the agent or imgd was away", "start the agent: it renews it by its key");
  return Fault("ran out more than 7 days ago", "imgcli node join-token; the agent joins anew by it");
}

Verdict CheckOwnAddress(const NodeFacts& facts) {
  if (!facts.own_address_error.empty()) return Fault(facts.own_address_error, "set address in agent.yaml");
  if (facts.own_address.empty()) return Unknown("without a way to imgd");
  const bool is_loopback = facts.own_address.starts_with("127.") || facts.own_address == "::1";
  if (!is_loopback) return Good(facts.own_address);
  return Warning(facts.own_address + " can be reached from this machine only",
                 "right for a cluster of one machine; else name imgd by another address than loopback's");
}

Verdict CheckMetricsPort(const NodeFacts& facts) {
  if (facts.metrics_are_served) return Good("the agent that runs here listens on it");
  if (facts.metrics_error.empty()) return Good("free, or metrics are off");
  return Fault(facts.metrics_error, "take another port for metrics_listen");
}

constexpr Check<NodeFacts> kChecks[] = {
    {"settings", CheckSettings},
    {"devices", CheckDevices},
    {"driver", CheckDriver},
    {"cuda", CheckDriverForCuda},
    {"nccl", CheckNccl},
    {"nvml", CheckNvml},
    {"gpus", CheckGpusSeen},
    {"gpu-health", CheckGpuHealth},
    {"uvm", CheckUvm},
    {"device-rights", CheckDeviceRights},
    {"fabric", CheckFabric},
    {"trainer", CheckTrainer},
    {"versions", CheckVersions},
    {"libraries", CheckLibraries},
    {"open-files", CheckOpenFiles},
    {"locked-memory", CheckLockedMemory},
    {"shm", CheckSharedMemory},
    {"memory", CheckMemory},
    {"cgroup", CheckCgroup},
    {"state-folder", CheckStateFolder},
    {"file-system", CheckFileSystem},
    {"disk-space", CheckDiskSpace},
    {"inodes", CheckInodes},
    {"disk-speed", CheckDiskSpeed},
    {"shared-folders", CheckSharedFolders},
    {"clock", CheckClock},
    {"name", [](const NodeFacts& f) { return JudgeName(f.imgd); }},
    {"port", [](const NodeFacts& f) { return JudgePort(f.imgd); }},
    {"certificate", CheckCertificate},
    {"own-address", CheckOwnAddress},
    {"metrics-port", CheckMetricsPort},
};

}  // namespace

std::vector<Line> ExamineNode(const NodeFacts& facts) { return Examine(kChecks, facts); }

}  // namespace imgd::doctor
