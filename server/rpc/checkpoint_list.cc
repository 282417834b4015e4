#include "server/rpc/checkpoint_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "common/job_file.h"
#include "server/rpc/checkpoint_files.h"
#include "server/rpc/errors.h"

namespace imgd {
namespace {

/// Of which also those that are gone are listed.
constexpr int kMostGone = 1000;
constexpr size_t kPage = 1000;

/// Generation and step.
using Place = std::pair<uint64_t, uint64_t>;
using Scores = std::map<Place, v1::EpochMetrics>;

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
      out.emplace(Place(event.generation.value(), score.step()), score);
    return true;
  }));
  return out;
}

/// Whether it is there, which files it has, and whether somebody has pinned it.
void LookInto(v1::ReportedCheckpoint& out) {
  const auto folder = CheckpointFolder::Open(out.checkpoint().path(), out.checkpoint().manifest_sha256());
  if (!folder && folder.error().code == ErrorCode::kNotFound) {
    out.set_presence(v1::CHECKPOINT_PRESENCE_GONE);
    return;
  }
  if (!folder) {
    out.set_unseen(folder.error().ToString());
    return;
  }
  out.set_presence(v1::CHECKPOINT_PRESENCE_HERE);
  for (const auto& file : folder->files()) {
    auto& added = *out.add_files();
    added.set_name(file.name);
    added.set_size_bytes(file.size_bytes);
  }
  if (folder->pinned()) out.add_kept_as("pinned");
}

void AddPlaced(size_t place, int most, const char* first, const char* other, v1::ReportedCheckpoint& out) {
  if (place == 0) {
    out.add_kept_as(first);
  } else if (place < static_cast<size_t>(std::max(most, 0))) {
    out.add_kept_as(fmt::format("{} {}", other, place + 1));
  }
}

/// By the job file's rule, as the trainer applies it (common/checkpoint/retention.h). `all` is newest first.
void SayWhyKept(const JobSpec::Checkpoint& rule, const Scores& scores,
                std::vector<v1::ReportedCheckpoint*> all) {
  std::erase_if(all, [](const auto* one) { return one->presence() == v1::CHECKPOINT_PRESENCE_GONE; });
  for (size_t i = 0; i < all.size(); ++i) AddPlaced(i, rule.keep, "last", "newest", *all[i]);
  for (auto* one : all) {
    const uint64_t step = one->checkpoint().step();
    if (rule.keep_every_steps > 0 && step % static_cast<uint64_t>(rule.keep_every_steps) == 0)
      one->add_kept_as(fmt::format("every {} steps", rule.keep_every_steps));
    const auto score = scores.find(Place(one->checkpoint().generation(), step));
    if (rule.keep_every_epochs > 0 && score != scores.end() &&
        score->second.epoch() % static_cast<uint32_t>(rule.keep_every_epochs) == 0)
      one->add_kept_as(fmt::format("every {} epochs", rule.keep_every_epochs));
  }
  std::erase_if(all, [](const auto* one) { return !one->has_val_top1(); });
  std::ranges::stable_sort(all, std::ranges::greater(), &v1::ReportedCheckpoint::val_top1);
  for (size_t i = 0; i < all.size(); ++i) AddPlaced(i, rule.keep_best, "best", "best", *all[i]);
}

}  // namespace

Status FillCheckpoints(JobId id, Reader& reader, v1::ListCheckpointsResponse& out) {
  IMGD_ASSIGN(const auto row, reader.Job(id, true));
  if (!row) return tl::unexpected(NoJob(id));
  IMGD_ASSIGN(const auto scores, ScoresOf(id, reader));
  const auto unseen = WhyCheckpointsUnseen(row->job);
  IMGD_TRY(EachNewest(id, EventKind::kCheckpoint, reader, [&](const StoredEvent& event) {
    const bool old = out.checkpoints_size() >= kMostGone;
    v1::ReportedCheckpoint one;
    one.mutable_checkpoint()->ParseFromString(event.payload);
    const auto& written = one.checkpoint();
    one.set_time_us(event.time_us);
    one.set_name(CheckpointName(Generation(written.generation()), written.step()));
    if (const auto score = scores.find(Place(written.generation(), written.step())); score != scores.end())
      one.set_val_top1(score->second.val_top1());
    if (unseen) {
      one.set_unseen(unseen->ToString());
    } else {
      LookInto(one);
    }
    if (!old || one.presence() == v1::CHECKPOINT_PRESENCE_HERE) *out.add_checkpoints() = std::move(one);
    return !(old && unseen);
  }));
  const auto spec = ParseJobFile(row->yaml.value_or(""), "");
  auto& all = *out.mutable_checkpoints();
  SayWhyKept(spec ? spec->checkpoint : JobSpec::Checkpoint(), scores,
             {all.pointer_begin(), all.pointer_end()});
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
