#include <signal.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "common/files.h"
#include "common/grpc_locks.h"
#include "common/log.h"
#include "common/sd_notify.h"
#include "common/version.h"
#include "common/yaml.h"
#include "server/config.h"
#include "server/daemon.h"
#include "server/store/restore.h"

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
  bool tls_on_loopback = false;
  std::vector<std::string> tls_names;
  bool plain_text = false;
  bool check_config = false;
  bool dev = false;
  std::string restore;
  bool replace = false;
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
  flags.web_listen_option = app.add_option("--web-listen", flags.web_listen,
                                           "Address to serve HTTPS on, HOST:PORT (127.0.0.1:7651); port 0 "
                                           "takes a free one, '' (--web-listen=) is off");
  app.add_option("--web-certificate", flags.web_certificate,
                 "Certificate for HTTPS, PEM (one that imgd makes in its state folder)");
  app.add_option("--web-key", flags.web_key, "Key of the certificate, PEM");
  app.add_flag("--web-plain-http", flags.web_plain_http, "Serve plain HTTP, on a loopback address only");
  app.add_flag("--tls-on-loopback", flags.tls_on_loopback,
               "TLS, and tokens, on 127.0.0.1 too (elsewhere they always are)");
  app.add_option("--tls-name", flags.tls_names,
                 "A name or address that clients use for this machine, beside its own; may be repeated");
  app.add_flag("--plain-text-and-anyone-may-do-anything", flags.plain_text,
               "No TLS and no tokens for gRPC, wherever it listens: whoever reaches it may do anything");
  app.add_flag("--check-config", flags.check_config,
               "Check the configuration and the files that it names, and exit");
  app.add_option("--restore", flags.restore,
                 "Put this backup (imgcli admin backup) into the state folder, and exit");
  app.add_flag("--replace", flags.replace, "With --restore: set aside the state that the folder holds");
  app.add_flag("--dev", flags.dev,
               "To try things, without root: state in ~/.local/state/imgd, plain HTTP on "
               "loopback; says what to type next");
}

/// Where a user's own programs keep what they must remember, as the XDG base directory specification has it.
std::string UsersStateDir() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return std::string(state) + "/imgd";
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr && *home == '/' ? home : "/tmp") + "/.local/state/imgd";
}

/// What --dev stands for; the file and the other flags go before it.
imgd::ServerConfig BaseConfig(const Flags& flags) {
  imgd::ServerConfig config;
  if (!flags.dev) return config;
  config.state_dir = UsersStateDir();
  config.web.plain_http = true;
  return config;
}

void SayWhatIsNext(const imgd::ServerConfig& config, const std::string& address, int web_port) {
  fmt::print(
      "imgd keeps its state in {0}. Next, in another terminal:\n"
      "  imgagent --server {1} --state-dir {0}-agent --cpu-slots 2    # without --cpu-slots where there are "
      "GPUs\n"
      "  imgcli --server {1} nodes\n"
      "  imgcli dataset synth --classes 10 --per-class 200 --size 96x96 /tmp/shapes\n",
      config.state_dir, address);
  if (web_port != 0) {
    fmt::print("The dashboard: {}://{}:{}\n", config.web.plain_http ? "http" : "https",
               config.web.listen.substr(0, config.web.listen.rfind(':')), web_port);
  }
  std::fflush(stdout);
}

/// The flags as a configuration file, so that they are read and checked the same way.
std::string AsYaml(const Flags& flags) {
  std::string yaml;
  const auto line = [&yaml](const std::string& key, const std::string& value) {
    std::string quoted = "'";
    for (const char c : value) quoted += c == '\'' ? std::string("''") : std::string(1, c);
    yaml += fmt::format("{} {}'\n", key, quoted);
  };
  const auto add = [&line](const char* key, const std::string& value) {
    if (!value.empty()) line(fmt::format("{}:", key), value);
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
  if (flags.plain_text) yaml += "plain_text_and_anyone_may_do_anything: true\n";
  if (flags.tls_on_loopback || !flags.tls_names.empty()) yaml += "tls:\n";
  if (flags.tls_on_loopback) yaml += "  on_loopback: true\n";
  if (!flags.tls_names.empty()) yaml += "  names:\n";
  for (const auto& name : flags.tls_names) line("    -", name);
  yaml += "web:\n";
  if (flags.web_listen_option->count() > 0) line("  listen:", flags.web_listen);
  add("  certificate", flags.web_certificate);
  add("  key", flags.web_key);
  if (flags.web_plain_http) yaml += "  plain_http: true\n";
  return yaml;
}

/// Whether a file holds nothing but comments: one that is being written, or was emptied by mistake.
bool HasNoKeys(const std::string& text) {
  const auto root = imgd::YamlMap::Parse(text, "");
  return root && root->Keys().empty();
}

/// `again`, of a reload, takes no file without keys.
tl::expected<imgd::ServerConfig, std::vector<Error>> ReadConfig(const Flags& flags, bool again = false) {
  imgd::ServerConfig config = BaseConfig(flags);
  if (!flags.config.empty()) {
    const auto text = imgd::ReadFile(flags.config);
    if (!text) return tl::unexpected(std::vector<Error>{text.error()});
    if (again && HasNoKeys(*text)) {
      return tl::unexpected(std::vector<Error>{
          {.code = imgd::ErrorCode::kInvalidArgument,
           .message = "there is no key in it, and without policies and quotas jobs may have anything",
           .file = flags.config,
           .hint = "write what is to hold; only a restart takes a file without keys"}});
    }
    auto parsed = imgd::ParseServerConfig(*text, flags.config, config);
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

/// What the log says of a reload; whoever asked for one by a call is told by its answer.
void SayReloaded(const imgd::ReloadAnswer& answer) {
  if (answer) return;  // the engine has said what is another
  for (const auto& error : answer.error()) spdlog::error("msg=\"{}\"", error.ToString());
}

int Restore(const imgd::ServerConfig& config, const Flags& flags) {
  const auto restored = imgd::RestoreBackup({.file = flags.restore,
                                             .state_dir = config.state_dir,
                                             .replace = flags.replace,
                                             .now = imgd::SystemClock().Wall()});
  if (!restored) {
    Error error = restored.error();
    // What is damaged was given to imgd; nothing of its own was lost.
    if (error.code == imgd::ErrorCode::kDataLoss) error.code = imgd::ErrorCode::kInvalidArgument;
    return Report({std::move(error)});
  }
  fmt::print("{} has the state of {}, by a backup of imgd {}\n", config.state_dir,
             imgd::RestoreTimeText(restored->made), restored->version);
  fmt::print("the next job is {}; starts from now on have the numbers from {} on\n", restored->next_job,
             restored->first_generation);
  if (!restored->set_aside.empty())
    fmt::print("what the folder held before is in {}\n", restored->set_aside.native());
  return 0;
}

int Serve(const imgd::ServerConfig& config, const Flags& flags) {
  // Blocked in every thread and taken by this one, so that no handler runs in the middle of anything.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGHUP);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of that write, not the daemon's end

  const imgd::SystemClock clock;
  imgd::ReadConfigFunction read_again;
  if (!flags.config.empty()) read_again = [&flags] { return ReadConfig(flags, true); };
  auto daemon = imgd::Daemon::Start(config, &clock, Watchdog(&clock), std::move(read_again));
  if (!daemon) return Report({daemon.error()});
  const auto address =
      fmt::format("{}:{}", config.listen.substr(0, config.listen.rfind(':')), (*daemon)->port());
  spdlog::info("msg=\"imgd {} serves on {}\" security={} state_dir={}", imgd::kVersion, address,
               config.UsesTls() ? "tls" : "plain", config.state_dir);
  imgd::SdNotify(fmt::format("READY=1\nSTATUS=serves on {}", address));
  if (flags.dev) SayWhatIsNext(config, address, (*daemon)->web_port());

  int received = 0;
  while (::sigwait(&signals, &received) != 0 || received == SIGHUP) {
    if (received == SIGHUP) (*daemon)->Reload("SIGHUP", SayReloaded);
    received = 0;
  }
  spdlog::info("msg=\"ends on signal {}; running jobs go on without it\"", received);
  imgd::SdNotify("STOPPING=1");
  daemon->reset();
  return 0;
}

/// `--web-listen=` is an empty text, which CLI11 would take from what comes next.
std::vector<std::string> WithEmptyTexts(int argc, char** argv) {
  std::vector<std::string> arguments(argv, argv + argc);
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string& argument = arguments[i];
    if (!argument.starts_with("--") || argument.find('=') + 1 != argument.size()) continue;
    argument.pop_back();
    arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(++i), "");
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("imgd: the central daemon. Stores jobs, decides what runs where, serves gRPC and HTTPS.");
  Flags flags;
  AddFlags(app, flags);
  const auto arguments = WithEmptyTexts(argc, argv);
  std::vector<const char*> words;
  for (const auto& argument : arguments) words.push_back(argument.c_str());
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  imgd::LockWithoutDeadlockSearch();
  // What it keeps is for nobody else to read.
  ::umask(0027);
  const auto config = ReadConfig(flags);
  if (!config) return Report(config.error());
  if (auto set_up = imgd::SetUpLog("imgd", config->log_level); !set_up) return Report({set_up.error()});
  if (flags.check_config) {
    const imgd::SystemClock clock;
    if (const auto good = imgd::CheckFiles(*config, &clock); !good) return Report({good.error()});
    std::cout << "the configuration is good\n";
    return 0;
  }
  if (!flags.restore.empty()) return Restore(*config, flags);
  return Serve(*config, flags);
}
