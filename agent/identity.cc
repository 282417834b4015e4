#include "agent/identity.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "agent/process.h"
#include "common/text.h"

namespace imgd {
namespace {

constexpr const char* kMarker = ".imgd-shared-id";
constexpr const char* kBlanks = " \r\n";  ///< around an id in its file

/// Makes `path` with `content` unless it is there already; nobody ever sees it without its content.
Status CreateOnce(const std::filesystem::path& path, const std::string& content) {
  const std::string temporary = fmt::format("{}.{}", path.native(), content);
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot create {}", path.native()));
  auto done = WriteAll(fd.get(), content + "\n", path.native());
  // Else a power cut could leave the name with nothing behind it.
  if (done && ::fsync(fd.get()) != 0) done = FailErrno(errno, fmt::format("cannot write {}", path.native()));
  if (done && ::link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    // A file system without links: a reader may come between the two steps, and finds it empty.
    const UniqueFd direct(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (direct.valid()) {
      done = WriteAll(direct.get(), content + "\n", path.native());
    } else if (errno != EEXIST) {
      done = FailErrno(errno, fmt::format("cannot create {}", path.native()));
    }
  }
  ::unlink(temporary.c_str());
  return done;
}

/// The content of the small file, which is made with a random one if it is not there.
Result<std::string> ReadOrMakeId(const std::filesystem::path& path) {
  auto text = ReadFile(path);
  if (!text && text.error().code == ErrorCode::kNotFound) {
    IMGD_TRY(CreateOnce(path, RandomHex(16)));
    text = ReadFile(path);
  }
  if (!text) return text;
  std::string id(Trimmed(*text, kBlanks));
  if (id.empty())
    return Fail(ErrorCode::kDataLoss, "{} is empty; remove it and a new one is made", path.native());
  return id;
}

}  // namespace

std::string RandomHex(size_t bytes) {
  std::string raw(bytes, '\0');
  size_t have = 0;
  while (have < bytes) {
    const ssize_t n = ::getrandom(raw.data() + have, bytes - have, 0);
    if (n > 0) have += static_cast<size_t>(n);
  }
  std::string out;
  for (const char c : raw) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

Result<UniqueFd> LockStateDir(const std::filesystem::path& state_dir) {
  IMGD_TRY(MakeFolders(state_dir));
  const auto path = state_dir / "agent.lock";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot open {}", path.native()));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK) {
    return Fail(ErrorCode::kAlreadyExists,
                "another imgagent runs on the state folder {}; a second one needs a --state-dir of its own",
                state_dir.native());
  }
  return FailErrno(errno, fmt::format("cannot lock {}", path.native()));
}

Result<std::string> AgentId(const std::filesystem::path& state_dir) {
  return ReadOrMakeId(state_dir / "agent-id");
}

std::string FilesystemId() {
  struct stat mounts {};
  const bool known = ::stat("/proc/self/ns/mnt", &mounts) == 0;
  const std::string text = fmt::format("{}/{}", BootId(), known ? mounts.st_ino : 0);
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return fmt::format("{:016x}", hash);
}

Status CheckSharedFolder(const std::filesystem::path& folder) {
  std::error_code error;
  if (!folder.is_absolute())
    return Fail(ErrorCode::kInvalidArgument, "shared folder '{}': an absolute path is expected",
                folder.native());
  // It may come: a network's folder is not there at once when a machine starts.
  if (std::filesystem::is_directory(folder.lexically_normal(), error)) return {};
  return Fail(ErrorCode::kNotFound, "shared folder '{}': there is no such folder", folder.native());
}

Result<v1::SharedFolder> IdentifySharedFolder(const std::filesystem::path& folder) {
  IMGD_TRY(CheckSharedFolder(folder));
  // The daemon compares names: "/a/../b" is what "/b" is, also where "/a" is a link to elsewhere.
  std::string path = folder.lexically_normal();
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  IMGD_ASSIGN(auto id, ReadOrMakeId(std::filesystem::path(path) / kMarker));
  v1::SharedFolder shared;
  shared.set_path(std::move(path));
  shared.set_id(std::move(id));
  return shared;
}

std::string WhyNoSharedFolder(const v1::SharedFolder& folder) {
  const auto text = ReadFile(std::filesystem::path(folder.path()) / kMarker);
  if (!text) return text.error().message;
  if (Trimmed(*text, kBlanks) == folder.id()) return "";
  return fmt::format("{} is another folder than when the agent began", folder.path());
}

}  // namespace imgd
