#include "common/checkpoint/retention.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <set>

#include "common/checkpoint/summary.h"
#include "common/files.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;

/// What a folder's name begins with while it is being removed; no checkpoint's does.
constexpr std::string_view kRemoving = ".removing-";

Status RenameFolder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  return FailErrno(errno, fmt::format("cannot rename {} to {}", from.native(), to.native()));
}

Status RemoveAll(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) return FailErrno(error.value(), fmt::format("cannot remove {}", folder.native()));
  return {};
}

/// A removal that was broken off ends; one that met a pin is undone.
Status FinishRemovals(const fs::path& generation) {
  std::error_code error;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(generation, error)) {
    if (entry.path().filename().native().starts_with(kRemoving)) left.push_back(entry.path());
  }
  for (const auto& folder : left) {
    const fs::path original = generation / folder.filename().native().substr(kRemoving.size());
    if (IsPinned(folder) && !fs::exists(original, error)) {
      IMGD_TRY(RenameFolder(folder, original));
    } else {
      IMGD_TRY(RemoveAll(folder));
    }
  }
  return {};
}

bool AfterAMultiple(const CheckpointSummary& summary, const KeepRule& rule) {
  const uint64_t step = summary.ref.step;
  if (rule.every_steps > 0 && step % static_cast<uint64_t>(rule.every_steps) == 0) return true;
  if (rule.every_epochs == 0 || !summary.epoch) return false;
  const double epochs = *summary.epoch;
  return epochs == std::floor(epochs) && std::fmod(epochs, rule.every_epochs) == 0;
}

/// The folders of those that the rule keeps. `all` is newest first.
std::set<fs::path> KeptBy(const KeepRule& rule, const std::vector<CheckpointSummary>& all,
                          const CheckpointRef& newest) {
  std::set<fs::path> kept = {newest.path};
  for (const auto& summary : all) {
    if (static_cast<int>(kept.size()) < rule.newest) kept.insert(summary.ref.path);
  }
  const auto best = BestFirst(all);
  for (size_t i = 0; i < best.size() && i < static_cast<size_t>(rule.best); ++i)
    kept.insert(best[i].ref.path);
  for (const auto& summary : all) {
    if (AfterAMultiple(summary, rule)) kept.insert(summary.ref.path);
  }
  const auto good = std::find_if(all.begin(), all.end(), [&rule](const CheckpointSummary& summary) {
    return rule.is_good && rule.is_good(summary);
  });
  if (good != all.end()) kept.insert(good->ref.path);
  return kept;
}

}  // namespace

bool IsPinned(const fs::path& folder) {
  // One that can't be looked at may be there.
  std::error_code error;
  return fs::exists(folder / kCheckpointPin, error) || error;
}

Status PinCheckpoint(const fs::path& folder, const std::string& why) {
  if (!IsCheckpoint(folder)) {
    return Fail(ErrorCode::kNotFound, "{} is no complete checkpoint", folder.native());
  }
  IMGD_TRY(WriteFileAtomically(folder / kCheckpointPin, why + "\n"));
  // Whoever removes it looks for the pin once more after the folder has lost its name.
  if (!IsCheckpoint(folder)) {
    return Fail(ErrorCode::kNotFound, "{} was just being removed", folder.native());
  }
  return {};
}

Status UnpinCheckpoint(const fs::path& folder) {
  if (!IsCheckpoint(folder)) {
    return Fail(ErrorCode::kNotFound, "{} is no complete checkpoint", folder.native());
  }
  const fs::path pin = folder / kCheckpointPin;
  if (::unlink(pin.c_str()) == 0 || errno == ENOENT) return {};
  return FailErrno(errno, fmt::format("cannot remove {}", pin.native()));
}

Result<bool> RemoveCheckpoint(const fs::path& folder) {
  if (IsPinned(folder)) return false;
  const fs::path generation = folder.parent_path();
  const fs::path aside = generation / fmt::format("{}{}", kRemoving, folder.filename().native());
  IMGD_TRY(RemoveAll(aside));
  IMGD_TRY(RenameFolder(folder, aside));
  if (IsPinned(aside)) {
    IMGD_TRY(RenameFolder(aside, folder));
    return false;
  }
  IMGD_TRY(SyncFolder(generation));
  IMGD_TRY(RemoveAll(aside));
  ::rmdir(generation.c_str());  // fails where something is in it
  return true;
}

Status RemoveOldCheckpoints(const CheckpointStore& store, const CheckpointRef& newest, const KeepRule& rule) {
  IMGD_ASSIGN(auto all, SummarizeCheckpoints(store));
  std::erase_if(all, [&](const auto& summary) { return summary.ref.generation > newest.generation; });
  const auto kept = KeptBy(rule, all, newest);
  std::reverse(all.begin(), all.end());
  for (const auto& summary : all) {
    if (!kept.contains(summary.ref.path)) IMGD_TRY(store.Remove(summary.ref));
  }
  return store.RemoveUnfinished(newest.generation);
}

Status RemoveUnfinishedCheckpoints(const fs::path& root, uint64_t generation) {
  IMGD_ASSIGN(const auto unfinished, ListUnfinished(root));
  for (const auto& ref : unfinished) {
    if (ref.generation <= generation && !IsPinned(ref.path)) IMGD_TRY(RemoveAll(ref.path));
  }
  IMGD_ASSIGN(const auto generations, ListGenerations(root));
  for (const uint64_t number : generations) {
    if (number > generation) continue;
    const fs::path folder = GenerationPath(root, number);
    IMGD_TRY(FinishRemovals(folder));
    ::rmdir(folder.c_str());  // fails where something is in it
  }
  return {};
}

}  // namespace imgd
