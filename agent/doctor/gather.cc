#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "agent/doctor/facts.h"
#include "agent/ec2_identity.h"
#include "agent/network.h"
#include "agent/node_key.h"
#include "agent/program.h"
#include "common/clock.h"
#include "common/files.h"
#include "common/tls/pem.h"
#include "common/tls/probe.h"
#include "common/url.h"
#include "common/version.h"

extern char** environ;

namespace imgd::doctor {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kNetworkPatience{3'000};
constexpr milliseconds kTrainerPatience{20'000};
constexpr size_t kProbeBytes = 64ULL << 20;

std::string LastLine(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

/// All that comes from `fd` until its end or until `limit` has passed.
std::string ReadFor(int fd, milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::string text;
  for (char part[4096];;) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) return text;
    const auto size = ::read(fd, part, sizeof part);
    if (size <= 0) return text;
    text.append(part, static_cast<size_t>(size));
  }
}

/// What the program prints with such a flag, and how it ended: 0, or what waitpid(2) says.
std::pair<std::string, int> Ask(const std::string& program, std::string flag) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {std::strerror(errno), -1};
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_adddup2(&actions, in.get(), stream);
  }
  std::string name = program;
  char* arguments[] = {name.data(), flag.data(), nullptr};
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return {std::strerror(error), -1};
  in.reset();
  const std::string text = ReadFor(out.get(), kTrainerPatience);
  ::kill(pid, SIGKILL);  // one that hangs; one that has ended does not mind
  int status = 0;
  ::waitpid(pid, &status, 0);
  return {text, text.empty() ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 0};
}

std::string FileSystemName(const std::string& folder) {
  struct statfs found {};
  if (::statfs(folder.c_str(), &found) != 0) return "";
  switch (static_cast<uint32_t>(found.f_type)) {
    case 0xEF53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683E:
      return "btrfs";
    case 0x01021994:
      return "tmpfs";
    case 0x794C7630:
      return "overlay";
    case 0x2FC12FC1:
      return "zfs";
    case 0x6969:
      return "nfs";
    case 0xFF534D42:
      return "cifs";
    case 0xFE534D42:
      return "smb";
    case 0x0BD00BD0:
      return "lustre";
    case 0x65735546:
      return "fuse";
    case 0x00C36400:
      return "ceph";
    case 0x47504653:
      return "gpfs";
    case 0x01021997:
      return "9p";
    default:
      return "";
  }
}

/// Writes and syncs a file of kProbeBytes. Returns bytes a second. Errors: why it can't be written.
Result<double> TryDisk(const fs::path& folder) {
  const fs::path path = folder / fmt::format(".imgagent-doctor-{}", ::getpid());
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return FailErrno(errno, fmt::format("cannot write to {}", folder.native()));
  const auto begun = std::chrono::steady_clock::now();
  const std::string part(1 << 20, 'x');
  Status written;
  for (size_t done = 0; written && done < kProbeBytes; done += part.size()) {
    written = WriteAll(file.get(), part, path.native());
  }
  if (written && ::fdatasync(file.get()) != 0) written = FailErrno(errno, "cannot sync " + path.native());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  ::unlink(path.c_str());
  if (!written) return tl::unexpected(written.error());
  return static_cast<double>(kProbeBytes) / took.count();
}

}  // namespace

std::optional<TrainerLibraries> ParseLibraries(std::string_view text) {
  TrainerLibraries out;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    for (const auto& [name, field] : {std::pair<std::string_view, std::string&>("LibTorch ", out.torch),
                                      {"CUDA ", out.cuda},
                                      {"NCCL ", out.nccl},
                                      {"error: ", out.error}}) {
      if (line.starts_with(name)) field = line.substr(name.size());
    }
  }
  if (out.torch.empty() || (out.nccl.empty() && out.error.empty())) return std::nullopt;
  return out;
}

void GatherTrainer(const Config& config, NodeFacts& facts) {
  facts.agent_version = kVersion;
  facts.trainer = config.trainer.empty() ? FindProgram("imgtrain").native() : config.trainer.native();
  if (facts.trainer.empty()) return;
  const auto [text, status] = Ask(facts.trainer, "--version");
  (status == 0 ? facts.trainer_version : facts.trainer_error) = LastLine(text);
  if (status != 0) return;
  if (const auto [libraries, end] = Ask(facts.trainer, "--libraries"); end == 0)
    facts.libraries = ParseLibraries(libraries);
}

void GatherStateFolder(const Config& config, NodeFacts& facts) {
  facts.state_dir = config.state_dir.native();
  const auto speed = TryDisk(config.state_dir);
  if (speed) {
    facts.disk_bytes_per_second = *speed;
  } else {
    facts.state_dir_error = speed.error().ToString();
  }
  facts.file_system = FileSystemName(facts.state_dir);
  struct statvfs room {};
  if (::statvfs(facts.state_dir.c_str(), &room) == 0) {
    facts.disk_free_bytes = uint64_t{room.f_bavail} * room.f_frsize;
    if (room.f_files > 0) facts.inodes_free = room.f_favail;
  }
  for (const auto& folder : config.shared_folders) {
    std::error_code error;
    std::string& why = facts.shared_folders[folder.native()];
    if (!fs::is_directory(folder, error)) {
      why = "is no folder here";
    } else if (::access(folder.c_str(), R_OK | W_OK | X_OK) != 0) {
      why = std::strerror(errno);
    }
  }
}

void GatherNetwork(const Config& config, NodeFacts& facts) {
  facts.imgd = TryToReach(SplitGrpcAddress(config.server).address, kNetworkPatience);
  facts.own_address = config.address;
  if (facts.own_address.empty() && !facts.imgd.addresses.empty()) {
    auto address = LocalAddressTowards(SplitGrpcAddress(config.server).address);
    (address ? facts.own_address : facts.own_address_error) =
        address ? std::move(*address) : address.error().ToString();
  }
  if (!facts.own_address.empty()) {
    if (const auto here = ListenOn(facts.own_address); !here)
      facts.own_address_error = here.error().ToString();
  }
  const auto metrics = SplitHostPort(config.metrics_listen, 0);
  if (!metrics) return;
  facts.metrics_are_served = !facts.agent.empty() && ListensOn(facts.agent, std::stoi(metrics->port));
  if (facts.metrics_are_served) return;
  if (const auto free = ListenOn(metrics->host, metrics->port); !free) {
    facts.metrics_error = free.error().ToString();
  }
}

/// Whether imgd still takes it, imgd alone knows.
std::string WhyNotByToken(const Config& config) {
  const auto token = ReadJoinToken(config.token_file);
  if (!token) return token.error().message;
  if (!HasJoinedBy(*token, config.state_dir)) return "";
  return fmt::format("{}: this node has used it already", config.token_file.native());
}

/// Whose certificate it is.
std::string NodeOf(const tls::CertificateFacts& facts) {
  constexpr std::string_view kUri = "URI:imgd://node/";
  for (const auto& name : facts.names) {
    if (const size_t end = name.rfind('/'); name.starts_with(kUri) && end >= kUri.size())
      return PercentDecode(name.substr(kUri.size(), end - kUri.size()));
  }
  return "";
}

void GatherCertificate(const Config& config, NodeFacts& facts) {
  const GrpcAddress imgd = SplitGrpcAddress(config.server);
  const auto where = SplitHostPort(imgd.address, 1);
  facts.is_loopback = where && IsLoopbackHost(where->host);
  // CompleteConfig() takes the scheme off.
  facts.tls = imgd.is_said ? imgd.tls : config.tls;
  facts.has_join_token = !config.token_file.empty() && ::access(config.token_file.c_str(), R_OK) == 0;
  if (facts.has_join_token) facts.join_token_error = WhyNotByToken(config);
  facts.is_instance = config.join_as_ec2;
  if (facts.is_instance) {
    if (const auto found = FetchEc2Identity(Ec2MetadataAddress()); !found)
      facts.ec2_error = found.error().message;
  }
  if (!facts.tls || !where) return;
  const auto text = [&config](const char* name) { return ReadFile(config.state_dir / name).value_or(""); };
  const std::string certificate = text("node.crt");
  const auto node = tls::FactsOf(certificate);
  if (!node) return;
  const SystemClock clock;
  facts.certificate_left_seconds = (node->not_after.micros - clock.Wall().micros) / 1'000'000;
  // One that ran out is not shown: the agent renews it first.
  const bool shown = *facts.certificate_left_seconds > 0;
  const auto why = tls::WhyNoTls({.host = where->host,
                                  .port = where->port,
                                  .timeout = kNetworkPatience,
                                  .ca = text("ca.crt"),
                                  .certificate = shown ? certificate : "",
                                  .key = shown ? text("node.key") : ""},
                                 clock);
  if (why && why->code != ErrorCode::kUnavailable) facts.tls_error = why->ToString();
  if (why) return;
  NodeKey key({.server = imgd.address,
               .node = NodeOf(*node),
               .agent_id = "",
               .folder = config.state_dir,
               .token_file = {},
               .patience = kNetworkPatience},
              &clock);
  const auto renewable = key.TryRenewal();
  if (!renewable && renewable.error().code == ErrorCode::kPermissionDenied)
    facts.renewal_error = renewable.error().message;
}

NodeFacts GatherNodeFacts(const Config& config, const std::string& error) {
  NodeFacts facts{.config_error = error, .cpu_slots = config.cpu_slots, .wants_gpus = config.nvml != "none"};
  facts.agent = AgentOn(config.state_dir);
  GatherGpus(config, facts);
  GatherTrainer(config, facts);
  GatherLibraries(facts);
  GatherLimits(config, facts);
  GatherStateFolder(config, facts);
  GatherNetwork(config, facts);
  GatherCertificate(config, facts);
  GatherClock(config, facts);
  return facts;
}

}  // namespace imgd::doctor
