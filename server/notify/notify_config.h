#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/notify_rules.h"
#include "common/yaml.h"

namespace imgd {

/// A way to tell somebody something. Of the secrets there are only the names of their files.
struct NotifyTarget {
  enum class Kind { kWebhook, kSlack, kEmail } kind = Kind::kWebhook;
  std::string url;              ///< of kWebhook and kSlack; empty where `url_file` has it
  std::string url_file;         ///< file with the URL, where that is a secret
  std::string secret_file;      ///< of kWebhook: what messages are signed with; empty: they are not
  std::string ca_file;          ///< certificates to trust in place of the system's
  std::vector<std::string> to;  ///< of kEmail: addresses, in which {user} is the job's owner

  bool operator==(const NotifyTarget&) const = default;
};

/// `notifications` in imgd.yaml.
struct NotifyConfig {
  std::map<std::string, NotifyTarget> targets;  ///< by name
  // Of jobs whose file does not say: the owner's rules, else the project's, else those for all.
  std::vector<NotifyRule> all;
  std::map<std::string, std::vector<NotifyRule>> users;
  std::map<std::string, std::vector<NotifyRule>> projects;
  std::string dashboard;  ///< where people reach it, without a '/' at the end; empty: messages have no links
  std::string sendmail = "/usr/sbin/sendmail";
  std::string from;  ///< sender of e-mails; empty: sendmail's choice
  int64_t timeout_ms = 10'000;
  int64_t give_up_after_ms = 24LL * 3600 * 1000;
  int64_t most_pending = 10'000;

  bool operator==(const NotifyConfig&) const = default;
};

/// Errors are the map's.
NotifyConfig ReadNotifications(YamlMap& root);

}  // namespace imgd
