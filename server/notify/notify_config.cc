#include "server/notify/notify_config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "common/text.h"
#include "common/url.h"

namespace imgd {
namespace {

constexpr size_t kMostTargets = 64;
constexpr size_t kMostAddresses = 50;

/// It goes to sendmail's command line and into a head.
bool IsAddress(const std::string& text) {
  return text.size() <= 254 && text.find('@') != std::string::npos && !text.starts_with('-') &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return c > ' ' && c < 0x7f &&
                  std::string_view("<>(),;:\\\"[]").find(static_cast<char>(c)) == std::string_view::npos;
         });
}

void CheckWebUrl(YamlMap& map, const char* key, const std::string& text) {
  const auto url = ParseUrl(text);
  if (!url) {
    map.AddError(key, url.error().message);
  } else if (url->scheme != "http" && url->scheme != "https") {
    map.AddError(key, "a URL with http:// or https:// is expected");
  } else if (!url->userinfo.empty()) {
    map.AddError(key, "has a user's name in it, which is not sent");
  }
}

void CheckFile(YamlMap& map, const char* key, const std::string& path) {
  if (!path.empty() && path.front() != '/') map.AddError(key, fmt::format("'{}' is no absolute path", path));
}

void ReadWebTarget(YamlMap& map, NotifyTarget& target) {
  const auto take = [&map](const char* key, std::string& field) {
    if (auto value = map.String(key)) field = std::move(*value);
  };
  take("url", target.url);
  take("url_file", target.url_file);
  take("ca_file", target.ca_file);
  if (target.kind == NotifyTarget::Kind::kWebhook) take("secret_file", target.secret_file);
  if (map.Has("url") == map.Has("url_file")) {
    map.AddError("url", "either url, or url_file with a file that has it, is expected");
  } else if (map.Has("url")) {
    CheckWebUrl(map, "url", target.url);
  }
  CheckFile(map, "url_file", target.url_file);
  CheckFile(map, "ca_file", target.ca_file);
  CheckFile(map, "secret_file", target.secret_file);
}

void ReadMailTarget(YamlMap& map, NotifyTarget& target) {
  if (auto to = map.StringList("to")) target.to = std::move(*to);
  if (target.to.empty() || target.to.size() > kMostAddresses)
    map.AddError("to", fmt::format("1 to {} addresses are expected", kMostAddresses));
  for (std::string address : target.to) {
    if (const auto user = address.find("{user}"); user != std::string::npos) address.replace(user, 6, "user");
    if (!IsAddress(address)) map.AddError("to", fmt::format("found '{}', which is no address", address));
  }
}

NotifyTarget ReadTarget(YamlMap& map) {
  NotifyTarget target;
  const auto kind = map.Choice("kind", {"webhook", "slack", "email"});
  if (!map.Has("kind")) map.AddError("kind", "missing; webhook, slack or email is expected");
  if (kind == "slack") target.kind = NotifyTarget::Kind::kSlack;
  if (kind == "email") target.kind = NotifyTarget::Kind::kEmail;
  if (kind == "email") {
    ReadMailTarget(map, target);
  } else {
    ReadWebTarget(map, target);
  }
  map.Finish();
  return target;
}

class NotifyReader {
 public:
  explicit NotifyReader(YamlMap& map) : map_(map) {}

  NotifyConfig Read() {
    ReadTargets();
    config_.all = RulesBelow(map_, "all");
    config_.users = NamedRules("users");
    config_.projects = NamedRules("projects");
    ReadSettings();
    return std::move(config_);
  }

 private:
  void ReadTargets() {
    auto targets = map_.Child("targets");
    for (const auto& name : targets.Keys()) {
      auto one = targets.Child(name);
      if (!IsName(name)) targets.AddError(name, fmt::format("found '{}'; {}", name, kNameRule));
      config_.targets[name] = ReadTarget(one);
    }
    if (config_.targets.size() > kMostTargets)
      map_.AddError("targets",
                    fmt::format("found {}; at most {} are allowed", config_.targets.size(), kMostTargets));
    targets.Finish();
  }

  std::vector<NotifyRule> RulesBelow(YamlMap& map, std::string_view key) {
    auto rules = ReadNotifyRules(map, key).value_or(std::vector<NotifyRule>{});
    for (const auto& rule : rules) {
      if (config_.targets.contains(rule.to) || !IsName(rule.to)) continue;
      map.AddError(key, fmt::format("there is no target '{}'", rule.to));
    }
    return rules;
  }

  std::map<std::string, std::vector<NotifyRule>> NamedRules(std::string_view key) {
    std::map<std::string, std::vector<NotifyRule>> out;
    auto names = map_.Child(key);
    for (const auto& name : names.Keys()) out[name] = RulesBelow(names, name);
    names.Finish();
    return out;
  }

  void ReadSettings() {
    if (auto dashboard = map_.String("dashboard")) {
      CheckWebUrl(map_, "dashboard", *dashboard);
      while (dashboard->ends_with('/')) dashboard->pop_back();
      config_.dashboard = std::move(*dashboard);
    }
    if (auto program = map_.String("sendmail")) config_.sendmail = std::move(*program);
    CheckFile(map_, "sendmail", config_.sendmail);
    if (auto from = map_.String("from")) config_.from = std::move(*from);
    if (!config_.from.empty() && !IsAddress(config_.from))
      map_.AddError("from", fmt::format("found '{}', which is no address", config_.from));
    ReadTime("timeout", 100, 5 * 60'000, config_.timeout_ms);
    ReadTime("give_up_after", 1'000, 30LL * 24 * 3600 * 1000, config_.give_up_after_ms);
    if (const auto most = map_.Int("most_pending", 1, 1'000'000)) config_.most_pending = *most;
  }

  void ReadTime(const char* key, int64_t least, int64_t most, int64_t& field) {
    const auto value = map_.DurationMs(key);
    if (!value) return;
    field = *value;
    if (*value < least || *value > most)
      map_.AddError(key, fmt::format("found {} ms; {} ms to {} s is allowed", *value, least, most / 1000));
  }

  YamlMap& map_;
  NotifyConfig config_;
};

}  // namespace

NotifyConfig ReadNotifications(YamlMap& root) {
  auto map = root.Child("notifications");
  NotifyConfig config = NotifyReader(map).Read();
  map.Finish();
  return config;
}

}  // namespace imgd
