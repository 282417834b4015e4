#include "common/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/checkpoint/retention.h"
#include "common/files.h"
#include "common/sha256.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Names of the folders in `path`; none where it does not exist.
Result<std::vector<std::string>> FoldersIn(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored)) names.push_back(it->path().filename());
  }
  if (error && error.value() != ENOENT) {
    return FailErrno(error.value(), fmt::format("cannot list {}", path.native()));
  }
  return names;
}

/// The complete ones of a generation, or the others.
Status AddGeneration(const fs::path& root, uint64_t generation, bool complete,
                     std::vector<CheckpointRef>& out) {
  const fs::path folder = GenerationPath(root, generation);
  IMGD_ASSIGN(const auto names, FoldersIn(folder));
  for (const auto& name : names) {
    const auto step = NumberIn(name, "step");
    if (step && IsCheckpoint(folder / name) == complete) out.push_back({folder / name, generation, *step});
  }
  return {};
}

Result<std::vector<CheckpointRef>> ListFolders(const fs::path& root, bool complete) {
  std::vector<CheckpointRef> out;
  IMGD_ASSIGN(const auto generations, ListGenerations(root));
  for (const uint64_t generation : generations) IMGD_TRY(AddGeneration(root, generation, complete, out));
  NewestFirst(out);
  return out;
}

}  // namespace

std::optional<uint64_t> NumberIn(const std::string& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  uint64_t value = 0;
  const char* begin = name.data() + prefix.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), value);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return value;
}

void NewestFirst(std::vector<CheckpointRef>& refs) {
  std::sort(refs.begin(), refs.end(), [](const CheckpointRef& a, const CheckpointRef& b) {
    return std::tie(a.generation, a.step, a.path) > std::tie(b.generation, b.step, b.path);
  });
  const auto same = [](const CheckpointRef& a, const CheckpointRef& b) { return a.path == b.path; };
  refs.erase(std::unique(refs.begin(), refs.end(), same), refs.end());
}

fs::path CheckpointRoot(const JobSpec& spec, const fs::path& told) {
  if (!told.empty()) return told;
  return fs::path(spec.checkpoint.dir.empty() ? "checkpoints" : spec.checkpoint.dir) / spec.name;
}

fs::path CheckpointPath(const fs::path& root, uint64_t generation, uint64_t step) {
  return GenerationPath(root, generation) / fmt::format("step{}", step);
}

fs::path GenerationPath(const fs::path& root, uint64_t generation) {
  return root / fmt::format("g{}", generation);
}

bool IsCheckpoint(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kCheckpointManifest, ignored);
}

Result<std::vector<uint64_t>> ListGenerations(const fs::path& root) {
  std::vector<uint64_t> out;
  IMGD_ASSIGN(const auto names, FoldersIn(root));
  for (const auto& name : names) {
    if (const auto generation = NumberIn(name, "g")) out.push_back(*generation);
  }
  return out;
}

Result<std::vector<CheckpointRef>> ListCheckpoints(const fs::path& root) { return ListFolders(root, true); }

Result<std::vector<CheckpointRef>> ListUnfinished(const fs::path& root) { return ListFolders(root, false); }

Status SyncFolder(const fs::path& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) {
    return FailErrno(errno, fmt::format("cannot sync folder {}", folder.native()));
  }
  return {};
}

Status TryToWriteIn(const fs::path& root) {
  IMGD_TRY(MakeFolders(root));
  const fs::path probe = root / fmt::format(".imgtrain-{}", ::getpid());
  const UniqueFd fd(::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot write in {}", root.native()));
  ::unlink(probe.c_str());
  return {};
}

Result<CheckpointWriter> CheckpointWriter::Begin(const fs::path& root, uint64_t generation, uint64_t step) {
  CheckpointWriter writer({CheckpointPath(root, generation, step), generation, step}, root);
  const fs::path& folder = writer.ref_.path;
  if (IsCheckpoint(folder)) {
    const auto removed = RemoveCheckpoint(folder);
    writer.open_ = removed && *removed;
    if (!removed) return tl::unexpected(removed.error());
    if (!*removed) return Fail(ErrorCode::kAlreadyExists, "the checkpoint {} is pinned", folder.native());
  }
  IMGD_TRY(MakeFolders(folder));
  return writer;
}

CheckpointWriter::CheckpointWriter(CheckpointWriter&& other) noexcept
    : ref_(std::move(other.ref_)),
      root_(std::move(other.root_)),
      files_(std::move(other.files_)),
      open_(std::exchange(other.open_, false)) {}

CheckpointWriter::~CheckpointWriter() {
  if (!open_) return;
  std::error_code ignored;
  fs::remove_all(ref_.path, ignored);
}

Status CheckpointWriter::Add(const std::string& name, const std::vector<std::string_view>& pieces) {
  const fs::path path = ref_.path / name;
  const std::string temporary = path.native() + ".tmp";
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot create {}", temporary));
  Sha256 hash;
  uint64_t size = 0;
  for (const std::string_view piece : pieces) {
    IMGD_TRY(WriteAll(fd.get(), piece, temporary));
    hash.Update(piece);
    size += piece.size();
  }
  if (::fsync(fd.get()) != 0) return FailErrno(errno, fmt::format("cannot sync {}", temporary));
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    return FailErrno(errno, fmt::format("cannot rename {} to {}", temporary, path.native()));
  }
  files_.push_back({name, size, hash.Finish()});
  return {};
}

Status CheckpointWriter::AddTensors(const std::string& name, const std::vector<TensorView>& tensors,
                                    const Metadata& metadata) {
  IMGD_ASSIGN(const std::string head, SafetensorsHead(tensors, metadata));
  std::vector<std::string_view> pieces = {head};
  for (const auto& tensor : tensors) pieces.push_back(tensor.bytes);
  return Add(name, pieces);
}

Result<CommittedCheckpoint> CheckpointWriter::Commit() {
  CommittedCheckpoint out{.ref = ref_};
  Json json = {{"format", kCheckpointFormat}, {"step", ref_.step}, {"generation", ref_.generation}};
  json["files"] = Json::array();
  for (const auto& file : files_) {
    json["files"].push_back({{"name", file.name}, {"size", file.size}, {"sha256", file.sha256}});
    out.size_bytes += file.size;
  }
  const std::string manifest = json.dump(2) + "\n";
  out.manifest_sha256 = Sha256Of(manifest);
  out.size_bytes += manifest.size();
  // The names above the manifest must be on disk before it is.
  IMGD_TRY(SyncFolder(ref_.path));
  IMGD_TRY(SyncFolder(ref_.path.parent_path()));
  IMGD_TRY(SyncFolder(root_));
  IMGD_TRY(WriteFileAtomically(ref_.path / kCheckpointManifest, manifest));
  open_ = false;
  return out;
}

}  // namespace imgd
