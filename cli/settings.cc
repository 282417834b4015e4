#include "cli/settings.h"

#include <pwd.h>
#include <unistd.h>

#include <charconv>

#include "cli/credentials.h"
#include "common/files.h"
#include "common/url.h"
#include "common/utf8.h"
#include "common/yaml.h"

namespace imgd::cli {
namespace {

constexpr const char* kDefaultHost = "127.0.0.1";
constexpr int kDefaultPort = 7650;

/// The address, with a scheme or without, and whether there was one.
Reply<std::pair<ServerAddress, bool>> FromText(const std::string& text, std::string source,
                                               const std::string& field) {
  const GrpcAddress split = SplitGrpcAddress(text);
  auto target = ParseServerAddress(split.address);
  if (!target) {
    Error error = std::move(target).error();
    error.message = fmt::format("{}: {}", field, error.message);
    return tl::unexpected(Errors{std::move(error)});
  }
  return std::pair(ServerAddress{.target = std::move(*target), .source = std::move(source), .tls = split.tls},
                   split.is_said);
}

/// What the user's file says; empty text for what it does not.
struct ConfigFile {
  std::string server;
  std::string models;
  std::string ca_file;
  std::string token_file;
};

Reply<ConfigFile> ReadConfig(const std::string& path, const std::string& text) {
  auto root = YamlMap::Parse(text, path);
  if (!root) return tl::unexpected(Errors{root.error()});
  auto server = root->String("server");
  auto models = root->String("models");
  auto ca_file = root->String("ca_file");
  auto token_file = root->String("token_file");
  if (server) {
    auto target = ParseServerAddress(SplitGrpcAddress(*server).address);
    if (!target) root->AddError("server", target.error().message, target.error().hint);
  }
  root->Finish();
  if (auto errors = root->Errors(); !errors.empty()) return tl::unexpected(std::move(errors));
  return ConfigFile{server.value_or(""), models.value_or(""), ca_file.value_or(""), token_file.value_or("")};
}

/// The user's file, or an empty one where there is none.
Reply<ConfigFile> UserConfig(const Environment& env) {
  const auto path = UserConfigPath(env);
  if (path.empty()) return ConfigFile();
  auto text = ReadFile(path);
  if (!text && text.error().code == ErrorCode::kNotFound) return ConfigFile();
  if (!text) return tl::unexpected(Errors{std::move(text).error()});
  return ReadConfig(path, *text);
}

}  // namespace

Result<std::string> ParseServerAddress(std::string_view text) {
  const auto refuse = [&](std::string hint) {
    auto failure = Fail(ErrorCode::kInvalidArgument, "found '{}' where HOST or HOST:PORT is expected", text);
    failure.value().hint = std::move(hint);
    return failure;
  };
  if (text.find("://") != std::string_view::npos) return refuse("leave out the scheme");
  if (text.empty() || text.find_first_of(" \t\n/") != std::string_view::npos) return refuse("");
  std::string_view host = text, port;
  if (text.front() == '[') {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return refuse("the bracket of an IPv6 address is not closed");
    host = text.substr(0, close + 1);
    if (close + 1 < text.size()) {
      if (text[close + 1] != ':') return refuse("");
      port = text.substr(close + 2);
      if (port.empty()) return refuse("");
    }
  } else if (const auto colon = text.find(':'); colon != std::string_view::npos) {
    if (text.find(':', colon + 1) != std::string_view::npos)
      return refuse("write an IPv6 address as [ADDRESS]:PORT");
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (host.empty() || port.empty()) return refuse("");
  }
  if (port.empty()) return fmt::format("{}:{}", host, kDefaultPort);
  int number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number < 1 || number > 65535) {
    return refuse("a port is a number from 1 to 65535");
  }
  return fmt::format("{}:{}", host, number);
}

std::string UserConfigPath(const Environment& env) {
  if (const auto xdg = env("XDG_CONFIG_HOME"); xdg.starts_with('/')) return xdg + "/imgd/config.yaml";
  if (const auto home = env("HOME"); !home.empty()) return home + "/.config/imgd/config.yaml";
  return "";
}

Reply<ServerAddress> ResolveServer(const std::string& flag, const Environment& env) {
  const std::string variable = env("IMGD_SERVER");
  auto config = UserConfig(env);
  // A file that does not decide keeps nobody from working.
  if (!config && flag.empty() && variable.empty()) return tl::unexpected(std::move(config).error());
  const ConfigFile file = config ? *config : ConfigFile();
  const std::string last = LastLogin(env);
  const auto found = [&] {
    if (!flag.empty()) return FromText(flag, "from --server", "--server");
    if (!variable.empty()) return FromText(variable, "from IMGD_SERVER", "IMGD_SERVER");
    if (!file.server.empty())
      return FromText(file.server, fmt::format("from {}", UserConfigPath(env)), "server");
    if (!last.empty()) return FromText(last, "from the last login", "login");
    return FromText(fmt::format("{}:{}", kDefaultHost, kDefaultPort), "the default", "");
  }();
  if (!found) return tl::unexpected(found.error());
  auto [address, is_said] = *found;
  if (auto added = AddCredentials(address, is_said, file.ca_file, file.token_file, env); !added)
    return tl::unexpected(Errors{std::move(added).error()});
  return address;
}

Reply<std::string> ModelsInConfig(const Environment& env) {
  auto config = UserConfig(env);
  if (!config) return tl::unexpected(std::move(config).error());
  return config->models;
}

std::string OwnerName(const Environment& env) {
  for (const char* name : {"USER", "LOGNAME"}) {
    if (auto value = env(name); !value.empty()) return ToUtf8(value);
  }
  if (const passwd* entry = getpwuid(geteuid()); entry != nullptr) return ToUtf8(entry->pw_name);
  return fmt::format("uid-{}", geteuid());
}

}  // namespace imgd::cli
