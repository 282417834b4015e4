#include "server/rpc/checkpoint_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/job_file.h"
#include "server/rpc/checkpoint_files.h"
#include "server/rpc/errors.h"

namespace imgd {
namespace {

/// Of which also those that are gone are listed.
constexpr size_t kMostGone = 1000;
constexpr size_t kPage = 1000;

/// Step and generation.
using Place = std::pair<uint64_t, uint64_t>;
using Scores = std::map<Place, v1::EpochMetrics>;

/// A checkpoint as it is told of, and what the rule wants to know besides.
struct Listed {
  v1::ReportedCheckpoint shown;
  std::optional<double> epochs;  ///< done by then
};

/// The job's events of a kind, the newest first, until `take` says false.
Status EachNewest(JobId id, EventKind kind, Reader& reader,
                  const std::function<bool(const StoredEvent&)>& take) {
  uint64_t before = std::numeric_limits<int64_t>::max();
  while (true) {
    IMGD_ASSIGN(const auto events, reader.Newest(id, kind, kPage, before));
    for (const auto& event : events) {
      if (!take(event)) return {};
    }
    if (events.size() < kPage) return {};
    before = events.back().number;
  }
}

Result<Scores> ScoresOf(JobId id, Reader& reader) {
  Scores out;
  IMGD_TRY(EachNewest(id, EventKind::kEpoch, reader, [&out](const StoredEvent& event) {
    v1::EpochMetrics score;
    if (score.ParseFromString(event.payload))
      out.emplace(Place(score.step(), event.generation.value()), score);
    return true;
  }));
  return out;
}

/// Whether it is there, which files it has, whether somebody has pinned it, and what the trainer left in it.
void LookInto(const JobSpec::Checkpoint& rule, Listed& out) {
  auto& shown = out.shown;
  const auto& written = shown.checkpoint();
  const auto folder = CheckpointFolder::Open(written.path(), written.manifest_sha256());
  if (!folder && folder.error().code == ErrorCode::kNotFound) {
    shown.set_presence(v1::CHECKPOINT_PRESENCE_GONE);
    return;
  }
  if (!folder) {
    shown.set_unseen(folder.error().ToString());
    return;
  }
  shown.set_presence(v1::CHECKPOINT_PRESENCE_HERE);
  for (const auto& file : folder->files()) {
    auto& added = *shown.add_files();
    added.set_name(file.name);
    added.set_size_bytes(file.size_bytes);
  }
  if (folder->pinned()) shown.add_kept_as("pinned");
  if (const auto top1 = folder->Top1After(written.step())) shown.set_val_top1(*top1);
  if (rule.keep_every_epochs > 0) out.epochs = folder->EpochsDone();
}

/// Of one whose files imgd does not see: as the start reported that wrote it or, where that was cut short, a
/// later one that went on from it.
void TakeReported(const Scores& scores, Listed& out) {
  const auto& written = out.shown.checkpoint();
  const auto score = scores.lower_bound(Place(written.step(), written.generation()));
  if (score == scores.end() || score->first.first != written.step()) return;
  out.shown.set_val_top1(score->second.val_top1());
  out.epochs = score->second.epoch();
}

void AddPlaced(size_t place, int most, const char* first, const char* other, v1::ReportedCheckpoint& out) {
  if (place == 0) {
    out.add_kept_as(first);
  } else if (place < static_cast<size_t>(std::max(most, 0))) {
    out.add_kept_as(fmt::format("{} {}", other, place + 1));
  }
}

/// By the job file's rule, as the trainer applies it (common/checkpoint/retention.h). `listed` has the newest
/// first.
void SayWhyKept(const JobSpec::Checkpoint& rule, std::vector<Listed>& listed) {
  std::vector<Listed*> all;
  for (auto& one : listed) {
    if (one.shown.presence() != v1::CHECKPOINT_PRESENCE_GONE) all.push_back(&one);
  }
  for (size_t i = 0; i < all.size(); ++i) AddPlaced(i, rule.keep, "last", "newest", all[i]->shown);
  for (auto* one : all) {
    auto& shown = one->shown;
    const uint64_t step = shown.checkpoint().step();
    if (rule.keep_every_steps > 0 && step % static_cast<uint64_t>(rule.keep_every_steps) == 0)
      shown.add_kept_as(fmt::format("every {} steps", rule.keep_every_steps));
    if (rule.keep_every_epochs > 0 && one->epochs && std::fmod(*one->epochs, rule.keep_every_epochs) == 0)
      shown.add_kept_as(fmt::format("every {} epochs", rule.keep_every_epochs));
  }
  std::erase_if(all, [](const auto* one) { return !one->shown.has_val_top1(); });
  std::ranges::stable_sort(all, std::ranges::greater(),
                           [](const auto* one) { return one->shown.val_top1(); });
  for (size_t i = 0; i < all.size(); ++i) AddPlaced(i, rule.keep_best, "best", "best", all[i]->shown);
}

}  // namespace

Status FillCheckpoints(JobId id, Reader& reader, v1::ListCheckpointsResponse& out) {
  IMGD_ASSIGN(const auto row, reader.Job(id, true));
  if (!row) return tl::unexpected(NoJob(id));
  const auto spec = ParseJobFile(row->yaml.value_or(""), "");
  const auto rule = spec ? spec->checkpoint : JobSpec::Checkpoint();
  IMGD_ASSIGN(const auto scores, ScoresOf(id, reader));
  const auto unseen = WhyCheckpointsUnseen(row->job);
  std::vector<Listed> all;
  IMGD_TRY(EachNewest(id, EventKind::kCheckpoint, reader, [&](const StoredEvent& event) {
    const bool old = all.size() >= kMostGone;
    Listed one;
    auto& shown = one.shown;
    shown.mutable_checkpoint()->ParseFromString(event.payload);
    const auto& written = shown.checkpoint();
    shown.set_time_us(event.time_us);
    shown.set_name(CheckpointName(Generation(written.generation()), written.step()));
    if (unseen) {
      shown.set_unseen(unseen->ToString());
    } else {
      LookInto(rule, one);
    }
    const bool here = shown.presence() == v1::CHECKPOINT_PRESENCE_HERE;
    if (!here) TakeReported(scores, one);
    if (!old || here) all.push_back(std::move(one));
    return !(old && unseen);
  }));
  SayWhyKept(rule, all);
  for (auto& one : all) *out.add_checkpoints() = std::move(one.shown);
  return {};
}

Result<std::optional<v1::CheckpointWritten>> FindCheckpoint(JobId id, const std::string& name,
                                                            Reader& reader) {
  std::optional<v1::CheckpointWritten> out;
  IMGD_TRY(EachNewest(id, EventKind::kCheckpoint, reader, [&](const StoredEvent& event) {
    v1::CheckpointWritten written;
    if (!written.ParseFromString(event.payload)) return true;
    if (CheckpointName(Generation(written.generation()), written.step()) != name) return true;
    out = std::move(written);
    return false;
  }));
  return out;
}

}  // namespace imgd
