#include <sys/stat.h>

#include "common/checkpoint/retention.h"
#include "common/checkpoint/store.h"
#include "common/files.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;

}  // namespace

Status LocalCheckpoints::TryToWrite() const { return TryToWriteIn(root()); }

Result<CheckpointListing> LocalCheckpoints::List() const {
  CheckpointListing out;
  IMGD_ASSIGN(out.complete, ListCheckpoints(root()));
  IMGD_ASSIGN(out.unfinished, ListUnfinished(root()));
  return out;
}

Result<bool> LocalCheckpoints::IsComplete(const fs::path& folder) const { return IsCheckpoint(folder); }

CheckpointFacts LocalCheckpoints::Look(const CheckpointRef& ref) const {
  CheckpointFacts out{.pinned = IsPinned(ref.path)};
  struct stat facts {};
  if (::stat((ref.path / kCheckpointManifest).c_str(), &facts) == 0)
    out.written_us = int64_t{facts.st_mtim.tv_sec} * 1'000'000 + facts.st_mtim.tv_nsec / 1000;
  return out;
}

Result<std::string> LocalCheckpoints::Read(const CheckpointRef& ref, const std::string& name,
                                           size_t most_bytes) const {
  return ReadFile(ref.path / name, most_bytes);
}

Status LocalCheckpoints::Write(const CheckpointRef& ref, const std::string& name,
                               std::string_view content) const {
  return WriteFileAtomically(ref.path / name, content);
}

Result<CheckpointWriter> LocalCheckpoints::Begin(uint64_t generation, uint64_t step) const {
  return CheckpointWriter::Begin(root(), generation, step);
}

Result<CommittedCheckpoint> LocalCheckpoints::Commit(CheckpointWriter writer) const {
  return writer.Commit();
}

Status LocalCheckpoints::Pin(const CheckpointRef& ref, const std::string& why) const {
  return PinCheckpoint(ref.path, why);
}

Status LocalCheckpoints::Unpin(const CheckpointRef& ref) const { return UnpinCheckpoint(ref.path); }

Result<bool> LocalCheckpoints::Remove(const CheckpointRef& ref) const { return RemoveCheckpoint(ref.path); }

Status LocalCheckpoints::RemoveUnfinished(uint64_t generation) const {
  return RemoveUnfinishedCheckpoints(root(), generation);
}

}  // namespace imgd
