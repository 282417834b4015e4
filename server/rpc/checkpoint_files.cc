#include "server/rpc/checkpoint_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/retention.h"
#include "common/checkpoint/store.h"
#include "common/checkpoint/summary.h"
#include "common/sha256.h"

namespace imgd {
namespace {

/// A manifest has some hundred bytes, state.json the names of all classes.
constexpr size_t kMostJsonBytes = size_t{4} << 20;

/// Names a folder's own files: nothing that leads out of it, nothing that a header can't carry.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name.size() <= 128 && name.front() != '.' &&
         std::ranges::all_of(name, [](unsigned char c) {
           return c < 0x80 && (std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-');
         });
}

/// Why something of a checkpoint can't be opened.
Error CannotOpen(const std::filesystem::path& path, int number) {
  if (number == ENOENT || number == ENOTDIR)
    return {.code = ErrorCode::kNotFound, .message = fmt::format("there is no {} (any more)", path.native())};
  if (number == EACCES || number == EPERM) {
    return {.code = ErrorCode::kPermissionDenied,
            .message = fmt::format("imgd may not read {}", path.native()),
            .hint = "its files have to be readable for the user that imgd runs as"};
  }
  return FailErrno(number, fmt::format("cannot open {}", path.native())).value();
}

Result<std::string> ReadToEnd(int fd, const std::filesystem::path& path) {
  std::string out;
  char buffer[4096];
  while (true) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno(errno, fmt::format("cannot read {}", path.native()));
    if (n == 0) return out;
    out.append(buffer, static_cast<size_t>(n));
    if (out.size() > kMostJsonBytes)
      return Fail(ErrorCode::kDataLoss, "{} has more than {} bytes", path.native(), kMostJsonBytes);
  }
}

}  // namespace

std::string CheckpointName(Generation generation, uint64_t step) {
  return fmt::format("g{}-step{}", generation.value(), step);
}

std::optional<Error> WhyCheckpointsUnseen(const JobRecord& job) {
  const std::filesystem::path folder = job.checkpoint_dir;
  const auto unseen = [](std::string message, std::string hint) {
    return Error{
        .code = ErrorCode::kFailedPrecondition, .message = std::move(message), .hint = std::move(hint)};
  };
  if (IsInS3(folder)) {
    return unseen(fmt::format("the checkpoints are in S3 ({}), which imgd does not read", folder.native()),
                  "imgcli export and every S3 client do");
  }
  struct stat facts {};
  const int failed = ::stat(folder.c_str(), &facts) == 0 ? 0 : errno;
  if (failed == 0 && S_ISDIR(facts.st_mode)) return std::nullopt;
  if (failed == EACCES) {
    return unseen(fmt::format("imgd may not look into {}", folder.native()),
                  "the folder has to be readable for the user that imgd runs as");
  }
  return unseen(
      fmt::format("imgd's machine has no folder {}: the checkpoints are on the nodes that ran the job",
                  folder.native()),
      "where the folder is shared with imgd's machine, by the same path, they are seen here");
}

Result<CheckpointFolder> CheckpointFolder::Open(const std::filesystem::path& path,
                                                const std::string& manifest_sha256) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return tl::unexpected(CannotOpen(path, errno));
  CheckpointFolder folder(path, std::move(fd));
  IMGD_TRY(folder.ReadManifest(manifest_sha256));
  return folder;
}

/// Not blocking: a pipe in a file's place would be waited for.
Result<UniqueFd> CheckpointFolder::OpenIn(const std::string& name) const {
  UniqueFd fd(::openat(fd_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid() && errno == ELOOP)
    return Fail(ErrorCode::kNotFound, "{} is a link, which imgd does not follow", (path_ / name).native());
  if (!fd.valid()) return tl::unexpected(CannotOpen(path_ / name, errno));
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) return tl::unexpected(CannotOpen(path_ / name, errno));
  if (!S_ISREG(facts.st_mode)) return Fail(ErrorCode::kNotFound, "{} is no file", (path_ / name).native());
  return fd;
}

Result<std::string> CheckpointFolder::Read(const std::string& name) const {
  IMGD_ASSIGN(const UniqueFd fd, OpenIn(name));
  return ReadToEnd(fd.get(), path_ / name);
}

Status CheckpointFolder::ReadManifest(const std::string& sha256) {
  IMGD_ASSIGN(const std::string text, Read(kCheckpointManifest));
  if (!sha256.empty() && Sha256Of(text) != sha256)
    return Fail(ErrorCode::kDataLoss, "{} has another checkpoint than the one that the job wrote",
                path_.native());
  const auto manifest = nlohmann::json::parse(text, nullptr, false);
  const auto files = manifest.is_object() ? manifest.value("files", nlohmann::json()) : nlohmann::json();
  for (const auto& file : files) {
    if (!file.is_object()) continue;
    const auto name = file.value("name", nlohmann::json());
    const auto size = file.value("size", nlohmann::json());
    const auto hash = file.value("sha256", nlohmann::json());
    if (!name.is_string() || !size.is_number_unsigned() || !IsPlainName(name.get<std::string>())) continue;
    if (name == kCheckpointManifest) continue;
    const bool hashed = hash.is_string() && IsPlainName(hash.get<std::string>());
    files_.push_back({name.get<std::string>(), size.get<uint64_t>(), hashed ? hash.get<std::string>() : ""});
  }
  files_.push_back({kCheckpointManifest, text.size(), Sha256Of(text)});
  return {};
}

bool CheckpointFolder::pinned() const {
  return ::faccessat(fd_.get(), kCheckpointPin, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

std::optional<double> CheckpointFolder::Top1After(uint64_t step) const {
  const auto score = ScoreIn(Read("validation.json").value_or(""), step);
  return score ? std::optional(score->top1) : std::nullopt;
}

std::optional<double> CheckpointFolder::EpochsDone() const {
  return EpochsIn(Read("state.json").value_or(""));
}

Result<CheckpointFolder::OpenFile> CheckpointFolder::OpenOne(const std::string& name) const {
  const auto listed = std::ranges::find(files_, name, &CheckpointFileInfo::name);
  if (listed == files_.end())
    return Fail(ErrorCode::kNotFound, "the manifest of {} lists no file of that name", path_.native());
  IMGD_ASSIGN(UniqueFd fd, OpenIn(name));
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0 || static_cast<uint64_t>(facts.st_size) != listed->size_bytes) {
    return Fail(ErrorCode::kDataLoss, "{} has not the {} bytes that the manifest lists",
                (path_ / name).native(), listed->size_bytes);
  }
  return OpenFile{std::move(fd), *listed};
}

}  // namespace imgd
