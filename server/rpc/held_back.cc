#include "server/rpc/held_back.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "server/core/explain.h"
#include "server/core/ranking.h"
#include "server/core/waits.h"

namespace imgd {
namespace {

constexpr size_t kMostTold = 3;
/// Of a larger sweep nobody is looked for.
constexpr uint32_t kMostMembers = 1000;

bool NeverStarts(const JobRecord& job) {
  if (job.state == JobState::kPaused) return std::ranges::any_of(job.after, IsBroken);
  return job.state == JobState::kQueued && job.reason.code == ReasonCode::kNeverFits;
}

/// Why it will not go on by itself: "is paused"; empty where it will.
std::string WhyItStands(const JobRecord& job) {
  if (job.state == JobState::kPaused) {
    return NeverStarts(job) ? fmt::format("is paused, and fails once it is resumed: {}", ExplainBroken(job))
                            : fmt::format("is paused (imgcli resume {} goes on with it)", job.id);
  }
  return NeverStarts(job) ? "could not start on the cluster as it is" : "";
}

/// Members that have their turn, but don't run.
Result<std::vector<std::string>> OfItsSweep(const JobRecord& record, Reader& reader) {
  std::vector<std::string> texts;
  IMGD_ASSIGN(const auto sweep, reader.SweepWith(record.id));
  if (!sweep || sweep->members > kMostMembers) return texts;
  const JobId end(sweep->id.value() + sweep->members);
  IMGD_ASSIGN(
      const auto rows,
      reader.Jobs({.states = {JobState::kQueued}, .before = end, .from = sweep->id, .most = kMostMembers}));
  for (auto row = rows.rbegin(); row != rows.rend() && texts.size() < kMostTold; ++row) {
    const ReasonCode code = row->job.reason.code;
    const bool held_back =
        code == ReasonCode::kSweepFull || code == ReasonCode::kAfterJob || code == ReasonCode::kNotBefore;
    if (held_back) continue;
    const std::string why = WhyItStands(row->job);
    texts.push_back(fmt::format("it is the turn of {}, which {}", NameOfJob(row->job.id, row->job.name),
                                why.empty() ? "waits itself" : why));
  }
  return texts;
}

/// Who comes before it and waits for the quota of this account; null for none.
const QueuedJob* FirstOf(const std::string& account, const JobRecord& record,
                         const std::vector<QueuedJob>& queue) {
  for (const auto& job : queue) {
    if (job.id == record.id) return nullptr;
    if (job.code == ReasonCode::kQuota && std::ranges::find(*job.accounts, account) != job.accounts->end())
      return &job;
  }
  return nullptr;
}

/// Who has devices that count for the accounts that leave it too few, or waits for what they leave.
Result<std::vector<std::string>> OfItsQuotas(const JobRecord& record, const ClusterView& view,
                                             Reader& reader) {
  const Snapshot& cluster = view.snapshot;
  std::vector<std::string> texts;
  for (const auto& account : AccountsOf(record)) {
    const auto allowance = cluster.allowances.find(account);
    if (allowance == cluster.allowances.end() || allowance->second.used_up) continue;
    if (allowance->second.Has(record.nodes * record.ranks_per_node)) {
      if (const QueuedJob* const first = FirstOf(account, record, view.queue))
        texts.push_back(
            fmt::format("{} waits for the quota of {}, too, before it", NameOfJob(cluster, *first), account));
      continue;
    }
    const bool of_user = account == UserOf(record);
    IMGD_ASSIGN(const auto rows,
                reader.Jobs({.states = {JobState::kStarting, JobState::kRunning, JobState::kPreempting},
                             .owner = of_user ? record.owner : "",
                             .most = kMostMembers}));
    size_t told = 0;
    size_t more = 0;
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
      if (!of_user && row->job.project != record.project) continue;
      if (told == kMostTold) {
        ++more;
        continue;
      }
      ++told;
      texts.push_back(fmt::format("{} has devices of {}{}", NameOfJob(row->job.id, row->job.name), account,
                                  ExplainEnd(cluster, row->job.id)));
    }
    if (more > 0)
      texts.push_back(fmt::format("{} more {} devices of {}", more, more == 1 ? "has" : "have", account));
  }
  return texts;
}

}  // namespace

Result<Standing> StandingOf(const std::vector<Dependency>& after, Reader& reader) {
  constexpr size_t kMostLookedAt = 100;  // of a large sweep not all
  Standing out;
  size_t looked_at = 0;
  for (const auto& dependency : after) {
    if (dependency.ended) continue;
    if (++looked_at > kMostLookedAt) break;
    IMGD_ASSIGN(const auto row, reader.Job(dependency.job, false));
    const std::string why = row ? WhyItStands(row->job) : "";
    if (why.empty()) continue;
    out.texts.push_back(fmt::format("{} {}", NameOfJob(row->job.id, row->job.name), why));
    out.never = out.never || NeverStarts(row->job);
    if (out.texts.size() == kMostTold) break;
  }
  return out;
}

void AddStanding(const Standing& standing, v1::Job& out) {
  std::string text = fmt::format("{}", fmt::join(standing.texts, "; "));
  if (!out.reason_text().empty()) text += "; " + out.reason_text();
  out.set_reason_text(text);
}

Status ExplainWhoHoldsItBack(const JobRecord& record, const ClusterView& view, Reader& reader, v1::Job& out) {
  std::vector<std::string> texts;
  if (record.state == JobState::kPaused) {
    if (const std::string broken = ExplainBroken(record); !broken.empty())
      texts.push_back(fmt::format("it fails once it is resumed: {}", broken));
  } else if (record.state != JobState::kQueued) {
    return {};
  } else if (record.reason.code == ReasonCode::kAfterJob) {
    IMGD_ASSIGN(auto standing, StandingOf(record.after, reader));
    texts = std::move(standing.texts);
  } else if (record.reason.code == ReasonCode::kSweepFull) {
    IMGD_ASSIGN(texts, OfItsSweep(record, reader));
  } else if (record.reason.code == ReasonCode::kQuota) {
    IMGD_ASSIGN(texts, OfItsQuotas(record, view, reader));
  }
  for (const auto& text : texts) out.set_reason_text(fmt::format("{}; {}", out.reason_text(), text));
  return {};
}

}  // namespace imgd
