#include "server/notify/notices.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "imgd/v1/common.pb.h"

namespace imgd {
namespace {

using nlohmann::json;

/// A reason may quote a line of somebody's log.
constexpr size_t kMostReasonBytes = 2000;

std::string TimeText(WallTime time) {
  const auto seconds = static_cast<std::time_t>(time.micros / 1'000'000);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), time.micros / 1000 % 1000);
}

json TimeOrNull(WallTime time) { return time.micros == 0 ? json() : json(TimeText(time)); }

std::vector<std::string> SplitAt(const std::string& text, char separator) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

const std::vector<NotifyRule>& OperatorsRules(const NotifyConfig& config, const JobRecord& job) {
  if (const auto user = config.users.find(job.owner); user != config.users.end()) return user->second;
  if (const auto project = config.projects.find(job.project); project != config.projects.end())
    return project->second;
  return config.all;
}

}  // namespace

std::optional<NoticeEvent> NoticeEventOf(const AppendEvent& event) {
  // What is heard of a job after its end is a row too.
  if (!event.first && event.from == event.to) return std::nullopt;
  if (event.to == JobState::kCompleted) return NoticeEvent::kFinished;
  if (event.to == JobState::kFailed) return NoticeEvent::kFailed;
  if (event.first || event.to != JobState::kQueued) return std::nullopt;
  switch (event.reason.code) {
    case ReasonCode::kPreempted:
    case ReasonCode::kSpotNotice:
      return NoticeEvent::kPreempted;
    case ReasonCode::kRankStuck:
      return NoticeEvent::kStalled;
    default:
      return std::nullopt;
  }
}

std::string EncodeRules(const std::vector<NotifyRule>& rules) {
  std::string out;
  for (const auto& rule : rules) {
    if (!out.empty()) out += ' ';
    out += rule.to;
    for (size_t i = 0; i < rule.when.size(); ++i) {
      out += i == 0 ? ':' : ',';
      out += NameOf(rule.when[i]);
    }
  }
  return out;
}

std::vector<NotifyRule> DecodeRules(const std::string& text) {
  const auto& names = NoticeEventNames();
  std::vector<NotifyRule> rules;
  for (const auto& word : SplitAt(text, ' ')) {
    const size_t colon = std::min(word.find(':'), word.size());
    NotifyRule rule{.to = word.substr(0, colon)};
    for (const auto& name : SplitAt(word.substr(std::min(colon + 1, word.size())), ',')) {
      const auto known = std::find(names.begin(), names.end(), name);
      if (known != names.end()) rule.when.push_back(static_cast<NoticeEvent>(known - names.begin()));
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

std::vector<std::string> TargetsOf(const NotifyConfig& config, const std::optional<std::string>& own,
                                   const JobRecord& job, NoticeEvent event) {
  std::vector<std::string> targets;
  for (const auto& rule : own ? DecodeRules(*own) : OperatorsRules(config, job)) {
    const bool told = std::find(rule.when.begin(), rule.when.end(), event) != rule.when.end();
    if (told && config.targets.contains(rule.to)) targets.push_back(rule.to);
  }
  return targets;
}

Notification MakeNotice(const NotifyConfig& config, const std::string& cluster, const JobRecord& job,
                        const AppendEvent& event, uint64_t number, const std::string& target) {
  const auto what = NoticeEventOf(event);
  Notification notice{.id = fmt::format("{}-{}-{}-{}", cluster, job.id, number, target),
                      .job = job.id,
                      .target = target,
                      .created = event.time};
  json body = {
      {"id", notice.id},
      {"type", fmt::format("job.{}", what ? NameOf(*what) : "changed")},
      {"timestamp", TimeText(event.time)},
      {"cluster", cluster},
      {"job",
       {{"id", job.id.value()},
        {"name", job.name},
        {"owner", job.owner},
        {"project", job.project},
        {"state", v1::JobState_Name(static_cast<v1::JobState>(event.to))},
        {"reason", v1::ReasonCode_Name(static_cast<v1::ReasonCode>(event.reason.code))},
        {"reason_text", event.reason.text.substr(0, kMostReasonBytes)},
        {"event", number},
        {"generation", event.generation.value()},
        {"restarts", job.restarts},
        {"submitted", TimeText(job.submitted)},
        {"started", TimeOrNull(job.started)},
        {"ended", IsFinal(event.to) ? json(TimeText(event.time)) : json()}}},
  };
  if (!config.dashboard.empty()) body["job"]["url"] = fmt::format("{}/jobs/{}", config.dashboard, job.id);
  notice.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
  return notice;
}

}  // namespace imgd
