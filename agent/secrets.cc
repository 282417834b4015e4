#include "agent/secrets.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/files.h"
#include "common/variables.h"

namespace imgd {
namespace {

constexpr size_t kMostBytes = 64 << 10;
/// Shorter ones are words that stand everywhere: "1", "true".
constexpr size_t kShortestHidden = 8;

/// Whether nobody but root and the agent gets at it, but for `allowed` of the others' rights.
Status CheckRights(const std::filesystem::path& path, const struct stat& facts, mode_t allowed) {
  const mode_t others = facts.st_mode & 0077;
  const bool is_ours = facts.st_uid == 0 || facts.st_uid == ::geteuid();
  const bool ours_by_group = facts.st_gid == 0 || facts.st_gid == ::getegid();
  if (is_ours && (others & ~allowed & (ours_by_group ? 0037 : 0077)) == 0) return {};
  auto refused =
      Fail(ErrorCode::kPermissionDenied, "{} is of user {} and group {} with mode {:04o}: others get at it",
           path.native(), facts.st_uid, facts.st_gid, facts.st_mode & 07777);
  refused.value().hint = "let root or the agent's user have it, and nobody else: chown, chmod go=";
  return refused;
}

Status CheckFolder(const std::filesystem::path& folder) {
  struct stat facts {};
  if (::stat(folder.c_str(), &facts) != 0)
    return FailErrno(errno, fmt::format("cannot look at secrets_dir {}", folder.native()));
  // Names of secrets are none; who can put a file there is another matter.
  return CheckRights(folder, facts, 0055);
}

/// Adds what one line says.
Status TakeLine(std::string_view line, SecretVariables& variables) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  if (std::all_of(line.begin(), line.end(), is_blank) || line.front() == '#') return {};
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos || !IsVariableName(line.substr(0, equals)))
    return Fail(ErrorCode::kInvalidArgument, "is no NAME=VALUE, NAME of letters, digits and '_'");
  const std::string name(line.substr(0, equals));
  const std::string_view value = line.substr(equals + 1);
  if (IsOurVariable(name))
    return Fail(ErrorCode::kInvalidArgument, "{} is set by imgd, which says by it who a process is", name);
  if (std::any_of(value.begin(), value.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }))
    return Fail(ErrorCode::kInvalidArgument, "the value of {} has a control character", name);
  if (!value.empty() && (value.front() == '"' || value.front() == '\''))
    return Fail(ErrorCode::kInvalidArgument, "the value of {} begins with a quote; values stand as they are",
                name);
  if (!variables.emplace(name, value).second)
    return Fail(ErrorCode::kInvalidArgument, "{} is set twice by the secrets of this job", name);
  return {};
}

Status TakeFile(const std::filesystem::path& path, SecretVariables& variables) {
  // Not to wait for what is no file.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot open {}", path.native()));
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0)
    return FailErrno(errno, fmt::format("cannot look at {}", path.native()));
  if (!S_ISREG(facts.st_mode)) return Fail(ErrorCode::kInvalidArgument, "{} is no file", path.native());
  IMGD_TRY(CheckRights(path, facts, 0));
  IMGD_ASSIGN(const std::string text, ReadFile(fmt::format("/proc/self/fd/{}", fd.get()), kMostBytes));
  int number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    if (auto taken = TakeLine(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line, variables);
        !taken) {
      taken.error().file = path.native();
      taken.error().line = number;
      return taken;
    }
  }
  return {};
}

}  // namespace

Result<SecretVariables> ReadSecrets(const std::filesystem::path& folder,
                                    const std::vector<std::string>& names) {
  SecretVariables variables;
  if (names.empty()) return variables;
  IMGD_TRY(CheckFolder(folder));
  for (const auto& name : names) IMGD_TRY(TakeFile(folder / name, variables));
  return variables;
}

std::string HideValues(std::string_view line, const SecretVariables& secrets) {
  std::vector<std::string_view> values;
  for (const auto& [name, value] : secrets) {
    if (value.size() >= kShortestHidden) values.push_back(value);
  }
  // One that another begins with comes after it.
  std::sort(values.begin(), values.end(), [](auto a, auto b) { return a.size() > b.size(); });
  std::string shown(line);
  for (const auto value : values) {
    for (size_t at = shown.find(value); at != std::string::npos; at = shown.find(value, at))
      shown.replace(at, value.size(), "***");
  }
  return shown;
}

}  // namespace imgd
