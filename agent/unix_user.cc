#include "agent/unix_user.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "common/files.h"

namespace imgd {
namespace {

constexpr size_t kEntryBytes = 64 << 10;
/// To start ranks as other users, give them their folders, and end them.
constexpr std::pair<int, std::string_view> kRunAsCapabilities[] = {
    {CAP_CHOWN, "CAP_CHOWN"}, {CAP_KILL, "CAP_KILL"}, {CAP_SETGID, "CAP_SETGID"}, {CAP_SETUID, "CAP_SETUID"}};

Result<gid_t> FindGroup(const std::string& name) {
  group entry{};
  group* found = nullptr;
  std::string text(kEntryBytes, '\0');
  const int error = ::getgrnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
  if (found != nullptr) return entry.gr_gid;
  if (error != 0) return FailErrno(error, fmt::format("cannot look for the group '{}'", name));
  return Fail(ErrorCode::kNotFound, "this machine has no group '{}'", name);
}

/// What the agent has for the sake of ranks of other users, and no rank has.
void DropOwnCapabilities() {
  for (const auto& [capability, name] : kRunAsCapabilities)
    ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, static_cast<unsigned long>(capability), 0, 0);
}

/// The set of this process's capabilities that a shim of it has too.
uint64_t InheritedCapabilities() {
  const std::string set = ::geteuid() == 0 ? "\nCapEff:\t" : "\nCapAmb:\t";
  const auto text = ReadFile("/proc/self/status").value_or("");
  const size_t at = text.find(set);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + set.size(), nullptr, 16);
}

}  // namespace

Result<UnixUser> FindUnixUser(const std::string& name, const std::vector<std::string>& groups) {
  passwd entry{};
  passwd* found = nullptr;
  std::string text(kEntryBytes, '\0');
  const int error = ::getpwnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
  if (found == nullptr && error != 0)
    return FailErrno(error, fmt::format("cannot look for the user '{}'", name));
  if (found == nullptr) return Fail(ErrorCode::kNotFound, "this machine has no user '{}'", name);
  if (entry.pw_uid == 0 && name != "root")
    return Fail(ErrorCode::kInvalidArgument,
                "the user '{}' is root by another name; say root if that is meant", name);
  UnixUser user{.name = name, .uid = entry.pw_uid, .gid = entry.pw_gid, .home = entry.pw_dir};
  int count = 0;
  ::getgrouplist(name.c_str(), entry.pw_gid, nullptr, &count);
  user.groups.resize(static_cast<size_t>(count));
  if (::getgrouplist(name.c_str(), entry.pw_gid, user.groups.data(), &count) < 0)
    return Fail(ErrorCode::kInternal, "the groups of user '{}' can't be listed", name);
  user.groups.resize(static_cast<size_t>(count));
  for (const auto& group : groups) {
    IMGD_ASSIGN(const gid_t gid, FindGroup(group));
    if (std::find(user.groups.begin(), user.groups.end(), gid) == user.groups.end())
      user.groups.push_back(gid);
  }
  return user;
}

bool IsThisProcess(const UnixUser& user) {
  std::vector<gid_t> now(static_cast<size_t>(std::max(::getgroups(0, nullptr), 0)));
  if (::getgroups(static_cast<int>(now.size()), now.data()) < 0) return false;
  auto wanted = user.groups;
  std::sort(now.begin(), now.end());
  std::sort(wanted.begin(), wanted.end());
  return ::getuid() == user.uid && ::geteuid() == user.uid && ::getegid() == user.gid &&
         std::equal(now.begin(), now.end(), wanted.begin(), wanted.end());
}

Status MayBecome(const UnixUser& user) {
  if (IsThisProcess(user)) return {};
  const uint64_t has = InheritedCapabilities();
  std::vector<std::string_view> lacking;
  for (const auto& [capability, name] : kRunAsCapabilities) {
    if ((has >> capability & 1) == 0) lacking.push_back(name);
  }
  if (lacking.empty()) return {};
  auto refused = Fail(ErrorCode::kPermissionDenied, "the agent can't run ranks as user {}: it lacks {}",
                      user.name, fmt::join(lacking, ", "));
  refused.value().hint = "imgagent-users.conf beside its unit gives them to it, or run it as root";
  return refused;
}

int Become(const UnixUser& user) {
  DropOwnCapabilities();
  if (!user.given()) return 0;
  if (!IsThisProcess(user) &&
      (::setgroups(user.groups.size(), user.groups.data()) != 0 ||
       ::setresgid(user.gid, user.gid, user.gid) != 0 || ::setresuid(user.uid, user.uid, user.uid) != 0))
    return errno;
  // Whoever was no root before keeps his capabilities up to the exec, and those that are ambient beyond it.
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : errno;
}

Status DoAs(const UnixUser& user, const std::function<Status()>& work) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return FailErrno(errno, "cannot make a pipe");
  const UniqueFd read(fds[0]);
  UniqueFd write(fds[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return FailErrno(errno, "cannot start a process");
  if (pid == 0) {
    const int error = Become(user);
    // Not to outlive it with all that is open there; only now, since who changes his user loses this.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    const Status done =
        error == 0 ? work() : FailErrno(error, fmt::format("cannot become user {}", user.name));
    if (done) ::_exit(0);
    (void)WriteAll(write.get(), static_cast<char>(done.error().code) + done.error().ToString(), "pipe");
    ::_exit(1);
  }
  write.reset();
  const auto said = ReadFile(fmt::format("/proc/self/fd/{}", read.get()));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (!said || said->empty())
    return Fail(ErrorCode::kInternal, "what was done as user {} ended without a word", user.name);
  return Fail(static_cast<ErrorCode>(said->front()), "{}", said->substr(1));
}

}  // namespace imgd
