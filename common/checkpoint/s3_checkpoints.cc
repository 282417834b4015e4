#include "common/checkpoint/s3_checkpoints.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/files.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPinName = "pinned";
/// The manifest of one that is being removed.
constexpr const char* kRemovingName = "removing.json";

/// The trainer knows a broken collective by kUnavailable; a server that is away is none.
Error Ours(Error error) {
  if (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded)
    error.code = ErrorCode::kInternal;
  return error;
}

template <typename T>
Result<T> Ours(Result<T> result) {
  if (result) return result;
  return tl::unexpected<Error>(Ours(std::move(result).error()));
}

/// "g1/step500" as a checkpoint's place below `root`.
std::optional<CheckpointRef> RefOfKey(const fs::path& root, const std::string& key) {
  const size_t slash = key.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto generation = NumberIn(key.substr(0, slash), "g");
  const auto step = NumberIn(key.substr(slash + 1), "step");
  if (!generation || !step) return std::nullopt;
  return CheckpointRef{CheckpointPath(root, *generation, *step), *generation, *step};
}

/// Whether all that the manifest lists is there.
bool HasAll(const std::string& manifest, const std::map<std::string, S3Key>& files) {
  const auto json = nlohmann::json::parse(manifest, nullptr, false);
  if (!json.is_object() || !json.contains("files")) return false;
  return std::ranges::all_of(json["files"], [&](const auto& file) {
    return file.is_object() && file.contains("name") && file["name"].is_string() &&
           files.contains(file["name"].template get<std::string>());
  });
}

}  // namespace

/// Relative to the root's. Empty for what is not below it.
std::string S3Checkpoints::KeyOf(const fs::path& path) const {
  const std::string begin = root().native() + "/";
  return path.native().starts_with(begin) ? path.native().substr(begin.size()) : "";
}

Status S3Checkpoints::TryToWrite() const {
  const std::string probe = fmt::format(".imgtrain-{}", ::getpid());
  IMGD_TRY(Ours(folder_.Put(probe, "")));
  IMGD_TRY(Ours(folder_.List(probe)));
  return Ours(folder_.Delete(probe));
}

Result<S3Checkpoints::Found> S3Checkpoints::FindAll() const {
  IMGD_ASSIGN(auto keys, Ours(folder_.List()));
  Found out;
  for (auto& one : keys) {
    const size_t slash = one.key.rfind('/');
    if (slash == std::string::npos) continue;
    const std::string folder = one.key.substr(0, slash);
    const std::string name = one.key.substr(slash + 1);
    if (RefOfKey(root(), folder)) out[folder][name] = std::move(one);
  }
  return out;
}

Result<CheckpointListing> S3Checkpoints::List() const {
  IMGD_ASSIGN(const auto found, FindAll());
  CheckpointListing out;
  for (const auto& [key, files] : found) {
    auto& list = files.contains(kCheckpointManifest) ? out.complete : out.unfinished;
    list.push_back(*RefOfKey(root(), key));
  }
  NewestFirst(out.complete);
  NewestFirst(out.unfinished);
  return out;
}

Result<bool> S3Checkpoints::Has(const CheckpointRef& ref, const std::string& name) const {
  const std::string key = KeyOf(ref.path / name);
  if (key.empty()) return false;
  IMGD_ASSIGN(const auto content, Ours(folder_.Get(key)));
  return content.has_value();
}

Result<bool> S3Checkpoints::IsComplete(const fs::path& folder) const {
  return Has({.path = folder}, kCheckpointManifest);
}

CheckpointFacts S3Checkpoints::Look(const CheckpointRef& ref) const {
  CheckpointFacts out;
  const std::string key = KeyOf(ref.path);
  const auto files = folder_.List(key);
  if (!files) return {.pinned = true};
  for (const auto& file : *files) {
    if (file.key == key + "/" + kCheckpointManifest) out.written_us = file.changed_us;
    if (file.key == key + "/" + kPinName) out.pinned = true;
  }
  return out;
}

Result<std::string> S3Checkpoints::Read(const CheckpointRef& ref, const std::string& name,
                                        size_t most_bytes) const {
  IMGD_ASSIGN(auto content, Ours(folder_.Get(KeyOf(ref.path / name), most_bytes)));
  if (content) return std::move(*content);
  return Fail(ErrorCode::kNotFound, "{}: there is no such object", (ref.path / name).native());
}

Status S3Checkpoints::Write(const CheckpointRef& ref, const std::string& name,
                            std::string_view content) const {
  return Ours(folder_.Put(KeyOf(ref.path / name), content));
}

Result<CheckpointWriter> S3Checkpoints::Begin(uint64_t generation, uint64_t step) const {
  const CheckpointRef ref{CheckpointPath(root(), generation, step), generation, step};
  IMGD_ASSIGN(const bool removed, Remove(ref));
  if (!removed) return Fail(ErrorCode::kAlreadyExists, "the checkpoint {} is pinned", ref.path.native());
  std::error_code ignored;
  fs::remove_all(staging_, ignored);  // what a killed run left
  return CheckpointWriter::Begin(staging_, generation, step);
}

Result<CommittedCheckpoint> S3Checkpoints::Commit(CheckpointWriter writer) const {
  IMGD_ASSIGN(CommittedCheckpoint out, writer.Commit());
  const CheckpointRef staged = out.ref;
  out.ref.path = CheckpointPath(root(), staged.generation, staged.step);
  const auto uploaded = Upload(writer, staged, out.ref);
  std::error_code ignored;
  fs::remove_all(staging_, ignored);
  if (uploaded) return out;
  Error error = Ours(uploaded.error());
  error.message = "cannot upload a checkpoint: " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

Status S3Checkpoints::Upload(const CheckpointWriter& writer, const CheckpointRef& staged,
                             const CheckpointRef& ref) const {
  for (const auto& file : writer.files())
    IMGD_TRY(folder_.PutFile(KeyOf(ref.path / file.name), staged.path / file.name));
  IMGD_TRY(CompareSizes(writer, ref));
  IMGD_ASSIGN(const std::string manifest, ReadFile(staged.path / kCheckpointManifest));
  IMGD_ASSIGN(const bool ours, folder_.PutNew(KeyOf(ref.path / kCheckpointManifest), manifest));
  if (ours) return {};
  return Fail(ErrorCode::kFailedPrecondition,
              "another process has completed {} meanwhile; two runs write to one place", ref.path.native());
}

/// What is there against what was sent.
Status S3Checkpoints::CompareSizes(const CheckpointWriter& writer, const CheckpointRef& ref) const {
  IMGD_ASSIGN(const auto keys, folder_.List(KeyOf(ref.path)));
  for (const auto& file : writer.files()) {
    const auto found = std::ranges::find(keys, KeyOf(ref.path / file.name), &S3Key::key);
    if (found != keys.end() && found->bytes == file.size) continue;
    return Fail(ErrorCode::kDataLoss, "{}: {} bytes are there where {} were sent",
                (ref.path / file.name).native(), found == keys.end() ? 0 : found->bytes, file.size);
  }
  return {};
}

Status S3Checkpoints::Pin(const CheckpointRef& ref, const std::string& why) const {
  IMGD_ASSIGN(const bool complete, IsComplete(ref.path));
  if (!complete) return Fail(ErrorCode::kNotFound, "{} is no complete checkpoint", ref.path.native());
  IMGD_TRY(Write(ref, kPinName, why + "\n"));
  // Whoever removes it looks for the pin once more after the manifest has gone.
  IMGD_ASSIGN(const bool still, IsComplete(ref.path));
  if (still) return {};
  return Fail(ErrorCode::kNotFound, "{} was just being removed", ref.path.native());
}

Status S3Checkpoints::Unpin(const CheckpointRef& ref) const {
  IMGD_ASSIGN(const bool complete, IsComplete(ref.path));
  if (!complete) return Fail(ErrorCode::kNotFound, "{} is no complete checkpoint", ref.path.native());
  return Ours(folder_.Delete(KeyOf(ref.path / kPinName)));
}

Result<bool> S3Checkpoints::Remove(const CheckpointRef& ref) const {
  if (Look(ref).pinned) return false;
  const std::string key = KeyOf(ref.path);
  const std::string manifest_key = key + "/" + kCheckpointManifest;
  IMGD_ASSIGN(const auto manifest, Ours(folder_.Get(manifest_key)));
  if (manifest) {
    IMGD_TRY(Write(ref, kRemovingName, *manifest));
    IMGD_TRY(Ours(folder_.Delete(manifest_key)));
    IMGD_ASSIGN(const bool pinned, Has(ref, kPinName));
    if (pinned) {
      IMGD_TRY(Ours(folder_.PutNew(manifest_key, *manifest)));
      IMGD_TRY(Ours(folder_.Delete(key + "/" + kRemovingName)));
      return false;
    }
  }
  IMGD_TRY(RemoveFiles(key));
  return true;
}

/// Of one without a manifest; removing.json goes last.
Status S3Checkpoints::RemoveFiles(const std::string& key) const {
  IMGD_ASSIGN(const auto files, Ours(folder_.List(key)));
  const std::string last = key + "/" + kRemovingName;
  for (const auto& file : files) {
    if (file.key != last) IMGD_TRY(Ours(folder_.Delete(file.key)));
  }
  if (std::ranges::find(files, last, &S3Key::key) == files.end()) return {};
  return Ours(folder_.Delete(last));
}

/// A removal that was broken off ends; one that met a pin is undone.
Status S3Checkpoints::FinishOrUndo(const CheckpointRef& ref,
                                   const std::map<std::string, S3Key>& files) const {
  const bool pinned = files.contains(kPinName);
  if (files.contains(kRemovingName) && pinned) {
    IMGD_ASSIGN(const std::string manifest, Read(ref, kRemovingName));
    if (HasAll(manifest, files)) {
      IMGD_TRY(Ours(folder_.PutNew(KeyOf(ref.path / kCheckpointManifest), manifest)));
      return Ours(folder_.Delete(KeyOf(ref.path / kRemovingName)));
    }
  } else if (pinned) {
    return {};
  }
  return RemoveFiles(KeyOf(ref.path));
}

Status S3Checkpoints::RemoveUnfinished(uint64_t generation) const {
  IMGD_ASSIGN(const auto found, FindAll());
  for (const auto& [key, files] : found) {
    const auto ref = RefOfKey(root(), key);
    if (files.contains(kCheckpointManifest) || ref->generation > generation) continue;
    IMGD_TRY(FinishOrUndo(*ref, files));
  }
  const auto aborted = folder_.AbortUploads([&](const std::string& key) {
    const auto ref = RefOfKey(root(), key.substr(0, std::min(key.rfind('/'), key.size())));
    return ref && ref->generation <= generation;
  });
  if (aborted) return {};
  const ErrorCode code = aborted.error().code;
  // They only take room; not everybody may list them, and not every server can.
  if (code == ErrorCode::kPermissionDenied || code == ErrorCode::kFailedPrecondition) return {};
  return tl::unexpected<Error>(Ours(aborted.error()));
}

}  // namespace imgd
