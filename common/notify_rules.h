#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/yaml.h"

namespace imgd {

/// What people are told of a job.
enum class NoticeEvent : int { kFinished = 0, kFailed = 1, kPreempted = 2, kStalled = 3 };

/// "finished" and so on, in the order of NoticeEvent.
const std::vector<std::string>& NoticeEventNames();
std::string_view NameOf(NoticeEvent event);

/// Who is told, and of what.
struct NotifyRule {
  std::string to;                 ///< name of a target in imgd.yaml
  std::vector<NoticeEvent> when;  ///< sorted, without repetitions; never empty
  bool operator==(const NotifyRule&) const = default;
};

/// The rules below `key`: a target's name, {to: NAME, when: [failed, stalled]}, or a list of such; without
/// `when`, of everything. An empty list is no rules; nothing, where the key is absent. Errors are the map's.
std::optional<std::vector<NotifyRule>> ReadNotifyRules(YamlMap& map, std::string_view key);

}  // namespace imgd
