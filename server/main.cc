#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/log.h"
#include "common/sd_notify.h"
#include "common/version.h"
#include "server/config.h"
#include "server/daemon.h"

namespace {

using imgd::Error;

struct Flags {
  std::string config;
  std::string listen;
  std::string state_dir;
  std::string checkpoint_dir;
  std::string heartbeat;
  std::string lost_after;
  std::string start_timeout;
  std::string log_level;
  std::string log_kept_bytes;
  std::string events_kept;
  std::string events_kept_for;
  std::string report_timeout;
  std::string web_listen;
  const CLI::Option* web_listen_option = nullptr;  ///< an empty text is an answer too
  std::string web_certificate;
  std::string web_key;
  bool web_plain_http = false;
  bool check_config = false;
};

int Report(const std::vector<Error>& errors) {
  for (const auto& error : errors) std::cerr << "imgd: " << error.ToString() << "\n";
  return imgd::ExitCodeOf(errors.front().code);
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", std::string("imgd ") + imgd::kVersion);
  app.add_option("--config", flags.config, "Configuration file (YAML); deploy/imgd.yaml tells of each key");
  app.add_option("--listen", flags.listen,
                 "Address to serve on, HOST:PORT (127.0.0.1:7650); port 0 takes a free one");
  app.add_option("--state-dir", flags.state_dir, "Folder of the databases and logs (/var/lib/imgd)");
  app.add_option("--checkpoint-dir", flags.checkpoint_dir, "Checkpoints of jobs that name no folder");
  app.add_option("--heartbeat", flags.heartbeat, "Time between agents' heartbeats (3s)");
  app.add_option("--lost-after", flags.lost_after, "Silence after which a node is given up (45s)");
  app.add_option("--start-timeout", flags.start_timeout, "Time for all ranks to begin to train (10m)");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn or error (info)");
  app.add_option("--log-kept-bytes", flags.log_kept_bytes, "How much of each rank's log is kept (268435456)");
  app.add_option("--events-kept", flags.events_kept, "How many events imgcli events can show (100000)");
  app.add_option("--events-kept-for", flags.events_kept_for, "And for how long (30d)");
  app.add_option("--report-timeout", flags.report_timeout,
                 "Silence after which a run started by hand is given up (5m)");
  flags.web_listen_option = app.add_option(
      "--web-listen", flags.web_listen,
      "Address to serve HTTPS on, HOST:PORT (127.0.0.1:7651); port 0 takes a free one, '' is off");
  app.add_option("--web-certificate", flags.web_certificate,
                 "Certificate for HTTPS, PEM (one that imgd makes in its state folder)");
  app.add_option("--web-key", flags.web_key, "Key of the certificate, PEM");
  app.add_flag("--web-plain-http", flags.web_plain_http, "Serve plain HTTP, on a loopback address only");
  app.add_flag("--check-config", flags.check_config, "Check the configuration and exit");
}

/// The flags as a configuration file, so that they are read and checked the same way.
std::string AsYaml(const Flags& flags) {
  std::string yaml;
  const auto line = [&yaml](const char* key, const std::string& value) {
    std::string quoted = "'";
    for (const char c : value) quoted += c == '\'' ? std::string("''") : std::string(1, c);
    yaml += fmt::format("{}: {}'\n", key, quoted);
  };
  const auto add = [&line](const char* key, const std::string& value) {
    if (!value.empty()) line(key, value);
  };
  add("listen", flags.listen);
  add("state_dir", flags.state_dir);
  add("checkpoint_dir", flags.checkpoint_dir);
  add("heartbeat", flags.heartbeat);
  add("lost_after", flags.lost_after);
  add("start_timeout", flags.start_timeout);
  add("log_level", flags.log_level);
  add("log_kept_bytes", flags.log_kept_bytes);
  add("events_kept", flags.events_kept);
  add("events_kept_for", flags.events_kept_for);
  add("report_timeout", flags.report_timeout);
  yaml += "web:\n";
  if (flags.web_listen_option->count() > 0) line("  listen", flags.web_listen);
  add("  certificate", flags.web_certificate);
  add("  key", flags.web_key);
  if (flags.web_plain_http) yaml += "  plain_http: true\n";
  return yaml;
}

tl::expected<imgd::ServerConfig, std::vector<Error>> ReadConfig(const Flags& flags) {
  imgd::ServerConfig config;
  if (!flags.config.empty()) {
    const auto text = imgd::ReadFile(flags.config);
    if (!text) return tl::unexpected(std::vector<Error>{text.error()});
    auto parsed = imgd::ParseServerConfig(*text, flags.config);
    if (!parsed) return parsed;
    config = std::move(*parsed);
  }
  auto with_flags = imgd::ParseServerConfig(AsYaml(flags), "command line", config);
  if (!with_flags) return with_flags;
  if (auto checked = imgd::CheckServerConfig(*with_flags); !checked) {
    return tl::unexpected(std::vector<Error>{checked.error()});
  }
  return with_flags;
}

/// Tells systemd's watchdog that the core is alive, as often as it wants to know; called by the core itself.
std::function<void()> Watchdog(const imgd::Clock* clock) {
  const auto interval = imgd::SdWatchdogInterval();
  if (!interval) return {};
  return [clock, interval = *interval, next = imgd::Instant{}]() mutable {
    if (clock->Now() < next) return;
    next = clock->Now() + interval / 2;
    imgd::SdNotify("WATCHDOG=1");
  };
}

int Serve(const imgd::ServerConfig& config) {
  // Blocked in every thread and taken by this one, so that no handler runs in the middle of anything.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of that write, not the daemon's end

  const imgd::SystemClock clock;
  auto daemon = imgd::Daemon::Start(config, &clock, Watchdog(&clock));
  if (!daemon) return Report({daemon.error()});
  const auto address =
      fmt::format("{}:{}", config.listen.substr(0, config.listen.rfind(':')), (*daemon)->port());
  spdlog::info("msg=\"imgd {} serves on {}\" state_dir={}", imgd::kVersion, address, config.state_dir);
  imgd::SdNotify(fmt::format("READY=1\nSTATUS=serves on {}", address));

  int received = 0;
  while (::sigwait(&signals, &received) != 0) {
  }
  spdlog::info("msg=\"ends on signal {}; running jobs go on without it\"", received);
  imgd::SdNotify("STOPPING=1");
  daemon->reset();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("imgd: the central daemon. Stores jobs, decides what runs where, serves gRPC and HTTPS.");
  Flags flags;
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  const auto config = ReadConfig(flags);
  if (!config) return Report(config.error());
  if (auto set_up = imgd::SetUpLog("imgd", config->log_level); !set_up) return Report({set_up.error()});
  if (flags.check_config) {
    std::cout << "the configuration is good\n";
    return 0;
  }
  return Serve(*config);
}
