#include "common/notify_rules.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "common/text.h"

namespace imgd {
namespace {

constexpr size_t kMostRules = 20;

std::vector<NoticeEvent> AllNoticeEvents() {
  return {NoticeEvent::kFinished, NoticeEvent::kFailed, NoticeEvent::kPreempted, NoticeEvent::kStalled};
}

std::vector<NoticeEvent> ReadWhen(YamlMap& map) {
  const auto words = map.StringList("when");
  if (!map.Has("when")) return AllNoticeEvents();
  const auto& names = NoticeEventNames();
  std::vector<NoticeEvent> when;
  for (const auto& word : words.value_or(std::vector<std::string>{})) {
    const auto known = std::find(names.begin(), names.end(), word);
    if (known == names.end()) {
      const auto nearest = NearestWord(word, names);
      map.AddError("when", fmt::format("found '{}'; allowed: {}", word, fmt::join(names, ", ")),
                   nearest ? fmt::format("did you mean '{}'?", *nearest) : "");
    } else {
      when.push_back(static_cast<NoticeEvent>(known - names.begin()));
    }
  }
  std::sort(when.begin(), when.end());
  when.erase(std::unique(when.begin(), when.end()), when.end());
  if (words && words->empty()) map.AddError("when", "is empty; leave it out to be told of everything");
  return when;
}

}  // namespace

const std::vector<std::string>& NoticeEventNames() {
  static const std::vector<std::string> kNames = {"finished", "failed", "preempted", "stalled"};
  return kNames;
}

std::string_view NameOf(NoticeEvent event) { return NoticeEventNames()[static_cast<size_t>(event)]; }

std::optional<std::vector<NotifyRule>> ReadNotifyRules(YamlMap& map, std::string_view key) {
  if (const size_t count = map.ItemsOf(key); count > kMostRules) {
    map.AddError(key, fmt::format("found {} targets; at most {} are allowed", count, kMostRules));
    return std::nullopt;
  }
  std::vector<NotifyRule> rules;
  for (auto& item : map.Children(key, "to")) {
    NotifyRule rule;
    if (auto to = item.String("to")) rule.to = std::move(*to);
    if (!item.Has("to")) {
      item.AddError("to", "missing; the name of a target in imgd.yaml is expected");
    } else if (!IsName(rule.to)) {
      item.AddError("to", fmt::format("found '{}'; {}", rule.to, kNameRule));
    }
    rule.when = ReadWhen(item);
    item.Finish();
    const bool twice = std::any_of(rules.begin(), rules.end(),
                                   [&rule](const NotifyRule& other) { return other.to == rule.to; });
    if (twice) item.AddError("to", fmt::format("found '{}' a second time", rule.to));
    rules.push_back(std::move(rule));
  }
  if (!map.Has(key)) return std::nullopt;
  return rules;
}

}  // namespace imgd
