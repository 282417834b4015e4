#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "agent/agent.h"
#include "agent/config.h"
#include "agent/doctor/facts.h"
#include "agent/event_loop.h"
#include "agent/identity.h"
#include "common/files.h"
#include "common/grpc_locks.h"
#include "common/labels.h"
#include "common/log.h"
#include "common/sd_notify.h"
#include "common/version.h"

namespace imgd {
namespace {

int Complain(const Error& error) {
  std::fprintf(stderr, "imgagent: %s\n", error.ToString().c_str());
  return ExitCodeOf(error.code);
}

/// What the command line says; what it does not say is empty.
struct Flags {
  std::string config_file;
  std::optional<std::string> server, token_file, join, ca_hash, node, state_dir, address, trainer, nvml,
      log_level, cgroup, metrics, spot_notices;
  std::optional<uint32_t> cpu_slots;
  std::vector<std::string> shared_folders;
  std::vector<std::string> labels;
  bool check_config = false;
  bool metrics_in_plain_text = false;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--config", flags.config_file,
                 "File with settings (agent.yaml); the command line goes before it");
  app.add_option(
      "--server", flags.server,
      "HOST:PORT of imgd (default 127.0.0.1:7650), by TLS but on loopback; http:// before it is plain text, "
      "https:// TLS");
  app.add_option("--token-file", flags.token_file,
                 "File with the join token by which this node joins the first time (imgcli node join-token)");
  app.add_option("--join", flags.join,
                 "token, or ec2: as the EC2 instance that this machine is, by its identity document (default "
                 "token)")
      ->check(CLI::IsMember({"token", "ec2"}));
  app.add_option("--ca-hash", flags.ca_hash,
                 "SHA-256 of imgd's CA, sha256:HEX, by which it is known before this node joins as an EC2 "
                 "instance");
  app.add_option("--node", flags.node,
                 "This node's name (default: the machine's; the id of an EC2 instance)");
  app.add_option("--state-dir", flags.state_dir,
                 "Folder for what must outlive the agent (default /var/lib/imgagent)");
  app.add_option("--cpu-slots", flags.cpu_slots, "CPU slots to offer where there is no GPU (default 0)");
  app.add_option("--trainer", flags.trainer,
                 "Program of each rank (default: imgtrain beside imgagent, or in PATH)");
  app.add_option("--address", flags.address,
                 "Address that other nodes reach this one at (default: that towards imgd)");
  app.add_option("--shared-folder", flags.shared_folders,
                 "Folder that other nodes see too; may be given several times");
  app.add_option(
      "--label", flags.labels,
      "NAME=VALUE for jobs to choose by (zone, fabric, placement_group, ...); may be given several "
      "times");
  app.add_option("--nvml", flags.nvml, "NVML library (default: the system's; none: look for no GPU)")
      ->envname("IMGD_NVML");
  app.add_option("--cgroup", flags.cgroup, "auto or off: a cgroup for each run's ranks where one can be made")
      ->check(CLI::IsMember({"auto", "off"}));
  app.add_option(
      "--metrics-listen", flags.metrics,
      "HOST:PORT to serve /metrics for Prometheus on; port 0: a free one, which the log names; relay: imgd "
      "asks for them, without a port here (default off)");
  app.add_flag("--metrics-in-plain-text", flags.metrics_in_plain_text,
               "Serve them on an address that other machines reach too, without password and encryption");
  app.add_option(
      "--spot-notices", flags.spot_notices,
      "Where to hear that this machine is being taken back: auto, off, the URL of a metadata service "
      "like EC2's, or the path of a file (default auto: EC2's, on its spot instances)");
  app.add_flag("--check-config", flags.check_config, "Check the settings and exit");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn or error (default info)");
}

/// The settings by file and command line, as they are given. Errors are on standard error already; nothing
/// then.
std::optional<Config> GivenSettings(const Flags& flags, int* exit_code) {
  Config config;
  if (const char* folder = std::getenv("STATE_DIRECTORY"); folder != nullptr) config.state_dir = folder;
  if (!flags.config_file.empty()) {
    const auto text = ReadFile(flags.config_file);
    if (!text) {
      *exit_code = Complain(text.error());
      return std::nullopt;
    }
    auto parsed = ParseConfig(*text, flags.config_file, config);
    if (!parsed) {
      for (const auto& error : parsed.error()) *exit_code = Complain(error);
      return std::nullopt;
    }
    config = std::move(*parsed);
  }
  if (flags.server) config.server = *flags.server;
  if (flags.token_file) config.token_file = *flags.token_file;
  if (flags.join) config.join_as_ec2 = *flags.join == "ec2";
  if (flags.ca_hash) config.ca_hash = *flags.ca_hash;
  if (flags.node) config.node = *flags.node;
  if (flags.state_dir) config.state_dir = *flags.state_dir;
  if (flags.address) config.address = *flags.address;
  if (flags.cpu_slots) config.cpu_slots = *flags.cpu_slots;
  if (flags.trainer) config.trainer = *flags.trainer;
  if (flags.nvml) config.nvml = *flags.nvml;
  if (flags.log_level) config.log_level = *flags.log_level;
  if (flags.spot_notices) config.spot_notices = *flags.spot_notices;
  if (flags.metrics) config.metrics_listen = *flags.metrics;
  if (flags.metrics_in_plain_text) config.metrics_in_plain_text = true;
  if (flags.cgroup) config.use_cgroup = *flags.cgroup == "auto";
  if (!flags.shared_folders.empty()) {
    config.shared_folders.assign(flags.shared_folders.begin(), flags.shared_folders.end());
  }
  for (const auto& label : flags.labels) {
    if (const auto added = AddLabel(label, config.labels); !added) {
      *exit_code = Complain(added.error());
      return std::nullopt;
    }
  }
  return config;
}

/// The settings, completed and checked. Errors as above.
std::optional<Config> ReadSettings(const Flags& flags, int* exit_code) {
  auto given = GivenSettings(flags, exit_code);
  if (!given) return std::nullopt;
  auto complete = CompleteConfig(std::move(*given));
  if (!complete) {
    *exit_code = Complain(complete.error());
    return std::nullopt;
  }
  return std::move(*complete);
}

/// `--check-config`, of settings that were completed: what is left is what only this machine can say.
int ReportGoodSettings(const Config& config) {
  for (const auto& folder : config.shared_folders) {
    if (const auto good = CheckSharedFolder(folder); !good) return Complain(good.error());
  }
  std::puts("the settings are good");
  return 0;
}

/// gRPC and protobuf write to standard error by themselves; what matters of it comes back as errors of ours.
void QuietLibraries() {
  gpr_set_log_function([](gpr_log_func_args* args) { spdlog::debug("grpc=\"{}\"", args->message); });
  google::protobuf::SetLogHandler([](google::protobuf::LogLevel, const char*, int, const std::string& text) {
    spdlog::debug("protobuf=\"{}\"", text);
  });
}

/// The program of shims, beside this one or, where packages put it, in lib/imgd. Held open: an agent starts
/// the shims that it came with, though it be replaced on disk meanwhile.
Result<UniqueFd> OpenShim() {
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& folder : {here, here.parent_path() / "lib/imgd"}) {
    UniqueFd fd(::open((folder / "imgagent-shim").c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.valid()) return fd;
  }
  return Fail(ErrorCode::kFailedPrecondition, "imgagent-shim is neither beside imgagent, in {}, nor in {}",
              here.native(), (here.parent_path() / "lib/imgd").native());
}

Status RunAgent(const Config& config) {
  IMGD_TRY(SetUpLog("imgagent", config.log_level));
  QuietLibraries();
  // Before any thread is made, so that all of them leave these signals to the descriptor.
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&taken, signal);
  ::sigprocmask(SIG_BLOCK, &taken, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  const UniqueFd signals(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  IMGD_ASSIGN(const auto loop, EventLoop::Create());
  IMGD_TRY(loop->Watch(signals.get(), EPOLLIN, [&](uint32_t) { loop->Stop(); }));
  IMGD_ASSIGN(const auto shim, OpenShim());
  IMGD_ASSIGN(auto agent,
              Agent::Create(loop.get(), config, fmt::format("/proc/{}/fd/{}", ::getpid(), shim.get())));
  SdNotify("READY=1");
  loop->Run();
  SdNotify("STOPPING=1");
  spdlog::info("node={} msg=\"imgagent ends; its runs go on\"", config.node);
  return {};
}

/// `imgagent doctor`: what is wrong with this machine, and what to do about it.
int RunDoctor(const Flags& flags, const std::string& format) {
  int exit_code = 0;
  auto config = GivenSettings(flags, &exit_code);
  if (!config) return exit_code;
  // The checks say what is wrong by themselves, not the log.
  spdlog::set_level(spdlog::level::off);
  std::string error;
  auto complete = CompleteConfig(*config);
  if (complete) {
    config = std::move(*complete);
  } else {
    error = complete.error().ToString();
  }
  const auto lines = doctor::ExamineNode(doctor::GatherNodeFacts(*config, error));
  const auto report = doctor::Report(lines, format);
  if (!report) return Complain(report.error());
  std::fputs(report->c_str(), stdout);
  return doctor::ExitCodeOf(lines);
}

}  // namespace
}  // namespace imgd

int main(int argc, char** argv) {
  CLI::App app("The agent of imgd on a node: joins it to the daemon and runs the ranks of its jobs");
  app.set_version_flag("--version", std::string("imgagent ") + imgd::kVersion);
  imgd::Flags flags;
  imgd::AddFlags(app, flags);
  std::string format = "text";
  auto* doctor_command =
      app.add_subcommand("doctor", "Says what keeps this machine from running jobs, and what to do about it");
  doctor_command->fallthrough();
  doctor_command->add_option("-o,--output", format, "text or json (default text)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (doctor_command->parsed()) return imgd::RunDoctor(flags, format);
  int exit_code = 0;
  const auto config = imgd::ReadSettings(flags, &exit_code);
  if (!config) return exit_code;
  if (flags.check_config) return imgd::ReportGoodSettings(*config);
  imgd::LockWithoutDeadlockSearch();
  const auto ran = imgd::RunAgent(*config);
  return ran ? 0 : imgd::Complain(ran.error());
}
