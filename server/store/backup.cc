#include "server/store/backup.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "server/store/archive.h"
#include "server/store/database.h"
#include "server/store/state_folder.h"

namespace imgd {
namespace {

constexpr size_t kPieceOfBackup = 256 << 10;

/// Copies of both, the state's of no later moment than the metrics'.
Status CopyDatabases(const std::filesystem::path& from, const std::filesystem::path& to,
                     const std::function<bool()>& broken_off) {
  IMGD_ASSIGN(auto state, Database::OpenForReading(from / "state.db"));
  IMGD_TRY(state.HoldMoment());
  IMGD_ASSIGN(auto metrics, Database::OpenForReading(from / "metrics.db"));
  IMGD_TRY(metrics.HoldMoment());
  IMGD_TRY(state.CopyTo(to / "state.db", broken_off));
  return metrics.CopyTo(to / "metrics.db", broken_off);
}

}  // namespace

Result<UniqueFd> LockStateFolder(const std::filesystem::path& folder) {
  const auto path = folder / "imgd.lock";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return FailErrno(errno, "cannot open " + path.native());
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK) {
    return Fail(ErrorCode::kAlreadyExists, "another imgd uses {} already; each needs a state_dir of its own",
                folder.native());
  }
  return FailErrno(errno, "cannot lock " + path.native());
}

Result<BackupSource> BackupSource::Make(const std::filesystem::path& state_dir, const std::string& version,
                                        WallTime now, const std::function<bool()>& broken_off, bool with_ca) {
  BackupSource out;
  out.version_ = version;
  out.made_ = now;
  const auto copies = state_dir / kBackupStaging;
  std::error_code ignored;
  std::filesystem::remove_all(copies, ignored);  // of an imgd that was killed meanwhile
  if (::mkdir(copies.c_str(), 0700) != 0) return FailErrno(errno, "cannot create folder " + copies.native());
  const auto fill = [&]() -> Status {
    IMGD_TRY(CopyDatabases(state_dir, copies, broken_off));
    for (const std::string name : kBackedUpFiles) {
      if (!with_ca && name.starts_with("ca.")) continue;
      const bool copied = std::filesystem::exists(copies / name);
      if (copied || std::filesystem::exists(state_dir / name))
        IMGD_TRY(out.Open((copied ? copies : state_dir) / name, name));
    }
    return {};
  };
  const auto filled = fill();
  std::filesystem::remove_all(copies, ignored);  // what is open stays until it is closed
  IMGD_TRY(filled);
  return out;
}

Status BackupSource::Open(const std::filesystem::path& path, const std::string& name) {
  File file{.name = name, .fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC))};
  struct stat facts {};
  if (!file.fd.valid() || ::fstat(file.fd.get(), &facts) != 0)
    return FailErrno(errno, "cannot open " + path.native());
  file.size = static_cast<uint64_t>(facts.st_size);
  files_.push_back(std::move(file));
  return {};
}

std::string BackupSource::Manifest() const {
  nlohmann::json files = nlohmann::json::array();
  for (const auto& file : files_)
    files.push_back({{"name", file.name}, {"size", file.size}, {"sha256", file.sha256}});
  return nlohmann::json{
             {"format", kBackupFormat}, {"imgd", version_}, {"made_us", made_.micros}, {"files", files}}
             .dump(2) +
         "\n";
}

/// Some of the current file, or what ends it.
Status BackupSource::ReadMore(std::string& out) {
  File& file = files_[current_];
  if (!begun_) {
    begun_ = true;
    left_ = file.size;
    of_file_.emplace();
    out = TarHeader(file.name, file.size, made_.micros / 1'000'000);
    return {};
  }
  if (left_ == 0) {
    out = TarPadding(file.size);
    file.sha256 = of_file_->Finish();
    file.fd.reset();
    begun_ = false;
    ++current_;
    return {};
  }
  out.resize(std::min<uint64_t>(left_, kPieceOfBackup));
  const ssize_t n = ::read(file.fd.get(), out.data(), out.size());
  if (n <= 0) return FailErrno(n < 0 ? errno : EIO, "cannot read the copy of " + file.name);
  out.resize(static_cast<size_t>(n));
  left_ -= out.size();
  of_file_->Update(out);
  return {};
}

Result<std::string> BackupSource::Next() {
  std::string out;
  while (out.empty() && current_ < files_.size()) IMGD_TRY(ReadMore(out));
  if (out.empty() && !ended_) {
    ended_ = true;
    const std::string manifest = Manifest();
    out = TarHeader(kBackupManifest, manifest.size(), made_.micros / 1'000'000) + manifest +
          TarPadding(manifest.size()) + TarEnd();
  }
  all_.Update(out);
  return out;
}

}  // namespace imgd
