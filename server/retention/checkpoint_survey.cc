#include "server/retention/checkpoint_survey.h"

#include <algorithm>
#include <set>

#include "common/checkpoint/retention.h"
#include "common/checkpoint/store.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;

bool IsSeen(const fs::path& root) {
  std::error_code ignored;
  return !root.empty() && !IsInS3(root) && fs::is_directory(root, ignored);
}

}  // namespace

Result<CheckpointSurvey> SurveyCheckpoints(Reader& reader, const std::function<bool()>& stop) {
  IMGD_ASSIGN(const auto jobs, reader.JobEnds());
  CheckpointSurvey out;
  for (const auto& job : jobs) {
    if (stop && stop()) return Fail(ErrorCode::kCancelled, "imgd ends");
    if (job.by_hand || job.checkpoint_dir.empty()) continue;
    const fs::path root = job.checkpoint_dir;
    if (!IsSeen(root)) {
      out.unseen += job.ended ? 1 : 0;
      continue;
    }
    // One that can't be read has nothing that could be removed.
    auto found = SummarizeCheckpoints(LocalCheckpoints(root));
    if (!found || found->empty()) continue;
    uint64_t& bytes = job.ended ? out.ended_bytes : out.other_bytes;
    for (const auto& checkpoint : *found) bytes += checkpoint.size_bytes;
    if (!job.ended) continue;
    out.roots[job.id] = root;
    out.ended.push_back({.job = job.id, .ended = job.at, .checkpoints = std::move(*found)});
  }
  return out;
}

Result<std::vector<PrunedCheckpoint>> PlanPruneOf(const CheckpointSurvey& survey, const PruneRule& rule,
                                                  WallTime now, Reader& reader) {
  std::vector<EndedCheckpoints> ended = survey.ended;
  uint64_t other_bytes = survey.other_bytes;
  while (true) {
    auto plan = PlanPrune(ended, other_bytes, rule, now);
    std::set<JobId> wanted;
    for (const auto& each : plan) {
      if (wanted.contains(each.job)) continue;
      IMGD_ASSIGN(const bool stands, reader.StandsInLiveFile(survey.roots.at(each.job).native()));
      if (stands) wanted.insert(each.job);
    }
    if (wanted.empty()) return plan;
    // What others want is as if it had not ended.
    std::erase_if(ended, [&](const EndedCheckpoints& job) {
      if (!wanted.contains(job.job)) return false;
      for (const auto& checkpoint : job.checkpoints) other_bytes += checkpoint.size_bytes;
      return true;
    });
  }
}

Result<bool> RemovePruned(const fs::path& root, const CheckpointRef& ref) {
  for (const fs::path& folder : {root, ref.path.parent_path(), ref.path}) {
    std::error_code error;
    if (fs::symlink_status(folder, error).type() != fs::file_type::directory)
      return Fail(ErrorCode::kFailedPrecondition, "{} is a link, which imgd does not follow",
                  folder.native());
  }
  return RemoveCheckpoint(ref.path);
}

}  // namespace imgd
