#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <vector>

#include "common/checkpoint/prune.h"
#include "server/store/reader.h"

namespace imgd {

/// What imgd sees of jobs' checkpoints: those in folders that its machine has, too.
struct CheckpointSurvey {
  std::vector<EndedCheckpoints> ended;           ///< of jobs that left any
  std::map<JobId, std::filesystem::path> roots;  ///< their folders
  uint64_t ended_bytes = 0;
  uint64_t other_bytes = 0;  ///< of jobs that have not ended
  uint64_t unseen = 0;       ///< jobs that have ended, and left no folder here
};

/// Looks into the folders, which may take minutes; `stop` is asked between two. Runs that somebody started by
/// hand are left out: their folders are not imgd's. Errors: those of the databases; kCancelled where it was
/// stopped.
Result<CheckpointSurvey> SurveyCheckpoints(Reader& reader, const std::function<bool()>& stop = {});

/// What is to go by the rule. A job whose folder stands in the file of one that has not ended keeps
/// everything: that one may begin with it. Errors: those of the databases.
Result<std::vector<PrunedCheckpoint>> PlanPruneOf(const CheckpointSurvey& survey, const PruneRule& rule,
                                                  WallTime now, Reader& reader);

/// Removes it, unless it is pinned by now (false) or a link is on the way to it, which may lead anywhere:
/// whoever may submit jobs chooses the folder. Errors: kFailedPrecondition for a link; as the system calls.
Result<bool> RemovePruned(const std::filesystem::path& root, const CheckpointRef& ref);

}  // namespace imgd
